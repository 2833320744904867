package show

import (
	"bytes"
	"os"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/test/golden"
)

func TestMain(m *testing.M) {
	golden.Flag()
	os.Exit(m.Run())
}

func TestUnreachablePeersAreListed(t *testing.T) {
	now := time.Now()
	said := func(name, by, says string, ago time.Duration) control.Peer {
		return control.Peer{Name: name, Address: addr("192.0.2.2"),
			Unreachable: &control.Unreachable{Says: says, By: addr(by), Count: 12, Last: now.Add(-ago)}}
	}
	var out bytes.Buffer
	_ = printFindings(&out, control.Status{Backend: control.Backend{Type: "udp", Port: 8285}},
		control.Peers{Peers: []control.Peer{
			said("db2", "192.0.2.2", "port unreachable", 3*time.Second),
			said("db3", "192.0.2.254", "administratively prohibited", time.Minute),
			said("db4", "192.0.2.254", "host unreachable", 4*time.Minute),
			said("db5", "192.0.2.2", "protocol unreachable", 2*time.Second),
			said("long ago", "192.0.2.2", "port unreachable", time.Hour), {Name: "well"},
		}}, now)
	golden.Check(t, "peers-unreachable", out.Bytes())
}
