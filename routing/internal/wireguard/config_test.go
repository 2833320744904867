package wireguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func key(n byte) PublicKey { return PublicKey{n} }

func peer(n byte, edit ...func(*Peer)) Peer {
	p := Peer{Key: key(n), Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, n}), 51820),
		AllowedIPs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 5, n, 0}), 24)}}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func TestPlan(t *testing.T) {
	moved := func(p *Peer) { p.Endpoint = netip.MustParseAddrPort("[2001:db8::2]:7") }
	preshared := func(p *Peer) { p.Preshared = newSecret([KeyLen]byte{9}) }
	say := func(c Changes) string {
		var b strings.Builder
		for _, k := range c.Remove {
			_, _ = fmt.Fprintf(&b, "-%d ", k[0])
		}
		for _, p := range c.Set {
			_, _ = fmt.Fprintf(&b, "%d new=%v move=%v ", p.Key[0], p.New, p.Move)
		}
		return strings.TrimSpace(b.String())
	}
	for want, c := range map[string][2][]Peer{
		"":                     {{peer(1), peer(2)}, {peer(2), peer(1)}},
		"-1":                   {{peer(1), peer(2)}, {peer(2)}},
		"2 new=true move=true": {{peer(1)}, {peer(1), peer(2)}},
		// Its subnet has another key, and so is another peer.
		"-1 3 new=true move=true": {{peer(1)}, {peer(1, func(p *Peer) { p.Key = key(3) })}},
		"2 new=false move=true":   {{peer(1), peer(2)}, {peer(1), peer(2, moved)}},
		// The endpoint of the record is what it was: the one that was learnt stays.
		"2 new=false move=false": {{peer(1), peer(2)}, {peer(1), peer(2, preshared)}},
	} {
		if got := say(Plan(c[0], c[1])); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestText(t *testing.T) {
	text := Plan([]Peer{peer(1)}, []Peer{peer(2)}).text()
	want := "public_key=01" + strings.Repeat("00", 31) + "\nremove=true\npublic_key=02" + strings.Repeat("00", 31) + "\npreshared_key=" + strings.Repeat("0", 64) +
		"\nendpoint=192.0.2.2:51820\nreplace_allowed_ips=true\nallowed_ip=10.5.2.0/24\npersistent_keepalive_interval=0\n"
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestState(t *testing.T) {
	ps, err := parseState("private_key=ff\nlisten_port=7\npublic_key=" + key(2).hex() + "\npreshared_key=ee\nendpoint=[2001:db8::1]:7\nlast_handshake_time_sec=0\nlast_handshake_time_nsec=0\n" +
		"rx_bytes=5\ntx_bytes=6\nallowed_ip=10.5.2.0/24\npublic_key=" + key(1).hex() + "\nlast_handshake_time_sec=9\nlast_handshake_time_nsec=8\n")
	if err != nil || len(ps) != 2 || ps[0].Key != key(1) || ps[0].Handshake.UnixNano() != 9_000_000_008 || !ps[1].Handshake.IsZero() || ps[1].Rx != 5 || ps[1].Tx != 6 ||
		ps[1].Endpoint != netip.MustParseAddrPort("[2001:db8::1]:7") || len(ps[1].AllowedIPs) != 1 {
		t.Errorf("%+v, %v", ps, err)
	}
	for _, bad := range []string{"public_key=zz\n", "public_key=" + key(1).hex() + "\nrx_bytes=-1\n"} {
		if _, err := parseState(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestStoreKeyFollowsALink has a new key take the place of the one that a link leads to, and the link stay.
func TestStoreKeyFollowsALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "wireguard.key")
	first, second := NewPrivateKey(), NewPrivateKey()
	err := StoreKey(file, first)
	if err = errors.Join(err, os.Symlink("elsewhere", link)); err == nil {
		err = StoreKey(link, second)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, link} {
		if key, _, err := LoadKey(f); err != nil || key != second {
			t.Errorf("%s has another key, %v", f, err)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != "elsewhere" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// TestSecretsDoNotPrint prints a private key in every way that logs, statuses and errors do.
func TestSecretsDoNotPrint(t *testing.T) {
	s := NewPrivateKey()
	c := struct {
		Config
		inside Secret // which fmt reads without asking for its methods
	}{Config{Private: s, Peers: []Peer{{Preshared: s}}}, s}
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		_, _ = fmt.Fprintf(&all, verb+" "+verb+" "+verb, s, &s, c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(b)
	_, bad := ParseSecret(s.base64() + "x")
	all.WriteString(bad.Error())
	for _, form := range []string{s.base64(), s.Hex(), strings.Trim(fmt.Sprint(s.bytes()), "[]"), s.base64()[:20]} {
		if strings.Contains(all.String(), form) {
			t.Errorf("%q is in %s", form, all.String())
		}
	}
}

func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "wireguard.key")
	made, fresh, err := LoadKey(file)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	again, fresh, err := LoadKey(file)
	if err != nil || fresh || again != made {
		t.Fatal(fresh, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if public, err := made.Public(); err != nil || public == (PublicKey{}) {
		t.Error(public, err)
	}
	if err := os.WriteFile(file+".new", []byte("what a crash left"), 0o644); err != nil {
		t.Fatal(err)
	}
	next := NewPrivateKey()
	if err := StoreKey(file, next); err != nil {
		t.Fatal(err)
	}
	if got, _, err := LoadKey(file); err != nil || got != next {
		t.Error(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		content string
		mode    os.FileMode
		want    []string
	}{
		{string(good), 0o640, []string{"mode 0640", "delete it"}},
		{string(good), 0o604, []string{"mode 0604"}},
		{string(good[:20]), 0o600, []string{"it is no key", "delete the file"}},
		{"", 0o600, []string{"has 0"}},
		{strings.Repeat("A", 43) + "=", 0o600, []string{"zeros"}},
		{strings.TrimSpace(string(good)), 0o400, nil}, // as flannel writes it
	} {
		if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(c.content), 0o600), os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		got, _, err := LoadKey(file)
		if c.want == nil {
			if err != nil || got != next {
				t.Errorf("%q: %v", c.content, err)
			}
			continue
		}
		for _, w := range append(c.want, file) {
			if !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), string(good[:20])) {
				t.Errorf("%q, mode %o: %v, want %q", c.content, c.mode, err, w)
			}
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != c.content {
			t.Errorf("the file was changed: %q, %v", b, err)
		}
	}
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKey(file); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a directory: %v", err)
	}
}

// fakeKernel is a device as the kernel has it, told by wgctrl.
type fakeKernel struct {
	device wgtypes.Device
	told   []wgtypes.Config
	err    error
}

func (f *fakeKernel) Device(string) (*wgtypes.Device, error) { return &f.device, nil }
func (f *fakeKernel) Close() error                           { return nil }
func (f *fakeKernel) ConfigureDevice(_ string, c wgtypes.Config) error {
	if f.err != nil {
		return f.err
	}
	f.told = append(f.told, c)
	for _, p := range c.Peers {
		f.device.Peers = slices.DeleteFunc(f.device.Peers, func(h wgtypes.Peer) bool { return h.PublicKey == p.PublicKey && p.Remove })
	}
	return nil
}

// TestKernelDevice tells a device that an earlier process left what it is to have: sessions of peers that stay are kept.
func TestKernelDevice(t *testing.T) {
	f := &fakeKernel{device: wgtypes.Device{Peers: []wgtypes.Peer{{PublicKey: wgtypes.Key(key(1))}, {PublicKey: wgtypes.Key(key(9))}}}}
	k := &Kernel{name: "flannel-wg", control: f}
	c := Config{Private: NewPrivateKey(), Port: 7, Peers: []Peer{peer(1), peer(2)}}
	nobody := func(PublicKey) bool { return false }
	if changed, err := k.Configure(c, nobody); err != nil || !changed {
		t.Fatal(changed, err)
	}
	first := f.told[0]
	if first.ReplacePeers || first.PrivateKey == nil || *first.ListenPort != 7 || len(first.Peers) != 3 || !first.Peers[0].Remove || first.Peers[0].PublicKey != wgtypes.Key(key(9)) ||
		first.Peers[1].Remove || !first.Peers[1].ReplaceAllowedIPs || first.Peers[1].Endpoint.String() != "192.0.2.1:51820" || first.Peers[1].AllowedIPs[0].String() != "10.5.1.0/24" {
		t.Errorf("%+v", first)
	}
	if changed, err := k.Configure(c, nobody); err != nil || changed || len(f.told) != 1 {
		t.Error("the same again was told again", changed, err)
	}
	c.Peers = []Peer{peer(1, func(p *Peer) { p.Keepalive = 5 })}
	if _, err := k.Configure(c, nobody); err != nil {
		t.Fatal(err)
	}
	if last := f.told[1]; last.PrivateKey != nil || last.ListenPort != nil || len(last.Peers) != 2 || !last.Peers[0].Remove || last.Peers[1].Endpoint != nil || last.Peers[1].PersistentKeepaliveInterval.Seconds() != 5 {
		t.Errorf("%+v", last)
	}
	f.err = errors.New("no")
	c.Port = 8
	if _, err := k.Configure(c, nobody); !errors.Is(err, f.err) {
		t.Error(err)
	}
	f.err = nil
	if changed, err := k.Configure(c, nobody); err != nil || !changed || f.told[2].PrivateKey == nil {
		t.Error("after a failure not all is said again", err)
	}
}

// TestKernelGreets: a handshake begins with peers that a device did not have and that are named, and their keepalive is what it was.
func TestKernelGreets(t *testing.T) {
	f := &fakeKernel{device: wgtypes.Device{Peers: []wgtypes.Peer{{PublicKey: wgtypes.Key(key(1))}}}}
	k := &Kernel{name: "flannel-wg", control: f}
	kept := peer(4, func(p *Peer) { p.Keepalive = 25 }) // begins one by itself
	c := Config{Private: NewPrivateKey(), Port: 7, Peers: []Peer{peer(1), peer(2), peer(3), kept}}
	named := func(k PublicKey) bool { return k != key(3) }
	for range 2 { // the second has nothing new
		if _, err := k.Configure(c, named); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.told) != 3 {
		t.Fatalf("told %d times: %+v", len(f.told), f.told)
	}
	for i, keepalive := range []time.Duration{time.Second, 0} {
		ps := f.told[1+i].Peers
		if len(ps) != 1 || ps[0].PublicKey != wgtypes.Key(key(2)) || !ps[0].UpdateOnly || *ps[0].PersistentKeepaliveInterval != keepalive {
			t.Errorf("peers %+v, want the second with keepalive %v", ps, keepalive)
		}
	}
}
