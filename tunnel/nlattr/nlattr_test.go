package nlattr

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// attr is an attribute as the kernel pads it.
func attr(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func TestFind(t *testing.T) {
	b := bytes.Join([][]byte{attr(1, 1), attr(2|1<<15, 2, 2), attr(3), attr(2, 3)}, nil)
	for kind, want := range map[uint16][]byte{1: {1}, 2: {2, 2}, 3: {}, 4: nil} {
		if got := Find(b, kind); !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%d: %v, want %v", kind, got, want)
		}
	}
	short, long := attr(5, 1), attr(5, 1)
	binary.NativeEndian.PutUint16(short, 3)
	binary.NativeEndian.PutUint16(long, 9)
	for _, bad := range [][]byte{short, long, {0}, b[:3]} {
		if got := Find(append(attr(1), bad...), 5); got != nil {
			t.Errorf("%v: %v", bad, got)
		}
	}
	if got := Find(attr(1, 7)[:5], 1); !bytes.Equal(got, []byte{7}) {
		t.Errorf("the last one without its padding: %v", got)
	}
}
