package test

import (
	"debug/elf"
	"strings"
	"testing"
)

// A program that can execute a template has every exported method of every package in it, which makes weftd larger by a
// third. Packages of others bring templates too, as grpc does unless it is built with grpcnotrace. weft writes a page by one.
func TestDaemonExecutesNoTemplates(t *testing.T) {
	for _, name := range []string{"weftd"} {
		file, err := elf.Open(command(t, name))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := file.Symbols()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		seen := false
		for _, s := range symbols {
			seen = seen || s.Name == "main.main"
			if strings.HasPrefix(s.Name, "text/template.(*state).") {
				t.Errorf("%s: %s is linked", name, s.Name)
			}
		}
		if !seen {
			t.Errorf("%s: there is no main.main among %d symbols", name, len(symbols))
		}
	}
}
