package plane

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

// TestForwardingIsGivenBack has the feature of a link turned on, found by the next process, given back by a
// cleanup, and respected where somebody turned it off.
func TestForwardingIsGivenBack(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	netns.EtherLink(t, "eth1", 1500, "198.51.100.1/24")
	dir := filepath.Join(t.TempDir(), "state")
	file := filepath.Join(dir, ForwardingFile)
	open := func(word string) *forwarder { return newForwarder(k, word, dir, slog.New(slog.DiscardHandler)) }
	is := func(what, link string, want bool) {
		t.Helper()
		if on, err := forwards(k, link); err != nil || on != want {
			t.Fatalf("%s: %s is on: %v, %v", what, link, on, err)
		}
	}
	netns.Command(t, "ethtool", "-K", "eth1", "gro", "on")

	f := open(ForwardingAuto)
	f.tend("eth0")
	is("a veth without GRO", "eth0", false)
	netns.Command(t, "ethtool", "-K", "eth0", "gro", "on")
	f.tend("eth0")
	is("a veth with GRO", "eth0", true)
	if s := f.says(); !strings.Contains(s, "turned") {
		t.Errorf("it says %q", s)
	}

	next := open(ForwardingAuto) // the next process
	next.tend("eth0")
	is("after a restart", "eth0", true)
	netns.Command(t, "ethtool", "-K", "eth0", "gro", "off")
	next.tend("eth0")
	is("after a restart, GRO goes", "eth0", false)
	netns.Command(t, "ethtool", "-K", "eth0", "gro", "on")
	next.tend("eth0")
	is("and comes again", "eth0", true)
	what, err := GiveBack(dir, true)
	if err != nil || !strings.Contains(what, "eth0") {
		t.Errorf("dry run: %q, %v", what, err)
	}
	is("dry run", "eth0", true)
	if what, err = GiveBack(dir, false); err != nil || !strings.Contains(what, "eth0") {
		t.Errorf("cleanup: %q, %v", what, err)
	}
	is("cleanup", "eth0", false)
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the note stays: %v", err)
	}
	if what, err = GiveBack(dir, false); err != nil || what != "" {
		t.Errorf("second cleanup: %q, %v", what, err)
	}

	f = open(ForwardingOn)
	f.tend("eth0")
	is("word on", "eth0", true)
	f.tend("eth1") // the underlay is another link
	is("former underlay", "eth0", false)
	is("underlay", "eth1", true)
	open(ForwardingOff).tend("eth1")
	is("word off", "eth1", false)

	f = open(ForwardingOn)
	f.tend("eth1")
	netns.Command(t, "ethtool", "-K", "eth1", kernel.Forwarding, "off")
	f.tend("eth1")
	is("off means off", "eth1", false)
	open(ForwardingAuto).tend("eth1")
	is("off means off after a restart", "eth1", false)
	netns.Command(t, "ethtool", "-K", "eth1", kernel.Forwarding, "on")
	f = open(ForwardingAuto)
	f.tend("eth1")
	is("on again by somebody", "eth1", true)
	if s := f.says(); s != "" {
		t.Errorf("what somebody turned on is his: %q", s)
	}
	netns.Command(t, "ethtool", "-K", "eth1", kernel.Forwarding, "off")
	f.tend("eth1")
	is("off again", "eth1", false)
	open(ForwardingOn).tend("eth1")
	is("asked for anew", "eth1", true)
	netns.Command(t, "ip", "link", "del", "eth1")
	netns.EtherLink(t, "eth1", 1500, "198.51.100.1/24")
	f = open(ForwardingAuto)
	f.tend("eth1")
	is("another link of that name", "eth1", false)

	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := GiveBack(dir, false); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a note that does not parse: %v", err)
	}
}

// forwards says whether the feature of a link is on.
func forwards(k *kernel.Kernel, link string) (bool, error) {
	dev, err := k.Device(link)
	if err != nil {
		return false, err
	}
	on, err := k.Features(dev.Index)
	if err != nil {
		return false, err
	}
	return on[0][kernel.Forwarding], nil
}

// TestForwardingWithoutFeature has a link and a state directory that cannot do what is asked.
func TestForwardingWithoutFeature(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	dev, err := k.Device("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.SetFeature(dev.Index, "rx-nothing", true); err == nil ||
		!strings.Contains(err.Error(), "rx-nothing") {
		t.Errorf("a feature that is not: %v", err)
	}
	noDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	f := newForwarder(k, ForwardingOn, noDir, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		f.tend("eth0")
	}
	if on, err := forwards(k, "eth0"); err != nil || on {
		t.Errorf("turned on (%v, %v) without a note of it", on, err)
	}
	if !strings.Contains(f.says(), "not to be had") ||
		strings.Count(log.String(), "event=receive_joining ") != 1 {
		t.Errorf("it says %q and logs:\n%s", f.says(), log.String())
	}
}
