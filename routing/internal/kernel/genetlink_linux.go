package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// genlHeader begins each request of generic netlink (struct genlmsghdr of linux/genetlink.h): command, version, and two
// reserved bytes that are 0. The library's own, nl.Genlmsg and what GenlFamilyGet sends, has only the first two in memory
// and sends what lies behind them as the others.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// genlFamily is what the kernel says of a family of generic netlink: its number, and those of its groups by name.
type genlFamily struct {
	id     int
	groups map[string]uint32
}

// familyOf asks for a family by its name, in the calling thread's namespace. The error wraps unix.ENOENT if the kernel has none such.
func familyOf(name string) (f genlFamily, err error) {
	req := nl.NewNetlinkRequest(unix.GENL_ID_CTRL, 0)
	req.AddData(genlHeader{unix.CTRL_CMD_GETFAMILY, 1})
	req.AddData(nl.NewRtAttr(unix.CTRL_ATTR_FAMILY_NAME, nl.ZeroTerminated(name)))
	msgs, err := req.Execute(unix.NETLINK_GENERIC, 0)
	switch {
	case err != nil:
		return f, err
	case len(msgs) != 1:
		return f, fmt.Errorf("%d answers", len(msgs))
	}
	return parseFamily(msgs[0])
}

// parseFamily reads a CTRL_CMD_NEWFAMILY.
func parseFamily(b []byte) (f genlFamily, err error) {
	if len(b) < nl.SizeofGenlmsg {
		return f, fmt.Errorf("an answer of %d bytes", len(b))
	}
	b = b[nl.SizeofGenlmsg:]
	id := nlattr.Find(b, unix.CTRL_ATTR_FAMILY_ID)
	if len(id) != 2 {
		return f, errors.New("an answer without the family's number")
	}
	f = genlFamily{id: int(nl.NativeEndian().Uint16(id)), groups: map[string]uint32{}}
	nlattr.Each(nlattr.Find(b, unix.CTRL_ATTR_MCAST_GROUPS), func(_ uint16, group []byte) bool {
		if number := nlattr.Find(group, unix.CTRL_ATTR_MCAST_GRP_ID); len(number) == 4 {
			f.groups[unix.ByteSliceToString(nlattr.Find(group, unix.CTRL_ATTR_MCAST_GRP_NAME))] = nl.NativeEndian().Uint32(number)
		}
		return true
	})
	return f, nil
}
