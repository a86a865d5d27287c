package main

import "fmt"

type shape interface{ area() int }
type rectangle struct{ width, height int }
type square struct{ side int }

func (r rectangle) area() int      { return r.width * r.height }
func (r rectangle) String() string { return fmt.Sprintf("rectangle %d", r.area()) }
func (s square) area() int         { return s.side * s.side }
func (s square) String() string    { return fmt.Sprintf("square %d", s.area()) }

func counter(step int) func() int {
	count := 0
	return func() int {
		count += step
		return count
	}
}

func main() {
	ones, tens := counter(1), counter(10)
	fmt.Println(ones(), ones(), tens(), ones(), tens())
	for _, it := range []shape{square{3}, rectangle{2, 5}} {
		fmt.Println(it)
	}
}
