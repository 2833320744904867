package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
)

// noRights is run on a node as the lab's root, with the TUN's name. The node's weftd is in a user namespace
// below, and may not change the node; its TUN is not on the node.
const noRights = `p=$(weft status | sed -n 's/^weftd .*, pid \([0-9]*\),.*/\1/p')
[ "$(readlink /proc/$p/ns/net)" = "$(readlink /proc/self/ns/net)" ] || echo "weftd, process $p, is not on the node"
[ "$(readlink /proc/$p/ns/user)" != "$(readlink /proc/self/ns/user)" ] || echo "weftd is in the user namespace of the lab"
! nsenter --user --preserve-credentials --target $p ip link set dev eth0 mtu 1400 2>/dev/null || echo "weftd can change the node's link"
! ip link show dev "$1" 2>/dev/null || echo "the TUN is on the node"
ip link set dev eth0 mtu 1500 || echo "nobody may, the lab's root included"`

// encryptedConf is a network of both families that weft encrypts itself, as it has to without root.
const encryptedConf = `{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"wireguard","Userspace":"always"}}`

// An ordinary user's weft lab run --rootless: pods on bridges and such as are attached directly all reach
// each other, in both families, and those on bridges also with type wireguard. While a lab is up its weftds
// have no right over their nodes; afterwards nothing of it is left.
func TestRootlessLab(t *testing.T) {
	t.Parallel()
	for _, attach := range lab.Attachments() {
		t.Run(attach, func(t *testing.T) {
			parallel(t)
			h := userHosts(t, 1, lab.WireFull, command(t, "weft-etcd"))
			weft := func(args ...string) string {
				t.Helper()
				out, err := h.run(1, session.Ada(), session.Options{}, "weft", append([]string{"lab"}, args...)...)
				if err != nil {
					t.Fatal(err, out)
				}
				return out
			}
			runs := func(with ...string) {
				t.Helper()
				var r lab.Report
				if err := json.Unmarshal(
					[]byte(weft(append([]string{"run", "--rootless", "--attach", attach, "--duration=300ms",
						"--json"}, with...)...)), &r); err != nil {
					t.Fatal(err)
				}
				if !r.Rootless || r.Attach != attach || len(r.Pairs) != 2*4*3 || len(r.Streams) != 2 ||
					len(r.Faults()) > 0 {
					t.Errorf("%q: %d pairs, %d streams, faults %q: %+v", with, len(r.Pairs), len(r.Streams), r.Faults(), r)
				}
				h.lone(t)
			}
			runs("--ipv6")

			device, upWith := "flannel0", []string{"up", "--rootless", "--attach", attach}
			if attach == lab.Bridge {
				file := session.Ada().Home() + "/encrypted.json"
				if _, err := h.run(1, session.Ada(), session.Options{}, "sh", "-c", `printf %s "$2" >"$1"`, "write", file,
					encryptedConf); err != nil {
					t.Fatal(err)
				}
				runs("--net-conf", file)
				device, upWith = "flannel-wg", append(upWith, "--net-conf", file)
			}
			if out := weft(upWith...); !strings.Contains(out, "\nnode2-tun ") {
				t.Errorf("the namespaces of the TUNs are not named:\n%s", out)
			}
			h.unprivileged()
			for _, node := range []string{"node1", "node2"} {
				if said := weft("exec", node, "--", "sh", "-c", noRights, "noRights", device); said != "" {
					t.Errorf("%s: %s", node, said)
				}
				if out := weft("exec", node, "--", "weft", "status"); !strings.Contains(out, "without root") {
					t.Errorf("%s: %s", node, out)
				}
				if out := weft("exec", node+"-tun", "--", "ip", "-4", "-o", "address", "show", "dev", device); !strings.Contains(out, "10.42.") {
					t.Errorf("%s's TUN: %s", node, out)
				}
			}
			if attach == lab.Bridge {
				await.OK(t, "both families' sessions", func() error {
					if out := weft("exec", "node1", "--", "weft", "peers", "--json"); strings.Count(out,
						`"latestHandshake"`) != 2 {
						return errors.New(out)
					}
					return nil
				})
			}
			if attach == lab.DirectAttach { // one more, beside those that the lab has attached
				if out := weft("exec", "node1", "--", "sh", "-c",
					"unshare -Urn sleep infinity >/dev/null 2>&1 & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep "+
						"0.1; done; weft attach --pid $! --pod more"); !strings.Contains(out, "10.42") {
					t.Error(out)
				}
			}
			weft("down")
			h.lone(t)
		})
	}
}

// lone waits until nothing but the host's first process runs.
func (h tenants) lone(t *testing.T) {
	t.Helper()
	await.OK(t, "nothing of the lab is left", func() error {
		return h.Node(1).Do(func() error { // there /proc has this host's processes, and no others
			all, err := filepath.Glob("/proc/[0-9]*/status")
			for _, path := range all {
				status, gone := os.ReadFile(path)
				if gone == nil && path != "/proc/1/status" && !strings.Contains(string(status), "State:\tZ") {
					err = errors.Join(err, fmt.Errorf("%.40q runs", status))
				}
			}
			return err
		})
	})
}
