package options

import (
	"errors"
	"strings"
	"testing"
)

func TestEveryBadFlagIsReportedOnce(t *testing.T) {
	c, err := Parse([]string{"--ifcae", "eth0", "--healthz-port=x", "--nonsense=1", "---", "--iface-regex", "(",
		"--public-ip", "a", "--healthz-port=x", "--check", "--log-format=xml"}, []string{"WEFTD_IP_MASQ=perhaps"})
	if !errors.Is(err, ErrUsage) || !c.Check {
		t.Fatalf("%v, check %v", err, c.Check)
	}
	for _, want := range []string{"-ifcae; did you mean --iface?", "healthz-port", "-nonsense", "---",
		"--iface-regex", "public-ip", "--log-format", "WEFTD_IP_MASQ"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is there %d times in:\n%v", want, n, err)
		}
	}
	if strings.Contains(err.Error(), "eth0") {
		t.Errorf("the value of an unknown flag is taken for an argument:\n%v", err)
	}
	if _, err := Parse([]string{"--nonsense", "--help"}, nil); !errors.Is(err, ErrHelp) {
		t.Errorf("help: %v", err)
	}
}
