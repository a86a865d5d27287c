package main

import (
	"fmt"
	"math/big"
)

func main() {
	product := new(big.Int).MulRange(1, 30)
	sum := 0
	for _, digit := range product.String() {
		sum += int(digit - '0')
	}
	fmt.Println(product)
	fmt.Println(sum)
}
