package perf

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

// TestCountCalls: the reads and writes of this process are counted, also those of a thread that was started
// later.
func TestCountCalls(t *testing.T) {
	netns.Root(t, "tracefs can only be mounted by root")
	in := netns.New(t, "count")
	c, err := CountCalls(in, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 500
	before, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 10)
	for range n {
		if _, err := unix.Write(fds[0], b); err != nil {
			t.Fatal(err)
		}
		if _, _, err := unix.Recvfrom(fds[1], b, 0); err != nil {
			t.Fatal(err)
		}
	}
	after, err := c.Read()
	if err != nil {
		t.Fatal(err)
	}
	reads, sends := after[0].Reads-before[0].Reads, after[0].Sends-before[0].Sends
	if reads < n || reads > n+100 || sends < n || sends > n+100 { // Go makes some by itself
		t.Errorf("%d reads and %d sends were counted of %d each", reads, sends, n)
	}
}

// TestSampleCopies: a processor that does little but copy is seen to do so.
func TestSampleCopies(t *testing.T) {
	netns.Root(t, "only root may sample all processors")
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	const last = 300 * time.Millisecond
	c, err := SampleCopies(last)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 60<<10)
	for start := time.Now(); time.Since(start) < last; {
		if _, err := unix.Write(fds[0], b); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Read(fds[1], b); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.Stop()
	if err != nil || got.Copying == 0 || got.Copying >= got.Busy {
		t.Errorf("%+v, %v", got, err)
	}
	t.Logf("%+v: %.0f %%", got, got.Percent())
}

func TestSymbols(t *testing.T) {
	l, err := parseSymbols("ffff0020 T memcpy_orig\nffff0010 t skb_put\nffff0018 d data\nffff0030 W " +
		"other\t[mod]\n")
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[uint64]string{0x10: "", 0xffff0010: "skb_put", 0xffff001f: "skb_put",
		0xffff0021: "memcpy_orig", 0xffff0fff: "other"} {
		if got := l.at(at); got != want {
			t.Errorf("%x is in %q, want %q", at, got, want)
		}
	}
	if !isCopy("memcpy_orig") || !isCopy("_copy_to_iter") || isCopy("skb_put") || isCopy("") {
		t.Error("what is a copy")
	}
	if _, err := parseSymbols("0000 T memcpy\n"); err == nil {
		t.Error("addresses that are hidden, and no error")
	}
}
