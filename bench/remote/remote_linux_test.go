package remote

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
	"weft/bench/report"
	"weft/test/await"
)

// serve runs a server on loopback until the test ends.
func serve(t *testing.T, addr string, o Options) (at netip.AddrPort, ended <-chan error) {
	t.Helper()
	s, err := Listen(netip.MustParseAddrPort(addr), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	gone := make(chan struct{})
	go func() { // waited for in the clean-up
		done <- s.Serve(ctx)
		close(gone)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-gone:
		case <-time.After(await.Patience):
			t.Error("the server does not end")
		}
	})
	return s.Addr(), done
}

// short measures everything as briefly as works on a machine that other tests keep busy.
func short() plan.Config {
	c := plan.Quick()
	c.TCP, c.WarmUp, c.Trial, c.Ping, c.Frames, c.Loss = 100*time.Millisecond, 20*time.Millisecond, 60*time.Millisecond, 300*time.Millisecond, []int{64, 1518}, 0.5
	return c
}

// TestMeasure makes a whole session over loopback, in both families and directions.
func TestMeasure(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		at, ended := serve(t, addr, Options{Token: "s3cret", Once: true})
		d, err := Run(t.Context(), Plan{Config: short(), Server: at, Token: "s3cret", Reverse: true}, plan.Out{})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Rungs) != 2 || len(d.Measures) < 6 || d.Far != nil {
			t.Errorf("%d rungs, %d measures, other machine %v", len(d.Rungs), len(d.Measures), d.Far)
		}
		for _, m := range d.Measures {
			for _, r := range m.Results {
				if len(m.Results) != 2 || r.Figures[0].Median <= 0 {
					t.Errorf("%s %s %s: %d results, %+v", addr, m.Key, r.Rung, len(m.Results), r.Figures[0])
				}
			}
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(await.Patience):
			t.Error("a server that serves once serves on")
		}
	}
}

func dial(t *testing.T, at netip.AddrPort, token string) *Client {
	t.Helper()
	k, err := Dial(t.Context(), at, token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// free returns a function that returns nil once the server has no session, so that a client can begin one.
func free(t *testing.T, at netip.AddrPort) func() error {
	return func() error {
		k, err := Dial(t.Context(), at, "")
		if err == nil {
			err = k.Close()
		}
		return err
	}
}

func TestBusyAndGone(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{})
	first := dial(t, at, "")
	if _, err := Dial(t.Context(), at, ""); !errors.Is(err, ErrBusy) {
		t.Errorf("a second client: %v, want %v", err, ErrBusy)
	}
	// The client goes away while it has a data connection of every kind.
	for _, r := range []role{sink, source, echo} {
		if _, err := first.open(t.Context(), r, load.AnyCPU); err != nil {
			t.Fatal(err)
		}
	}
	traffic := load.Single(load.SendTo, 64)
	if _, err := first.ask(t.Context(), request{Op: opOpen, Traffic: &traffic, Receive: load.Drain}, 0); err != nil {
		t.Fatal(err)
	}
	if err := writeLine(first.c, request{Op: opSend, Traffic: &traffic, Milliseconds: 30_000, Rate: 1000, Port: 40000}); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the next client is served", free(t, at))
}

// TestCancelled: a measurement that is cancelled ends at once, at both ends.
func TestCancelled(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	c := short()
	c.TCP = time.Hour
	if _, err := Run(ctx, Plan{Config: c, Server: at}, plan.Out{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want %v", err, context.Canceled)
	}
	await.OK(t, "the next client is served", free(t, at))
}

func TestTokenAndVersion(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{Token: "right"})
	for _, token := range []string{"", "wrong"} {
		if _, err := Dial(t.Context(), at, token); err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("token %q: %v", token, err)
		}
	}
	dial(t, at, "right")
	if said := say(t, at, `{"weft_bench":99}`+"\n"); !strings.Contains(said, "version 1") || !strings.Contains(said, "you have 99") {
		t.Errorf("another version: %q", said)
	}
	// A server of another version, and programs that are no such server.
	for greet, want := range map[string]string{`{"weft_bench":99}`: "version 99", "220 mail ESMTP": "does not greet", strings.Repeat("x", maxLine+1): "does not greet"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the connection
			if c, err := l.Accept(); err == nil {
				fmt.Fprintln(c, greet)
				_ = c.Close()
			}
		}()
		if _, err := Dial(t.Context(), l.Addr().(*net.TCPAddr).AddrPort(), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("greeted with %.20q: %v, want %q", greet, err, want)
		}
		_ = l.Close()
	}
	if _, err := Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:1"), ""); err == nil || !strings.Contains(err.Error(), "weft bench serve") {
		t.Errorf("nobody there: %v", err)
	}
}

