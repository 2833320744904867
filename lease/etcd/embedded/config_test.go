package embedded_test

import (
	"strings"
	"testing"

	"weft/lease/etcd/embedded"
)

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	const dir = "/d"
	for want, c := range map[string]embedded.Config{
		"--embedded-etcd-insecure": {Dir: dir, Listen: "192.0.2.1:2379"},
		"needs TLS (certificate":   {Dir: dir, Listen: "[::]:2379"},
		"needs TLS":                {Dir: dir, Listen: "http://0.0.0.0:2379"},
		"192.0.2.1:2379":           {Dir: dir, Listen: "localhost"},
		"scheme":                   {Dir: dir, Listen: "https://127.0.0.1:1"},
		"go together":              {Dir: dir, CertFile: "x"},
		"such":                     {Dir: dir, CertFile: "/none", KeyFile: "/none"},
		"CA file":                  {Dir: dir, CAFile: "/none"},
		"directory":                {},
		"shorter directory":        {Dir: dir + strings.Repeat("long", 30)},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
