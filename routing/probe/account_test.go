package probe

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"testing"
	"time"
)

func TestAccountsOnTheWire(t *testing.T) {
	body := accountBody{Only: true, From: 1, Next: 3, Of: 9, Answering: 5, Silent: 2, Lossy: 1, Generation: 4}
	a := account{body, []Cell{
		{Addr: netip.MustParseAddr("10.42.3.0"), Answers: Yes, For: 258 * time.Second, RTT: 300 * time.Microsecond,
			Out: 30, In: -1, Lossy: true, PathMTU: 1472, Heard: true},
		{Addr: netip.MustParseAddr("fd00::"), Answers: No, ByICMP: true, Hole: true, Out: -1, In: 100,
			Silence: KernelOnly},
	}}
	const want = "01010002" + "00000001" + "00000003" + "00000009" + "00000005" + "00000002" + "00000001" +
		"00000004" +
		"00000000000000000000ffff0a2a0300" + "25" + "1e" + "ff" + "00" + "0000012c" + "00000102" + "05c0" + "0000" +
		"fd000000000000000000000000000000" + "1a" + "ff" + "64" + "03" + "00000000" + "00000000" + "0000" + "0000"
	head, err := Datagram{Kind: Account, Tells: true, Session: 1, Length: 500}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := a.append(head)
	if got := hex.EncodeToString(b[Size:]); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err := parseAccount(b)
	if err != nil || len(got.cells) != 2 || got.cells[0] != a.cells[0] || got.cells[1] != a.cells[1] ||
		got.Next != 3 || got.Of != 9 || !got.Only {
		t.Errorf("it came back as %+v, %v", got, err)
	}
	if d, err := Parse(b); err != nil || !d.Tells || d.Kind != Account {
		t.Errorf("the datagram: %+v, %v", d, err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"short":             func(b []byte) []byte { return b[:accountSize-1] },
		"cut":               func(b []byte) []byte { return b[:len(b)-1] },
		"longer":            func(b []byte) []byte { return append(b, 0) },
		"another form":      func(b []byte) []byte { b[48] = 2; return b },
		"more entries":      func(b []byte) []byte { b[50] = 0xff; return b },
		"going back":        func(b []byte) []byte { b[59] = 1; return b },
		"more than all":     func(b []byte) []byte { b[71] = 9; return b },
		"more lossy":        func(b []byte) []byte { b[75] = 6; return b },
		"yes and no":        func(b []byte) []byte { b[80+16] |= 3; return b },
		"more lost than is": func(b []byte) []byte { b[80+17] = 101; return b },
	} {
		if _, err := parseAccount(change(bytes.Clone(b))); !errors.Is(err, ErrDatagram) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b[80+19] = 200 // of a later version
	if got, err := parseAccount(b); err != nil || got.cells[0].Silence != NoSilence {
		t.Errorf("a silence of a later version: %+v, %v", got, err)
	}
}

func FuzzParseAccount(f *testing.F) {
	head := make([]byte, Size)
	one := account{accountBody{Of: 2, Answering: 1}, []Cell{{Addr: netip.IPv6Loopback(), Answers: Yes}}}
	f.Add(one.append(head))
	f.Add((&account{}).append(head))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := parseAccount(b); err == nil {
			again, err := parseAccount(a.append(bytes.Clone(b[:Size])))
			if err != nil || len(again.cells) != len(a.cells) {
				t.Fatalf("%+v came back as %+v, %v", a, again, err)
			}
			for i := range a.cells {
				if a.cells[i] != again.cells[i] {
					t.Fatalf("%+v came back as %+v", a.cells[i], again.cells[i])
				}
			}
		} else if !errors.Is(err, ErrDatagram) {
			t.Fatalf("undocumented error %v", err)
		}
		if q, err := parseInquiry(b); err == nil {
			again := make([]byte, len(b))
			q.put(again)
			if r, err := parseInquiry(again); err != nil || r != q {
				t.Fatalf("%+v came back as %+v, %v", q, r, err)
			}
		} else if !errors.Is(err, ErrDatagram) {
			t.Fatalf("undocumented error %v", err)
		}
	})
}
