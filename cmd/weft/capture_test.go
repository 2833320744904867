package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
)

func TestCapturePrintsALineAPacket(t *testing.T) {
	n := &node{}
	socket := start(t, n)
	out, stderr, err := weft(t, "capture", "--control-socket", socket, "--count", "2", "--peer", "b",
		"--snaplen", "128", "--duration", "90s", "--dropped", "tcp", "or", "icmp")
	if err != nil {
		t.Fatal(err)
	}
	want := "13:00:00.123456 out 10.42.1.5:40000 > 10.42.2.7:80 tcp [S], 40 bytes (45 packets of up to 1398), " +
		"to b (10.0.0.2)\n" +
		"13:00:00.124456 in  10.42.2.7 > 10.42.1.5 icmp echo request, 28 bytes, from (203.0.113.9), DROPPED " +
		"unknown_peer: would be admitted by the sender's lease\n"
	if out != want || !strings.Contains(stderr, "captured") {
		t.Errorf("got:\n%s\n%s\nwant:\n%s", out, stderr, want)
	}
	if want := (control.CaptureRequest{Dropped: true, Peer: "10.42.2.0/24", Filter: "tcp or icmp", Count: 2,
		Seconds: 90, SnapLen: 128}); n.captured != want {
		t.Errorf("asked for %+v, want %+v", n.captured, want)
	}
}

func TestCaptureJSON(t *testing.T) {
	out, _, err := weft(t, "capture", "--control-socket", start(t, &node{}), "--count", "2", "--json")
	if err != nil {
		t.Fatal(err)
	}
	type packet struct {
		SchemaVersion            int `json:"schema_version"`
		Direction, Peer, Dropped string
		DestinationPort          int `json:"destinationPort"`
	}
	var got []packet
	for line := range strings.Lines(out) {
		var p packet
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, p)
	}
	if len(got) != 2 || got[0].SchemaVersion != 1 || got[0].DestinationPort != 80 || got[0].Peer != "b" ||
		got[1].Dropped != "unknown_peer" || got[1].Direction != "in" {
		t.Errorf("got %+v", got)
	}
}

// TestCaptureWritesWhatOthersRead has a file, and standard output, which are the same.
func TestCaptureWritesWhatOthersRead(t *testing.T) {
	socket, file := start(t, &node{}), filepath.Join(t.TempDir(), "x.pcapng")
	if _, _, err := weft(t, "capture", "--control-socket", socket, "--count", "2", "-w", file); err != nil {
		t.Fatal(err)
	}
	out, _, err := weft(t, "capture", "--control-socket", socket, "--count", "2", "-w", "-")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		// it has what pods say to one another
		t.Errorf("%v %v", info, err)
	}
	b, err := os.ReadFile(file)
	if err != nil || string(b) != out {
		t.Fatalf("the file has %d bytes, standard output %d: %v", len(b), len(out), err)
	}
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"45", "dropped: unknown_peer"} {
		_, _, opts, err := r.ReadPacketDataWithOptions()
		if err != nil || !strings.Contains(strings.Join(opts.Comments, "\n"), want) {
			t.Errorf("packet %d: %v %q, want %q", i, err, opts.Comments, want)
		}
	}
}

func TestCaptureRefuses(t *testing.T) {
	socket := start(t, &node{err: control.ErrNotFound})
	for args, usage := range map[string]bool{
		"capture hots 10.1.1.5": true, "capture --snaplen 70000": true, "capture --duration -3s": true,
		"capture --json -w x":   true,
		"capture --peer nobody": false,
	} {
		_, _, err := weft(t, append(strings.Fields(args), "--control-socket", socket)...)
		if err == nil || errors.Is(err, cli.ErrUsage) != usage {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestCaptureFindsItsPeer has the words that weft peers takes too. weftd gets the subnet, which no two nodes
// have.
func TestCaptureFindsItsPeer(t *testing.T) {
	n := &node{}
	socket := start(t, n)
	for _, word := range []string{"WEB", "web.example", "3f2a41", "10.0.0.4", "10.42.4.7", "10.42.4.0/24"} {
		if _, _, err := weft(t, "capture", "--count", "2", "--control-socket", socket, "--peer", word); err !=
			nil || n.captured.Peer != "10.42.4.0/24" {
			t.Errorf("%s: %v, asked for %q", word, err, n.captured.Peer)
		}
	}
}
