package tunnel_test

import (
	"bytes"
	"log/slog"
	"testing"

	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// TestAForgerIsNotSaidAgainAndAgain has a pod that goes on sending with an address of another node's subnet,
// as one of a former subnet does until somebody deletes it: the log has one line of it, and the status the
// rest.
func TestAForgerIsNotSaidAgainAndAgain(t *testing.T) {
	var log bytes.Buffer // one worker writes it, and it is read once the books say that it has finished
	n := start(t, spec(), tunnel.Config{Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	const many = 5
	for i := range uint64(many) {
		n.host.Inject(tunneltest.Datagram{Data: udp4(t, "10.1.3.7", "10.1.2.7", 9, nil)})
		settled(t, n, i+1)
	}
	if got := bytes.Count(log.Bytes(), []byte("another node's subnet")); got != 1 {
		t.Errorf("%d lines: %s", got, &log)
	}
	if l := n.Forgers(); len(l) != 1 || l[0].Addr != addr("10.1.3.7") || l[0].Packets != many {
		t.Errorf("forgers %v", l)
	}
}
