package plane

import (
	"testing"

	"weft/routing/internal/kernel/kerneltest"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// These tests run alone, since they take again what they have closed.
var inNamespace = kerneltest.EnterAlone
