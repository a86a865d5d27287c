package main

import "fmt"

func quicksort(items []int) []int {
	if len(items) < 2 {
		return items
	}
	var below, above []int
	for _, x := range items[1:] {
		if x < items[0] {
			below = append(below, x)
		} else {
			above = append(above, x)
		}
	}
	return append(append(quicksort(below), items[0]), quicksort(above)...)
}

func main() {
	sorted := quicksort([]int{33, -4, 15, 0, 99, 7, 7, -21, 58, 2, 41, 13})
	text := fmt.Sprint(sorted)
	fmt.Println(text[1 : len(text)-1])
}
