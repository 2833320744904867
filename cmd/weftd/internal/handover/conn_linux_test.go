package handover

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 30 * time.Second

func ends(t *testing.T) (a, b *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var l [2]*Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		_ = f.Close()
		if err != nil {
			t.Fatal(err)
		}
		l[i] = NewConn(c.(*net.UnixConn))
		t.Cleanup(l[i].Close)
	}
	return l[0], l[1]
}

// TestWordsCross sends what each side says, and what the other one does not expect.
func TestWordsCross(t *testing.T) {
	old, next := ends(t)
	if err := old.Send(Message{Word: Item, Name: "tun", Body: []byte(`{"a":1}`), FDs: []int{0, 1}}); err != nil {
		t.Fatal(err)
	}
	m, err := next.Receive(time.Now().Add(patience))
	if err != nil || m.Word != Item || m.Name != "tun" || string(m.Body) != `{"a":1}` || len(m.FDs) != 2 {
		t.Fatalf("%+v %v", m, err)
	}
	for _, fd := range m.FDs {
		_ = unix.Close(fd)
	}
	if err := next.Send(Message{Word: Ready}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Expect(Flowing, time.Now().Add(patience)); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("another word: %v", err)
	}
	if err := old.Send(Message{Word: Back, Name: "because"}); err != nil {
		t.Fatal(err)
	}
	var back *BackError
	if _, err := next.Expect(Yours, time.Now().Add(patience)); !errors.As(err, &back) || back.Why != "because" {
		t.Errorf("back: %v", err)
	}
	if err := old.Send(Message{Word: Item, Body: make([]byte, 0), Name: string(make([]byte, maxMessage))}); err == nil {
		t.Error("a message longer than the other end reads was sent")
	}
	if _, err := next.Receive(time.Now().Add(10 * time.Millisecond)); err == nil || errors.Is(err, ErrGone) || !isTimeout(err) {
		t.Errorf("nothing to read: %v", err)
	}
	next.Close()
	if _, err := old.Receive(time.Now().Add(patience)); !errors.Is(err, ErrGone) {
		t.Errorf("the other end is closed: %v", err)
	}
}

func isTimeout(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}

// TestInterruptIsNotNoticed interrupts a read and has later ones end at once, while the other end can speak as before.
func TestInterruptIsNotNoticed(t *testing.T) {
	a, b := ends(t)
	done := make(chan error, 1)
	go func() { _, err := a.Receive(time.Time{}); done <- err }()
	a.Interrupt()
	select {
	case err := <-done:
		if !errors.Is(err, ErrGone) || isTimeout(err) {
			t.Errorf("an interrupted read: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the read goes on")
	}
	if _, err := a.Receive(time.Now().Add(time.Hour)); !errors.Is(err, ErrGone) {
		t.Errorf("a later read: %v", err)
	}
	if err := b.Send(Message{Word: Ready}); err != nil {
		t.Errorf("the other end noticed: %v", err)
	}
	if err := a.Send(Message{Word: Back}); err != nil {
		t.Errorf("this end cannot speak: %v", err)
	}
	if m, err := b.Receive(time.Now().Add(patience)); err != nil || m.Word != Back {
		t.Errorf("%+v %v", m, err)
	}
}

// TestGarbageIsNoMessage has packets of somebody who speaks something else.
func TestGarbageIsNoMessage(t *testing.T) {
	a, b := ends(t)
	for _, text := range []string{"{", "[]", `{"word":7}`} {
		if _, err := b.c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if m, err := a.Receive(time.Now().Add(patience)); err == nil {
			t.Errorf("%q is %+v", text, m)
		}
	}
}