// say connects, says something after the greeting, and returns the answer.
func say(t *testing.T, at netip.AddrPort, what string) string {
	t.Helper()
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte(what)) // the server may have closed it meanwhile
	line, _ := r.ReadString('\n')
	return line
}

// TestHostileClient: whatever a client says, the server answers it or closes the connection, and serves the next client.
func TestHostileClient(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{})
	for _, words := range []string{
		"\n", "GET / HTTP/1.1\r\n\r\n", "\x00\xff\x00\n", "[]\n", "null\n", `{"weft_bench":"1"}` + "\n", "{}\n",
		strings.Repeat("x", 10*maxLine), strings.Repeat("[", maxLine-2) + "\n",
		`{"weft_bench":1,"session":"none","role":"sink"}` + "\n",
	} {
		if said := say(t, at, words); strings.Contains(said, `"machine"`) {
			t.Errorf("%.30q was taken for a client: %.100q", words, said)
		}
	}
	var k *Client
	await.OK(t, "a session", func() (err error) {
		k, err = Dial(t.Context(), at, "")
		return err
	})
	defer k.Close()
	ok := load.Single(load.SendTo, 64)
	huge := load.Single(load.SendTo, 1<<30)
	many := load.Traffic{Mode: load.SendTo, Payloads: []int{64}, Flows: 1 << 30}
	for _, q := range []request{
		{}, {Op: "reboot"}, {Op: opCount}, {Op: opExpect}, {Op: opQuiet}, {Op: opClose},
		{Op: opOpen}, {Op: opOpen, Traffic: &huge, Receive: load.Drain}, {Op: opOpen, Traffic: &many, Receive: load.Drain}, {Op: opOpen, Traffic: &ok},
		{Op: opSend}, {Op: opSend, Traffic: &ok, Milliseconds: 1 << 40, Port: 40000}, {Op: opSend, Traffic: &ok, Milliseconds: -1, Port: 40000},
		{Op: opSend, Traffic: &ok, Milliseconds: 1, Rate: 1e12, Port: 40000}, {Op: opSend, Traffic: &ok, Milliseconds: 1, Port: 53},
		{Op: opSend, Traffic: &huge, Milliseconds: 1, Port: 40000}, {Op: opSend, Traffic: &many, Milliseconds: 1, Port: 40000},
	} {
		if r, err := k.ask(t.Context(), q, 0); err == nil {
			t.Errorf("%+v was granted: %+v", q, r)
		}
	}
	if _, err := k.open(t.Context(), "shell", load.AnyCPU); err != nil {
		t.Errorf("an unknown role is refused after the greeting: %v", err)
	}
	if _, err := k.ask(t.Context(), request{Op: opBytes}, 0); err != nil {
		t.Errorf("the session does not go on: %v", err)
	}
	for range maxStreams + 1 { // until the server refuses one
		if _, err := k.open(t.Context(), sink, load.AnyCPU); err != nil {
			if !strings.Contains(err.Error(), "connections") {
				t.Errorf("too many connections: %v", err)
			}
			break
		}
	}
	if _, err := k.c.Write([]byte(strings.Repeat("y", 2*maxLine) + "\n")); err != nil {
		t.Fatal(err)
	}
	await.OK(t, "the next client is served", free(t, at))
}

