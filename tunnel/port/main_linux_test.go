package port

import (
	"testing"

	"weft/test/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }
