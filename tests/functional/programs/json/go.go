package main

import (
	"encoding/json"
	"fmt"
)

type data struct {
	Name   string   `json:"name"`
	Values []int    `json:"values,omitempty"`
	Ratio  float64  `json:"ratio,omitempty"`
	Tags   []string `json:"tags"`
	Total  int      `json:"total"`
}

func main() {
	var in data
	text := `{"name": "Zoë", "values": [1, 2, 3], "ratio": 2.5, "tags": ["x", "y"]}`
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		panic(err)
	}
	fmt.Println(in.Name, len(in.Values), in.Ratio)
	out := data{Name: in.Name, Tags: append(in.Tags, "z")}
	for _, value := range in.Values {
		out.Total += value
	}
	bytes, _ := json.Marshal(out)
	fmt.Println(string(bytes))
}
