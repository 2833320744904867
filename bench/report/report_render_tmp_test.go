package report

import (
	"os"
	"testing"
)

func TestRenderTmp(t *testing.T) {
	f, _ := os.Open("/tmp/weft/bench.json")
	d, err := ReadJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := ToFile("/tmp/weft/bench.html", d.WriteHTML); err != nil {
		t.Fatal(err)
	}
}
