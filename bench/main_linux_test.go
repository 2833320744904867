package bench

import (
	"testing"

	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }
