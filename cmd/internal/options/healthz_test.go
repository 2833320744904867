package options

import (
	"strings"
	"testing"
)

func TestAnOpenHealthServerIsRemarkedOn(t *testing.T) {
	for args, want := range map[string]bool{"": false, "--healthz-port=8081": true,
		"--healthz-port=8081 --healthz-ip=0.0.0.0": false} {
		c, err := Parse(strings.Fields(args), nil)
		if err != nil {
			t.Fatal(err)
		}
		if q := strings.Join(c.Quiet(), "\n"); strings.Contains(q, "--healthz-ip 127.0.0.1") != want {
			t.Errorf("%q: %q", args, q)
		}
	}
	if c, err := Parse(nil, []string{"FLANNELD_HEALTHZ_IP=0.0.0.0", "FLANNELD_HEALTHZ_PORT=1"}); err != nil ||
		!c.HealthzIPGiven {
		t.Errorf("by the environment: %v, given %v", err, c.HealthzIPGiven)
	}
}
