package daemon

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWithoutDescriptorsSomebodyIsAnswered has this process get no descriptor more. A listener that spares
// one goes on with one client at a time, and what is said names the limit and what to do. It is over when the
// limit is raised.
func TestWithoutDescriptorsSomebodyIsAnswered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	open, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l := spare(open)
	defer func() { _ = l.Close() }()
	clients := make([]int, 3) // this process's too, so that they need their descriptors now
	for i := range clients {
		if clients[i], err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(clients[i]) }()
	}
	asks := func(i int) {
		t.Helper()
		if err := unix.Connect(clients[i], &unix.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
	}
	asks(0)
	first, err := l.Accept() // as long as there are some
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()

	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = lowestFree(t)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
	if err := descriptorFault(); !errors.Is(err, syscall.EMFILE) ||
		!strings.Contains(err.Error(), "prlimit --pid "+strconv.Itoa(os.Getpid())) {
		t.Errorf("without descriptors: %v", err)
	}
	asks(1)
	second, err := l.Accept()
	if err != nil {
		t.Fatalf("without descriptors, of whom one is spare: %v", err)
	}
	asks(2)
	if c, err := l.Accept(); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("while somebody has the spare one: %v, %v", c, err)
	}
	_ = second.Close()
	third, err := l.Accept()
	if err != nil {
		t.Errorf("after that: %v", err)
	} else {
		_ = third.Close()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := descriptorFault(); err != nil {
		t.Errorf("with descriptors again: %v", err)
	}
}

// lowestFree is the descriptor that this process gets next.
func lowestFree(t *testing.T) uint64 {
	t.Helper()
	fd, err := openSpare()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	return uint64(fd)
}
