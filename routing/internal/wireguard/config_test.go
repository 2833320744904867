package wireguard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func key(n byte) PublicKey { return PublicKey{n} }

func peer(n byte, edit ...func(*Peer)) Peer {
	p := Peer{
		Key: key(n), Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 51820),
		AllowedIPs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, n, 0}), 24)},
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

// say is a configuration in short: the port, then -KEY for a peer that goes, and KEY for one that is set,
// with "at" if its endpoint is, "keepalive" if that is all.
func say(c wgtypes.Config) string {
	var words []string
	if c.PrivateKey != nil {
		words = append(words, "key")
	}
	if c.ListenPort != nil {
		words = append(words, fmt.Sprint("port ", *c.ListenPort))
	}
	for _, p := range c.Peers {
		switch {
		case p.Remove:
			words = append(words, fmt.Sprint("-", p.PublicKey[0]))
		case p.UpdateOnly:
			words = append(words, fmt.Sprint(p.PublicKey[0], " keepalive ", *p.PersistentKeepaliveInterval))
		case p.Endpoint != nil:
			words = append(words, fmt.Sprint(p.PublicKey[0], " at ", p.Endpoint))
		default:
			words = append(words, fmt.Sprint(p.PublicKey[0]))
		}
	}
	return strings.Join(words, ", ")
}

func TestDifference(t *testing.T) {
	moved := func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("[2001:db8::2]:7") }
	preshared := func(p *Peer) { p.Preshared = newSecret(wgtypes.Key{9}) }
	of := func(ps ...Peer) Config { return Config{Port: 7, Peers: ps} }
	elsewhere := of(peer(1))
	elsewhere.Local4 = netip.MustParseAddr("192.0.2.99")
	for want, c := range map[string]struct {
		have, want Config
		all        bool
		fresh      []byte
	}{
		"":                     {of(peer(1), peer(2)), of(peer(2), peer(1)), false, nil},
		"-1":                   {of(peer(1), peer(2)), of(peer(2)), false, nil},
		"2 at 192.0.2.2:51820": {of(peer(1)), of(peer(1), peer(2)), false, []byte{2}},
		// A peer whose key changed is another peer.
		"-1, 3 at 192.0.2.1:51820": {of(peer(1)), of(peer(1, func(p *Peer) { p.Key = key(3) })), false, []byte{3}},
		"2 at [2001:db8::2]:7":     {of(peer(1), peer(2)), of(peer(1), peer(2, moved)), false, nil},
		// The endpoint of the record is what it was: the one that was learnt stays.
		"2":           {of(peer(1), peer(2)), of(peer(1), peer(2, preshared)), false, nil},
		"key, port 7": {of(peer(1)), of(peer(1)), true, nil},
		"port 7":      {of(peer(1)), elsewhere, false, nil},
	} {
		got, fresh := difference(c.have, c.want, c.all)
		var keys []byte
		for _, p := range fresh {
			keys = append(keys, p.Key[0])
		}
		if say(got) != want || !slices.Equal(keys, c.fresh) || empty(got) != (want == "") {
			t.Errorf("got %q, fresh %v; want %q, %v", say(got), keys, want, c.fresh)
		}
	}
}

