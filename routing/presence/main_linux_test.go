package presence

import (
	"testing"

	"weft/routing/internal/kernel/kerneltest"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// These tests run alone, since they ask for answers within milliseconds.
var inNamespace, newNamespace = kerneltest.EnterAlone, kerneltest.Another
