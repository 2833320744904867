package kernel_test

import (
	"testing"

	"weft/routing/internal/kernel/kerneltest"
	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

var inNamespace = kerneltest.Enter
