package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/test/netns"
)

// collect calls GC with the valid attachments given, as "container/interface".
func (n *node) collect(keys string, valid ...string) error {
	var list []string
	for _, v := range valid {
		id, ifname, _ := strings.Cut(v, "/")
		list = append(list, fmt.Sprintf(`{"containerID":%q,"ifname":%q}`, id, ifname))
	}
	if keys != "" {
		keys += ","
	}
	_, err := n.run("GC", "", "", "", n.conf("1.1.0", "weft", keys+`"cni.dev/valid-attachments":[`+
		strings.Join(list, ",")+`]`))
	return err
}

// Containers have ended without a DEL, and have left everything that they can leave.
func TestGC(t *testing.T) {
	n := newNode(t)
	n.subnet(envDual)
	conf := n.conf("1.1.0", "weft", "")
	kept, lost := n.pod("kept"), n.pod("lost")
	n.must("ADD", kept, "eth0", conf)
	n.must("ADD", kept, "net1", conf)
	n.must("ADD", lost, "eth0", conf)
	second := n.conf("1.1.0", "weft", `"name":"second","delegate":{"bridge":"cni1"}`)
	n.must("ADD", lost, "net1", second)
	for _, id := range []string{"flannels", "stateless", "torn"} {
		n.must("ADD", n.pod(id), "eth0", conf)
	}
	state := func(name string) string { return filepath.Join(n.dir, "state", name) }
	for _, name := range []string{"flannels:eth0", "stateless:eth0", "stateless"} {
		if err := os.Remove(state(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(state("torn:eth0"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.collect("", "kept/eth0", "kept/net1"); err != nil {
		t.Fatal(err)
	}
	want := []string{"10.244.3.2 kept", "10.244.3.3 kept", "fd42:0:0:3::2 kept", "fd42:0:0:3::3 kept"}
	if got := n.reserved("cbr0"); !slices.Equal(got, want) {
		t.Errorf("reserved: %q, want %q", got, want)
	}
	if got, want := n.state(), []string{"kept", "kept:eth0", "kept:net1", "lost:net1"}; !slices.Equal(got, want) {
		t.Errorf("state: %q, want %q", got, want)
	}
	if got := n.reserved("second"); len(got) != 2 {
		t.Errorf("another network's: %q", got)
	}
	if err := n.collect("", "kept/net1"); err != nil { // one interface of a container that lives
		t.Fatal(err)
	}
	if got := n.reserved("cbr0"); len(got) != 2 {
		t.Errorf("reserved: %q", got)
	}
	if err := n.collect(`"name":"second"`); err != nil {
		t.Fatal(err)
	}
	if err := n.collect(""); err != nil {
		t.Fatal(err)
	}
	n.wantClean()
}

// A list that is missing or no list of attachments says nothing of what lives, so nothing is released;
// an empty one says that nothing does.
func TestGCWithoutAList(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	p, bare := n.pod("a"), n.conf("1.1.0", "weft", "")
	n.must("ADD", p, "eth0", bare)
	state := fmt.Sprint(n.state())
	for _, list := range []string{
		"", `null`, `{}`, `"a"`, `[null]`, `[{}]`, `["a"]`, `[{"containerID":"a"}]`, `[{"ifname":"eth0"}]`,
		`[{"containerID":"../a","ifname":"eth0"}]`,
		`[{"containerID":"z","ifname":"eth0"},{"containerID":7,"ifname":"eth0"}]`,
	} {
		conf := bare
		if list != "" {
			conf = n.conf("1.1.0", "weft", `"cni.dev/valid-attachments":`+list)
		}
		if _, err := n.run("GC", "", "", "", conf); code(err) != 7 {
			t.Errorf("list %s: code %d, %v", list, code(err), err)
		}
		if got := fmt.Sprint(n.reserved("cbr0"), n.state(), p.addresses(t, "eth0")); got != "[10.244.3.2 a] "+state+
			" [10.244.3.2/24]" {
			t.Errorf("list %s: left are %s", list, got)
		}
	}
	if _, err := n.run("GC", "", "", "",
		n.conf("1.1.0", "weft", `"cni.dev/attachments":[{"containerID":"a","ifname":"eth0"}]`)); err != nil {
		t.Errorf("under the name of an early text: %v", err)
	}
	if got := n.reserved("cbr0"); len(got) != 1 {
		t.Errorf("left are %q", got)
	}
	if err := n.collect(""); err != nil {
		t.Fatal(err)
	}
	n.wantClean()
}

func TestGCWithoutSubnet(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	conf := n.conf("1.1.0", "weft", "")
	n.must("ADD", n.pod("a"), "eth0", conf)
	if err := os.Remove(filepath.Join(n.dir, "subnet.env")); err != nil {
		t.Fatal(err)
	}
	if err := n.collect(""); err != nil {
		t.Fatal(err)
	}
	n.wantClean()

	n.subnet(env4)
	n.must("ADD", n.pod("b"), "eth0", conf)
	for _, name := range append(n.state(), "../subnet.env") {
		if err := os.Remove(filepath.Join(n.dir, "state", name)); err != nil {
			t.Fatal(err)
		}
	}
	// An address of which only host-local knows cannot be released, and the error says so.
	if err := n.collect(""); err == nil || !strings.Contains(err.Error(), "eth0") ||
		!strings.Contains(err.Error(), "subnet") {
		t.Errorf("got %v", err)
	}
}

// A delegate that knows GC gets the runtime's list, and one fault does not hide another.
func TestGCIsForwarded(t *testing.T) {
	n := newNode(t)
	n.subnet(env4)
	bin := t.TempDir()
	n.path += ":" + bin
	script := `#!/bin/sh
in=$(cat)
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}' ;;
ADD) echo '{"cniVersion":"1.1.0"}' ;;
DEL) echo '{"code":100,"msg":"cannot detach '$CNI_CONTAINERID'"}'; exit 1 ;;
GC) printf %s "$in" >` + bin + `/gc; echo '{"code":101,"msg":"cannot collect"}'; exit 1 ;;
esac
`
	netns.Script(t, filepath.Join(bin, "new"), script)
	const keys = `"delegate":{"type":"new"}`
	for _, id := range []string{"a", "b", "c"} {
		n.must("ADD", n.pod(id), "eth0", n.conf("1.1.0", "weft", keys))
	}
	err := n.collect(keys, "a/eth0")
	for _, want := range []string{"detach", "detach", "cannot collect"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, without %q", err, want)
		}
	}
	if got := n.state(); len(got) != 6 {
		t.Errorf("what could not be detached is forgotten: %q", got)
	}
	got, err := os.ReadFile(bin + "/gc")
	if err != nil || !strings.Contains(string(got),
		`"cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"}]`) ||
		!strings.Contains(string(got), `"name":"cbr0"`) {
		t.Errorf("the delegate was told %s, %v", got, err)
	}
}
