package main

import "fmt"

type row struct {
	name  string
	price float64
	count int
}

func main() {
	rows := []row{{"apple", 1.5, 10}, {"pear", 0.25, 4}, {"watermelon", 12, 1}}
	total := 0.0
	for _, it := range rows {
		fmt.Printf("%-12s|%8.2f|%4d\n", it.name, it.price, it.count)
		total += it.price * float64(it.count)
	}
	fmt.Printf("%-12s %7.2f\n%07d %x\n", "total", total, 255, 255)
}
