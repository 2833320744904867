package pcapng

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
)

// ping is an ICMP echo request from 10.1.1.5 to 10.1.2.7.
var ping = []byte{0x45, 0, 0, 29, 0, 1, 0x40, 0, 64, 1, 0x23, 0xc8, 10, 1, 1, 5, 10, 1, 2, 7, 8, 0, 0xf6, 0xfd, 0, 1, 0, 1, 0}

func written(t testing.TB) ([]byte, []Packet) {
	t.Helper()
	at := time.Unix(1789000000, 123456789)
	want := []Packet{
		{Time: at, Direction: Outbound, Comments: []string{"to b (192.0.2.2)"}, Length: len(ping), Data: ping},
		{Time: at.Add(time.Second), Direction: Inbound, Comments: []string{"from b (192.0.2.2)", "dropped: foreign_source"}, Length: 9000, Data: ping[:27]},
		{Time: at.Add(time.Minute), Length: 0, Data: []byte{}},
	}
	var b bytes.Buffer
	w, err := NewWriter(&b, "weft", Interface{Name: "inner", Description: "as pods see them", Filter: "icmp", SnapLen: 65535})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range want {
		if err := w.Packet(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Statistics(at, Statistics{Received: 3, Missed: 1 << 33}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), want
}

func TestIsReadAsItWasWritten(t *testing.T) {
	file, want := written(t)
	r := NewReader(bytes.NewReader(file))
	var got []Packet
	var raw []byte
	var names []string
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b.Raw...)
		switch {
		case b.Interface != nil:
			names = append(names, b.Interface.Name+" "+b.Interface.Filter)
		case b.Packet != nil:
			b.Packet.Data = bytes.Clone(b.Packet.Data)
			got = append(got, *b.Packet)
		case b.Statistics != nil && *b.Statistics != Statistics{Received: 3, Missed: 1 << 33}:
			t.Errorf("statistics %+v", *b.Statistics)
		}
	}
	for i := range want {
		if len(want[i].Data) == 0 {
			want[i].Data = got[i].Data
		}
	}
	if d := cmp.Diff(want, got); d != "" || !bytes.Equal(raw, file) || strings.Join(names, ",") != "inner icmp" {
		t.Errorf("%s\n%q", d, names)
	}
}

// TestOthersReadIt has gopacket's reader, and tcpdump.
func TestOthersReadIt(t *testing.T) {
	file, want := written(t)
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range want {
		data, ci, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, p.Data) || !ci.Timestamp.Equal(p.Time) || ci.Length != p.Length || !cmp.Equal(opts.Comments, p.Comments) {
			t.Errorf("packet %d: %x %+v %+v", i, data, ci, opts)
		}
	}
	path := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tcpdump", "-n", "-r", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "IP 10.1.1.5 > 10.1.2.7: ICMP echo request, id 1, seq 1") {
		t.Errorf("tcpdump (Debian's tcpdump) does not read it: %v\n%s", err, out)
	}
}

// FuzzReader has damaged files: an error, and no panic.
func FuzzReader(f *testing.F) {
	file, _ := written(f)
	f.Add(file)
	f.Add(file[:len(file)-3])
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	})
}
