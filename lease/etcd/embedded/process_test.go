package embedded_test

import (
	"strings"
	"testing"

	"weft/lease/etcd/embedded"
)

func TestArgumentsComeBack(t *testing.T) {
	t.Parallel()
	for _, want := range []embedded.Config{
		{},
		{Dir: "-d", Listen: "[::1]:2379", CertFile: "c", KeyFile: "k", CAFile: "a b", Insecure: true, NoSync: true},
	} {
		for _, debug := range []bool{false, true} {
			got, d, err := embedded.ParseArgs(want.Args(debug))
			if err != nil || got != want || d != debug {
				t.Errorf("%+v, %t: %+v, %t, %v", want, debug, got, d, err)
			}
		}
	}
	for args, want := range map[string]string{"--nonsense": "nonsense", "x": `"x"`,
		"--help": "--embedded-etcd"} {
		if _, _, err := embedded.ParseArgs([]string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}
