package test

import (
	"debug/elf"
	"os"
	"strings"
	"testing"

	"weft/test/netns"
)

// A program that can execute a template has every exported method of every package in it, which makes weftd
// larger by a third. Packages of others bring templates too, as grpc does unless it is built with
// grpcnotrace. weft writes a page by one.
func TestDaemonExecutesNoTemplates(t *testing.T) {
	if os.Getenv("WEFT_BIN") == "" && !strings.Contains(os.Getenv("GOFLAGS"), "grpcnotrace") {
		netns.Skip(t, "weftd is built without the tag grpcnotrace: make test has it")
	}
	file, err := elf.Open(command(t, "weftd"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, s := range symbols {
		seen = seen || s.Name == "main.main"
		if strings.HasPrefix(s.Name, "text/template.(*state).") {
			t.Errorf("%s is linked", s.Name)
		}
	}
	if !seen {
		t.Errorf("there is no main.main among %d symbols", len(symbols))
	}
}
