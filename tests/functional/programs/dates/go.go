package main

import (
	"fmt"
	"strings"
	"time"
)

func main() {
	day := time.Date(2024, time.February, 29, 0, 0, 0, 0, time.UTC)
	fmt.Println(int(day.Sub(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).Hours() / 24))
	fmt.Println(day.Weekday())
	fmt.Println(day.AddDate(0, 0, 100).Format("2006-01-02"))
	words := []string{}
	for _, year := range []int{1900, 2000, 2023, 2024} {
		word := "no"
		if time.Date(year, time.December, 31, 0, 0, 0, 0, time.UTC).YearDay() == 366 {
			word = "yes"
		}
		words = append(words, fmt.Sprint(year, " ", word))
	}
	fmt.Println(strings.Join(words, " "))
}
