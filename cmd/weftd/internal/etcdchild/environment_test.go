package etcdchild

import (
	"slices"
	"testing"
)

func TestTheChildGetsNoSecrets(t *testing.T) {
	got := environment([]string{"WEFTD_ETCD_PASSWORD=x", "FLANNELD_ETCD_PASSWORD=x", "GOGC=50",
		"NOTIFY_SOCKET=/x", "TZ=UTC", "PATH=/bin", "SSL_CERT_FILE=/f"})
	if want := []string{"GOGC=50", "TZ=UTC", "SSL_CERT_FILE=/f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
