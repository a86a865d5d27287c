//go:build tools

// Package tools names what is built from the module of gVisor.
package tools

import _ "gvisor.dev/gvisor/runsc"
