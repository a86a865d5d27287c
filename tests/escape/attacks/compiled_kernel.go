// attack: reaches for the kernel from Go that palisade compiled: namespaces, mounts, tracing, bpf, keys, rings, sockets, handles
// family: kernel surface
// walls: seccomp
// without: escaped
package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"
)

var seen []string

func attempt(label string, number uintptr, arguments ...uintptr) {
	var given [6]uintptr
	copy(given[:], arguments)
	result, _, err := syscall.RawSyscall6(number, given[0], given[1], given[2], given[3], given[4], given[5])
	if err == 0 {
		fmt.Println("ESCAPED:", label, "gave", result)
		os.Exit(0)
	}
	seen = append(seen, fmt.Sprint(label, " ", int(err)))
}

func text(word string) uintptr {
	bytes, _ := syscall.BytePtrFromString(word)
	return uintptr(unsafe.Pointer(bytes))
}

func main() {
	here := ^uintptr(99)
	var block [256]byte
	place := uintptr(unsafe.Pointer(&block))
	attempt("mount", syscall.SYS_MOUNT, text("none"), text("/tmp"), text("tmpfs"))
	attempt("fsopen", 430, text("tmpfs"))
	attempt("open_tree", 428, here, text("/"), 1)
	attempt("ptrace", syscall.SYS_PTRACE, 16, 1)
	attempt("process_vm_readv", 310, 1, place, 1, place, 1)
	attempt("bpf", 321, 0, place, 256)
	attempt("keyctl", 250, 0, ^uintptr(3), 1)
	attempt("io_uring", 425, 4, place)
	attempt("userfaultfd", 323, 1)
	attempt("perf_event_open", 298, place, 0, ^uintptr(0), ^uintptr(0))
	attempt("kexec_load", 246)
	namespace, _ := syscall.Open("/proc/1/ns/user", 0, 0)
	attempt("setns", 308, uintptr(namespace), 0)
	attempt("open_by_handle_at", 304, here, place, 0)
	for name, family := range map[string]uintptr{"netlink": 16, "packet": 17, "vsock": 40, "alg": 38} {
		attempt(name, syscall.SYS_SOCKET, family, 3, 0)
	}
	attempt("raw", syscall.SYS_SOCKET, 2, 3, 1)
	terminal, _ := syscall.Open("/dev/ptmx", 2, 0)
	attempt("TIOCSTI", syscall.SYS_IOCTL, uintptr(terminal), 0x5412, text("x"))
	arguments := [11]uint64{syscall.CLONE_NEWUSER, 0, 0, 0, 17}
	child, _, err := syscall.RawSyscall(435, uintptr(unsafe.Pointer(&arguments)), unsafe.Sizeof(arguments), 0)
	if err == 0 && child == 0 {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if err == 0 {
		fmt.Println("ESCAPED: clone3 made a user namespace")
		os.Exit(0)
	}
	attempt("unshare", syscall.SYS_UNSHARE, syscall.CLONE_NEWUTS)
	fmt.Println("HELD:", strings.Join(seen, ", "))
}
