package main

import "fmt"

var known = map[int]int64{0: 0, 1: 1}

func fibonacci(n int) int64 {
	if value, found := known[n]; found {
		return value
	}
	known[n] = fibonacci(n-1) + fibonacci(n-2)
	return known[n]
}

func main() {
	for n := 0; n <= 10; n++ {
		if n > 0 {
			fmt.Print(" ")
		}
		fmt.Print(fibonacci(n))
	}
	fmt.Printf("\n%d\n", fibonacci(70))
}
