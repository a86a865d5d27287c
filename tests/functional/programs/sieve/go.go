package main

import (
	"fmt"
	"strings"
)

func primesBelow(limit int) (primes []int) {
	crossed := make([]bool, limit)
	for n := 2; n < limit; n++ {
		if crossed[n] {
			continue
		}
		primes = append(primes, n)
		for m := n * n; m < limit; m += n {
			crossed[m] = true
		}
	}
	return primes
}

func main() {
	fmt.Println(strings.Trim(fmt.Sprint(primesBelow(50)), "[]"))
	fmt.Println(len(primesBelow(10000)))
}
