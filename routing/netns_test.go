package routing

import (
	"testing"

	"weft/routing/internal/kernel"
	"weft/routing/internal/nstest"
)

func inNamespace(t *testing.T) *kernel.Kernel { t.Helper(); return nstest.In(t) }

func newNamespace(t *testing.T) *kernel.Kernel { t.Helper(); return nstest.New(t) }

func ip(t *testing.T, args string, a ...any) string { t.Helper(); return nstest.IP(t, args, a...) }

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	return nstest.Command(t, name, args...)
}

func tryIP(args string) (string, error) { return nstest.TryIP(args) }

func try(name string, args ...string) (string, error) { return nstest.Try(name, args...) }

func etherLink(t *testing.T, name string, mtu int, addrs ...string) {
	t.Helper()
	nstest.EtherLink(t, name, mtu, addrs...)
}