// from connects to a server from an address of loopback.
func from(t *testing.T, at netip.AddrPort, local string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(local), 0)), Timeout: 10 * time.Second}
	c, err := d.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	return c.(*net.TCPConn)
}

// TestSilence: connections that say nothing keep nobody out, wherever they come from.
func TestSilence(t *testing.T) {
	for name, source := range map[string]func(i int) string{
		"one source":     func(int) string { return "127.0.0.1" },
		"the newcomer's": func(int) string { return "127.0.0.9" },
		"many sources":   func(i int) string { return fmt.Sprintf("127.0.1.%d", i+1) },
	} {
		t.Run(name, func(t *testing.T) {
			at, _ := serve(t, "127.0.0.1:0", Options{})
			var last *net.TCPConn
			for i := range 2 * maxGreeting {
				last = from(t, at, source(i))
			}
			// The server greets the last one, so by then it knows of all of them.
			if _, err := bufio.NewReader(last).ReadString('\n'); err != nil {
				t.Errorf("the last that came is not greeted: %v", err)
			}
			c := from(t, at, "127.0.0.9")
			in := newLines(c)
			var g greeting
			var r reply
			if err := errors.Join(in.read(&g), writeLine(c, hello{Version: Version}), in.read(&r)); err != nil || r.Session == "" {
				t.Errorf("the newcomer is not served: %v, %+v", err, r)
			}
		})
	}
}

// TestGuesses: of many tokens from one source few are examined, and other sources are served.
func TestGuesses(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{Token: "right"})
	try := func(local, token string) reply {
		c := from(t, at, local)
		in := newLines(c)
		var g greeting
		var r reply
		if err := in.read(&g); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(writeLine(c, hello{Version: Version, Proof: proof(token, g.Nonce)}), in.read(&r)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	began, examined := time.Now(), 0
	for i := range 200 {
		switch r := try("127.0.0.1", fmt.Sprint(i)); {
		case strings.Contains(r.Error, "wrong token, or none"):
			examined++
		case !strings.Contains(r.Error, "too many wrong tokens"):
			t.Fatalf("%+v", r)
		}
	}
	if most := sourceGuesses + 1 + int(time.Since(began)/sourceInterval); examined < sourceGuesses || examined > most {
		t.Errorf("%d of 200 guesses were examined, want at most %d", examined, most)
	}
	if r := try("127.0.0.2", "right"); r.Session == "" {
		t.Errorf("another client is not served: %+v", r)
	}
}

func TestMemoryIsNotAsked(t *testing.T) {
	at, _ := serve(t, "127.0.0.1:0", Options{})
	c := short()
	c.Kinds = []report.Kind{report.Memory, report.PingPong}
	d, err := Run(t.Context(), Plan{Config: c, Server: at}, plan.Out{})
	if err != nil || len(d.Measures) == 0 || d.Measures[0].Kind != report.PingPong {
		t.Errorf("%+v, %v", d.Measures, err)
	}
}

// FuzzLines reads lines that a hostile end could write.
func FuzzLines(f *testing.F) {
	f.Add("{}\n")
	f.Add(`{"weft_bench":1,"session":"x","role":"sink","cpu":-5}` + "\n" + `{"op":"send","traffic":{"mode":1,"payloads":[64],"flows":1}}`)
	f.Fuzz(func(t *testing.T, s string) {
		in := newLines(strings.NewReader(s))
		for range 4 {
			var h hello
			var q request
			if in.read(&h) != nil || in.read(&q) != nil {
				return
			}
			if q.Traffic != nil && q.Traffic.Check() == nil && q.Traffic.Largest() > load.MaxPayload {
				t.Errorf("%+v passed", q.Traffic)
			}
		}
	})
}
