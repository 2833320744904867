package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/netns"
)

// twoHosts makes two hosts that are joined by one cable, each with an address of each family.
func twoHosts(t *testing.T) (a, b Endpoint) {
	t.Helper()
	netns.Need(t)
	a, b = Endpoint{Name: "a", Addr: netip.MustParseAddr("192.0.2.1")},
		Endpoint{Name: "b", Addr: netip.MustParseAddr("192.0.2.2")}
	for _, e := range []*Endpoint{&a, &b} {
		ns := netns.New(t, e.Name)
		e.NS = ns
	}
	err := a.NS.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.NS.FD()),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []Endpoint{a, b} {
		nl := e.NS.Netlink()
		l, err := nl.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := nl.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		for _, cidr := range []string{e.Addr.String() + "/24", v6(e).Addr.String() + "/64"} {
			addr, err := netlink.ParseAddr(cidr)
			if err != nil {
				t.Fatal(err)
			}
			if addr.IP.To4() == nil {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := nl.AddrAdd(l, addr); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range []Endpoint{a, b} { // before it has noticed the cable, the kernel drops
		for running := false; !running; time.Sleep(time.Millisecond) {
			l, err := e.NS.Netlink().LinkByName("eth0")
			if err != nil || t.Context().Err() != nil {
				t.Fatal(err, t.Context().Err())
			}
			running = l.Attrs().OperState == netlink.OperUp
		}
	}
	return a, b
}

func v6(e Endpoint) Endpoint {
	e.Addr = netip.MustParseAddr("2001:db8::" + e.Addr.String()[len("192.0.2."):])
	return e
}

// cut takes b's end of the cable down, so that whatever a sends from then on is lost.
func cut(t *testing.T, b Endpoint) {
	t.Helper()
	l, err := b.NS.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.NS.Netlink().LinkSetDown(l); err != nil {
		t.Fatal(err)
	}
}

func TestEcho(t *testing.T) {
	a, b := twoHosts(t)
	for _, ends := range [][]Endpoint{{a, b}, {v6(a), v6(b)}} {
		got, err := Echo(t.Context(), ends, EchoPlan{Count: 5, Interval: 2 * time.Millisecond,
			Wait: await.Patience})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 {
			t.Fatalf("%d results, want 2: %v", len(got), got)
		}
		for _, r := range got {
			if r.Sent != 5 || r.Received != 5 || len(r.RTT) != 5 || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestEchoCountsWhatIsLost(t *testing.T) {
	a, b := twoHosts(t)
	cut(t, b)
	got, err := Echo(t.Context(), []Endpoint{a, b},
		EchoPlan{Count: 3, Interval: 2 * time.Millisecond, Wait: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got {
		if r.Sent != 3 || r.Received != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestPacedCountsLoss(t *testing.T) {
	a, b := twoHosts(t)
	p, err := StartPaced(t.Context(), PacedPlan{From: a, To: b, Rate: 2000, Count: 500,
		Wait: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if sent, _ := p.Progress(); sent >= 100 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cut(t, b)
	at, _ := p.Progress()
	r := p.Wait()
	t.Log(r)
	if r.Sent != 500 || r.Received < 100 || r.Received > at+5 || r.Lost != r.Sent-r.Received {
		t.Errorf("cut near packet %d: %s", at, r)
	}
	if len(r.Outages) != 1 || r.Outages[0].First != r.Received || r.Outages[0].Packets != r.Lost {
		t.Errorf("outages %+v", r.Outages)
	}
	if r.Reordered != 0 || r.Duplicates != 0 {
		t.Errorf("a plain cable does not reorder: %s", r)
	}
}

func TestPacedCountsDuplicatesAndOrder(t *testing.T) {
	a, b := twoHosts(t)
	p, err := newPaced(PacedPlan{From: a, To: b, Count: 8, Wait: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	go p.receive()
	// Of what arrives, 2 overtakes 1, 3 comes three times, 5 and 6 never come, and strays are to be ignored.
	datagrams := [][]byte{{1, 2, 3}, make([]byte, 64)}
	binary.BigEndian.PutUint64(datagrams[1], 1<<63)
	for _, i := range []int{0, 2, 1, 3, 3, 3, 4, 7} {
		d := make([]byte, 64)
		binary.BigEndian.PutUint64(d, uint64(i))
		datagrams = append(datagrams, d)
	}
	for _, d := range datagrams {
		if _, err := p.out.WriteTo(d, p.in.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	p.progress.Store(8)
	close(p.sentAll)
	r := p.Wait()
	if r.Sent != 8 || r.Received != 6 || r.Lost != 2 || r.Duplicates != 2 || r.Reordered != 1 {
		t.Errorf("%s", r)
	}
	if len(r.Outages) != 1 || r.Outages[0].First != 5 || r.Outages[0].Packets != 2 {
		t.Errorf("outages %+v", r.Outages)
	}
}

func TestPacedEndsWithItsContext(t *testing.T) {
	a, b := twoHosts(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := StartPaced(ctx, PacedPlan{From: a, To: b, Rate: 1000, Count: 1 << 20, Wait: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if r := p.Wait(); r.Sent >= 1<<20 {
		t.Errorf("%s", r)
	}
}

func TestStream(t *testing.T) {
	a, b := twoHosts(t)
	for _, size := range []int64{1, streamChunk, 10<<20 + 7} {
		r, err := Stream(t.Context(), StreamPlan{From: v6(a), To: v6(b), Bytes: size, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.Received != size || r.SentSum != r.ReceivedSum || r.SentSum == [32]byte{} {
			t.Errorf("%d bytes: %+v", size, r)
		}
	}
	r, err := Stream(t.Context(), StreamPlan{From: a, To: b, Duration: 250 * time.Millisecond})
	if err != nil || r.Received == 0 || r.BitsPerSecond() == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Stream(t.Context(), StreamPlan{From: a, To: b}); err == nil {
		t.Error("a stream without end was accepted")
	}
}

func TestStreamEndsWithItsContext(t *testing.T) {
	a, b := twoHosts(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(30*time.Millisecond, func() { cancel(cause) })
	if _, err := Stream(ctx, StreamPlan{From: a, To: b, Duration: time.Hour}); !errors.Is(err, cause) {
		t.Errorf("%v, want %v", err, cause)
	}
}

func TestQuantile(t *testing.T) {
	ms := func(n ...int) (out []time.Duration) {
		for _, v := range n {
			out = append(out, time.Duration(v)*time.Millisecond)
		}
		return out
	}
	for _, c := range []struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{ms(7), 0.99, 7 * time.Millisecond},
		{ms(3, 1, 2), 0.5, 2 * time.Millisecond},
		{ms(4, 3, 2, 1), 0.5, 2 * time.Millisecond},
		{ms(1, 2, 3, 4), 0, time.Millisecond},
		{ms(1, 2, 3, 4), 1, 4 * time.Millisecond},
		{ms(1, 2, 3, 4), 0.99, 4 * time.Millisecond},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %v is %s, want %s", c.q, c.values, got, c.want)
		}
	}
}
