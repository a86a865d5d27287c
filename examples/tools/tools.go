// Calls a tool of another server from Go, over the line protocol of docs/CODEMODE.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
)

type answer struct {
	ID int `json:"id"`
	Ok struct {
		Content []struct{ Type, Text string } `json:"content"`
		IsError bool                          `json:"isError"`
	} `json:"ok"`
	Error *struct{ Code, Message, Remedy string } `json:"error"`
}

func call(link net.Conn, lines *bufio.Reader, id int, tool string, args any) (answer, error) {
	var got answer
	request, err := json.Marshal(map[string]any{"id": id, "call": tool, "args": args})
	if err != nil {
		return got, err
	}
	if _, err = link.Write(append(request, '\n')); err != nil {
		return got, err
	}
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return got, err
	}
	if err = json.Unmarshal(line, &got); err == nil && got.Error != nil {
		err = fmt.Errorf("%s: %s", got.Error.Code, got.Error.Message)
	}
	return got, err
}

func main() {
	link, err := net.Dial("unix", os.Getenv("PALISADE_TOOLS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer link.Close()
	got, err := call(link, bufio.NewReader(link), 1, "x.echo", map[string]any{"city": "Oslo"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(got.Ok.Content[0].Text)
}
