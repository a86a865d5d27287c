// attack: opens files of the host from Go that palisade compiled, in their places and through /proc
// family: file reads
// walls: root
// without: escaped
package main

import (
	"fmt"
	"os"
)

func main() {
	secret := vars.HOST.(map[string]any)["secret"].(string)
	var last error
	for _, place := range []string{secret, "/etc/shadow", "/root/.ssh", "/var/lib", "/run/docker.sock", "/etc/machine-id"} {
		for _, root := range []string{"", "/host", "/proc/1/root", "/proc/self/root", "/../..", "/palisade/build/../../.."} {
			if _, err := os.Open(root + place); err == nil {
				fmt.Println("ESCAPED: opened", root+place)
				return
			} else {
				last = err
			}
		}
	}
	fmt.Println("HELD:", last)
}
