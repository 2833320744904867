package routehook

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestOpenAPIHasTheDocuments: the published description has the fields of the documents, required where they
// are always there, and the states.
func TestOpenAPIHasTheDocuments(t *testing.T) {
	b, err := os.ReadFile("../../docs/route-hook.openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Type string `json:"type"`
					Enum []any  `json:"enum"`
					Desc string `json:"description"`
				} `json:"properties"`
				Required []string `json:"required"`
			} `json:"schemas"`
		} `json:"components"`
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Paths["/v1/views/{node}"]["put"] == nil || doc.Paths["/v1/views/{node}"]["get"] == nil {
		t.Error("PUT and GET of views are missing")
	}
	if len(doc.Components.Schemas) != 4 {
		t.Errorf("%d schemas", len(doc.Components.Schemas))
	}
	for _, document := range []any{View{}, Route{}, Answer{}, Verdict{}} {
		typ := reflect.TypeOf(document)
		s := doc.Components.Schemas[typ.Name()]
		if len(s.Properties) != typ.NumField() {
			t.Errorf("%s has %d properties, and %d fields", typ.Name(), len(s.Properties), typ.NumField())
		}
		for f := range typ.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if p, ok := s.Properties[name]; !ok || p.Desc == "" {
				t.Errorf("%s.%s is missing, or is not described", typ.Name(), name)
			}
			if required := slices.Contains(s.Required, name); required == strings.Contains(options, "omitempty") {
				t.Errorf("%s.%s: required %v", typ.Name(), name, required)
			}
		}
	}
	if got := doc.Components.Schemas["Verdict"].Properties["state"].Enum; !reflect.DeepEqual(got,
		[]any{string(Accepted), string(Pending), string(Refused)}) {
		t.Errorf("states %v", got)
	}
}
