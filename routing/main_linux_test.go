package routing

import (
	"testing"

	"weft/routing/internal/kernel/kerneltest"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

var (
	inNamespace, aloneInNamespace = kerneltest.Enter, kerneltest.EnterAlone
	newNamespace                  = kerneltest.Another
)

func ip(t *testing.T, args string, a ...any) string { t.Helper(); return netns.IP(t, args, a...) }
