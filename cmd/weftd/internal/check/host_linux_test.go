package check

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissingPrivilegesAreFaults(t *testing.T) {
	const admin, raw = uint64(1) << unix.CAP_NET_ADMIN, uint64(1) << unix.CAP_NET_RAW
	for have, want := range map[uint64][2]string{
		admin | raw: {}, admin: {"", "CAP_NET_RAW is missing"}, raw: {"CAP_NET_ADMIN is missing", ""}, 0: {"CAP_NET_ADMIN is missing", "CAP_NET_RAW is missing"},
	} {
		var r report
		r.privileges(have)
		faults := ""
		for _, err := range r.faults {
			faults += err.Error()
		}
		remarks := strings.Join(r.remarks, "\n")
		if !strings.Contains(faults, want[0]) || !strings.Contains(remarks, want[1]) || (faults == "") != (want[0] == "") || (remarks == "") != (want[1] == "") {
			t.Errorf("%x: faults %q, remarks %q", have, faults, remarks)
		}
	}
	have, err := capabilities()
	if err != nil || have&admin == 0 {
		t.Errorf("root has %x: %v", have, err)
	}
}