func TestText(t *testing.T) {
	next, _ := difference(Config{Peers: []Peer{peer(1)}}, Config{Port: 7, Peers: []Peer{peer(2)}}, true)
	zeros := strings.Repeat("00", 31)
	want := "private_key=00" + zeros + "\nlisten_port=7\npublic_key=01" + zeros +
		"\nremove=true\npublic_key=02" + zeros +
		"\npreshared_key=00" + zeros +
		"\nendpoint=192.0.2.2:51820\nreplace_allowed_ips=true\nallowed_ip=10.5.2.0/24\n" +
		"persistent_keepalive_interval=0\n"
	if got := text(next); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestParse(t *testing.T) {
	zeros := strings.Repeat("00", 31)
	d, err := parse("private_key=ff\nlisten_port=7\npublic_key=02" + zeros +
		"\npreshared_key=ee\nendpoint=[2001:db8::1]:7\n" +
		"last_handshake_time_sec=0\nlast_handshake_time_nsec=0\nrx_bytes=5\ntx_bytes=6\nallowed_ip=10.5.2.0/24\n" +
		"public_key=01" + zeros + "\nlast_handshake_time_sec=9\nlast_handshake_time_nsec=8\n")
	if err != nil || len(d.Peers) != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	a, b := d.Peers[0], d.Peers[1]
	if a.PublicKey[0] != 2 || !a.LastHandshakeTime.IsZero() || a.ReceiveBytes != 5 || a.TransmitBytes != 6 ||
		a.Endpoint.String() != "[2001:db8::1]:7" || len(a.AllowedIPs) != 1 ||
		a.AllowedIPs[0].String() != "10.5.2.0/24" ||
		b.PublicKey[0] != 1 || b.LastHandshakeTime.UnixNano() != 9_000_000_008 {
		t.Errorf("%+v", d)
	}
	for _, bad := range []string{"public_key=zz\n", "public_key=01" + zeros + "\nrx_bytes=x\n"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// fake is a device that remembers what it was told.
type fake struct {
	device wgtypes.Device
	told   []string
	err    error
}

func (f *fake) Device(string) (*wgtypes.Device, error) { return &f.device, nil }
func (f *fake) Close() error                           { return nil }
func (f *fake) ConfigureDevice(_ string, c wgtypes.Config) error {
	if f.err == nil {
		f.told = append(f.told, say(c))
	}
	return f.err
}

func keys(ns ...byte) (ps []wgtypes.Peer) {
	for _, n := range ns {
		ps = append(ps, wgtypes.Peer{PublicKey: key(n)})
	}
	return ps
}

// TestDevice tells a device that an earlier process left what it is to have.
func TestDevice(t *testing.T) {
	f := &fake{device: wgtypes.Device{Peers: keys(1, 9)}}
	d := &Device{name: "flannel-wg", control: f}
	c := Config{Private: NewPrivateKey(), Port: 7,
		Peers: []Peer{peer(1), peer(2, func(p *Peer) { p.Keepalive = 25 })}}
	for i, step := range []struct {
		edit func()
		err  error
		told string // "" for nothing
	}{
		{func() {}, nil, "key, port 7, -9, 1 at 192.0.2.1:51820, 2 at 192.0.2.2:51820"},
		{func() {}, nil, ""},
		{func() { c.Peers = []Peer{peer(1, func(p *Peer) { p.Keepalive = 5 })} }, nil, "-2, 1"},
		{func() { c.Port = 8; f.err = fmt.Errorf("bind: %w", unix.EADDRINUSE) }, unix.EADDRINUSE, ""},
		// What of that was done is not known: the device is asked, and told all again.
		{func() { f.err = nil }, nil, "key, port 8, -9, 1 at 192.0.2.1:51820"},
	} {
		f.told = nil
		step.edit()
		err := d.Configure(c)
		if got := strings.Join(f.told, "; "); got != step.told || !errors.Is(err, step.err) {
			t.Errorf("step %d: told %q, want %q; %v, want %v", i, got, step.told, err, step.err)
		}
	}
}

// TestGreetings: handshakes begin at once with the peers of a new device and with one whose key changed, but
// for those with a keepalive, which begin one by themselves.
func TestGreetings(t *testing.T) {
	f := &fake{device: wgtypes.Device{Peers: keys(1)}}
	d := &Device{name: "flannel-wg", control: f}
	kept := peer(4, func(p *Peer) { p.Keepalive = 25 })
	other := peer(2, func(p *Peer) { p.Key = key(7) })
	const greet2, greet7 = "2 keepalive 1s; 2 keepalive 0s", "7 keepalive 1s; 7 keepalive 0s"
	for i, step := range []struct {
		peers []Peer
		want  string
	}{
		{nil, ""}, // the first set of a node that has just started
		{[]Peer{peer(1), peer(2), kept}, greet2},
		{[]Peer{peer(1), peer(2), peer(3), kept}, ""},
		{[]Peer{peer(1), other, peer(3), kept}, greet7},
	} {
		f.told = nil
		if i == 1 {
			d.have.Peers = []Peer{peer(1)} // a device has peers, whoever made it
		}
		if err := d.Configure(Config{Port: 7, Peers: step.peers}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(f.told[1:], "; "); got != step.want {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}

// TestSilence: a session in which nothing passes ends, and that is no fault; that bytes leave without one is.
func TestSilence(t *testing.T) {
	begin, state := time.Now(), calls{}
	for _, c := range []struct {
		after  time.Duration
		shaken time.Duration // after begin; -1 for never
		tx     uint64
		want   Silence
	}{
		{0, -1, 0, Heard},
		{0, -1, 148, NeverAnswered},
		{0, 0, 148, Heard},
		{170 * time.Second, 0, 5000, Heard}, // by the end that does not begin handshakes
		{200 * time.Second, 0, 5100, Heard},
		{time.Hour, 0, 5100, Heard},
		{time.Hour + time.Second, 0, 5248, AnsweredBefore}, // a handshake
		{time.Hour + 2*time.Minute, 0, 5248, AnsweredBefore},
		{time.Hour + 4*time.Minute, 0, 5248, Heard}, // nobody sends any more
		{2 * time.Hour, 0, 5396, AnsweredBefore},
		{2*time.Hour + time.Second, 2 * time.Hour, 5500, Heard},
		{3 * time.Hour, 2 * time.Hour, 9000, Heard}, // all that is known is that it was sent since
		{3*time.Hour + time.Second, 2 * time.Hour, 9148, AnsweredBefore},
	} {
		now := begin.Add(c.after)
		ps := []PeerState{{Key: key(1), Tx: c.tx}}
		if c.shaken >= 0 {
			ps[0].Handshake = begin.Add(c.shaken)
		}
		state.note(ps, now)
		if got := ps[0].Silence(now); got != c.want {
			t.Errorf("after %v: %v, want %v", c.after, got, c.want)
		}
	}
}
