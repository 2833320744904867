package kernel

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel says of its own controller has a fixed number and one group.
func TestFamilyOf(t *testing.T) {
	f, err := familyOf("nlctrl")
	if err != nil || f.id != unix.GENL_ID_CTRL || f.groups["notify"] == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := familyOf("no such family"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("%+v, %v", f, err)
	}
}

// A request's reserved bytes are 0, and its own memory.
func TestGenlHeader(t *testing.T) {
	h := genlHeader{unix.CTRL_CMD_GETFAMILY, 1}
	if got := h.Serialize(); string(got) != "\x03\x01\x00\x00" || h.Len() != len(got) {
		t.Errorf("% x", got)
	}
}

func TestParseFamilyShort(t *testing.T) {
	for _, b := range [][]byte{nil, {1, 2, 0}, {1, 2, 0, 0}, {1, 2, 0, 0, 5, 0, unix.CTRL_ATTR_FAMILY_ID, 0, 9, 0, 0, 0}} {
		if f, err := parseFamily(b); err == nil {
			t.Errorf("% x: %+v", b, f)
		}
	}
}
