// Variables of the run, as fields of `vars`. Their values are read before main begins. docs/COMPILED.md
package main

import (
	"bytes"
	"math/big"
	"os"
	"strconv"
)

var vars = palisadeBind()

var palisadeRest []byte

type palisadeVars struct {
	// @declare@
}

func palisadeLine() string {
	line, rest, _ := bytes.Cut(palisadeRest, []byte("\n"))
	palisadeRest = rest
	return string(line)
}

func palisadeCount(line string) int {
	count, err := strconv.Atoi(line[1:])
	if err != nil {
		panic(err)
	}
	return count
}

func palisadeText(line string) string {
	count := palisadeCount(line)
	text := string(palisadeRest[:count])
	palisadeRest = palisadeRest[count+1:]
	return text
}

func palisadeValue() any {
	line := palisadeLine()
	switch line[0] {
	case 't', 'f':
		return line[0] == 't'
	case 'i':
		return palisadeCount(line)
	case 'I':
		number, _ := new(big.Int).SetString(line[1:], 10)
		return number
	case 'd':
		number, _ := strconv.ParseFloat(line[1:], 64)
		return number
	case 's':
		return palisadeText(line)
	case '[':
		list := make([]any, palisadeCount(line))
		for i := range list {
			list[i] = palisadeValue()
		}
		return list
	case '{':
		pairs := map[string]any{}
		for left := palisadeCount(line); left > 0; left-- {
			key := palisadeText(palisadeLine())
			pairs[key] = palisadeValue()
		}
		return pairs
	}
	return nil
}

func palisadeFloat() float64 {
	switch number := palisadeValue().(type) {
	case int:
		return float64(number)
	case float64:
		return number
	}
	return 0
}

func palisadeList[T any](read func() T) []T {
	list := make([]T, palisadeCount(palisadeLine()))
	for i := range list {
		list[i] = read()
	}
	return list
}

func palisadeBind() (v palisadeVars) {
	content, err := os.ReadFile("/palisade/variables")
	if err != nil {
		panic(err)
	}
	palisadeRest = content
	// @bind@
	return v
}
