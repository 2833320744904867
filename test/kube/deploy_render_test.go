package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// deployed are the folders of what is tested here.
func deployed(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "cmd", "weftd", "deploy"}, path...)...)
}

// variant is one way to deploy, as a kustomization and as values of the chart.
type variant struct {
	name   string
	folder string
	values []string // of helm --set-json
}

func variants() []variant {
	return []variant{
		{"base", deployed("kubernetes", "base"), nil},
		{"udp", deployed("kubernetes", "overlays", "udp"), []string{`weft.backend="udp"`}},
		{"host-gw", deployed("kubernetes", "overlays", "host-gw"), []string{`weft.backend="host-gw"`}},
		{"dual-stack", deployed("kubernetes", "overlays", "dual-stack"), []string{`podCidrv6="fd42::/48"`}},
		{"own-node", deployed("kubernetes", "overlays", "own-node"), []string{`weft.ownNodeOnly=true`}},
		{"iptables", deployed("kubernetes", "overlays", "iptables"), []string{`weft.enableNFTables=false`}},
	}
}

// tool runs kubectl or helm, which are parts of cmd/controlplane.
func tool(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	bundle, err := filepath.Abs(filepath.Join("bin", "controlplane"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bundle); err != nil {
		t.Fatalf("%v: make test-kube builds it", err)
	}
	cmd := exec.Command(bundle, args...)
	cmd.Args[0] = name
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "KUBECONFIG=")
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s", name, args, err, &fault)
	}
	return out.Bytes(), nil
}

func (v variant) kustomize(t *testing.T) []byte {
	t.Helper()
	text, err := tool(t, "kubectl", "kustomize", v.folder)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (v variant) chart(t *testing.T) []byte {
	t.Helper()
	args := []string{"template", "weft", deployed("chart", "weft"), "--namespace=kube-weft"}
	for _, s := range v.values {
		args = append(args, "--set-json="+s)
	}
	text, err := tool(t, "helm", args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects are the documents of text by kind and name.
func objects(t *testing.T, text []byte) map[string]*unstructured.Unstructured {
	t.Helper()
	all := map[string]*unstructured.Unstructured{}
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); err != nil || len(o.Object) == 0 {
			if err == nil {
				continue
			}
			if err.Error() == "EOF" {
				return all
			}
			t.Fatalf("%v\n%s", err, text)
		}
		all[o.GetKind()+"/"+o.GetName()] = o
	}
}

// normal leaves out what a chart adds to everything, and reads the JSON within.
func normal(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	o = o.DeepCopy()
	labels := o.GetLabels()
	for _, name := range []string{"app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
		delete(labels, name)
	}
	o.SetLabels(labels)
	unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations")
	sortNamed(o.Object)
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	for name, text := range data {
		var parsed any
		if err := json.Unmarshal([]byte(text), &parsed); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		if err := unstructured.SetNestedField(o.Object, parsed, "data", name); err != nil {
			t.Fatal(err)
		}
	}
	return o.Object
}

// sortNamed orders volumes and mounts by name: a patch puts its own first.
func sortNamed(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if list, ok := inner.([]any); ok && (key == "volumes" || key == "volumeMounts") {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
			}
			sortNamed(inner)
		}
	case []any:
		for _, inner := range v {
			sortNamed(inner)
		}
	}
}

func nameOf(v any) string {
	m, ok := v.(map[string]any)
	if !ok {
		return ""
	}
	return fmt.Sprint(m["name"])
}

// The kustomization and the chart deploy the same. The base is the manifest itself.
func TestChartEqualsKustomization(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			want, got := objects(t, v.kustomize(t)), objects(t, v.chart(t))
			delete(want, "Namespace/kube-weft") // helm --create-namespace
			for name, o := range want {
				if got[name] == nil {
					t.Errorf("the chart has no %s", name)
					continue
				}
				a, b := normal(t, o), normal(t, got[name])
				if !reflect.DeepEqual(a, b) {
					t.Errorf("%s differs:\n%s\n%s", name, marshal(a), marshal(b))
				}
			}
			for name := range got {
				if want[name] == nil {
					t.Errorf("only the chart has %s", name)
				}
			}
		})
	}
	text, err := os.ReadFile(deployed("kubernetes", "base", "weft.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	base, manifest := objects(t, variants()[0].kustomize(t)), objects(t, text)
	if !reflect.DeepEqual(base, manifest) {
		t.Error("the base is not the manifest")
	}
}

func marshal(o any) string {
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// The chart makes of each value what weftd reads, and refuses what it does not know.
func TestChartValues(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   string // net-conf.json
	}{
		{[]string{`weft.backendPort=4789`, `weft.vni=4096`, `weft.GBP=true`, `weft.directRouting=true`, `weft.macPrefix="0E-2A"`, `weft.mtu=1400`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan","Port":4789,"VNI":4096,"GBP":true,"DirectRouting":true,"MacPrefix":"0E-2A","MTU":1400}}`},
		{[]string{`weft.backend="host-gw"`, `weft.directRouting=true`, `weft.vni=7`}, `{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"host-gw"}}`},
		{[]string{`podCidr=""`, `podCidrv6="fd42::/48"`, `weft.userspace="always"`},
			`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd42::/48","EnableNFTables":true,"Backend":{"Type":"vxlan","Userspace":"always"}}`},
		{[]string{`weft.backendConfig={"SourceCheck":"outer"}`, `weft.config={"NoMasquerade":["192.0.2.0/24"]}`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"NoMasquerade":["192.0.2.0/24"],"Backend":{"Type":"vxlan","SourceCheck":"outer"}}`},
	} {
		o := objects(t, variant{values: c.values}.chart(t))["ConfigMap/weft"]
		var want any
		if err := json.Unmarshal([]byte(c.want), &want); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := unstructured.NestedFieldNoCopy(normal(t, o), "data", "net-conf.json"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q\n got %s\nwant %s", c.values, marshal(got), c.want)
		}
	}
	for value, want := range map[string]string{
		`weft.bakend="udp"`:                             "additional properties 'bakend' not allowed",
		`weft.backend="wireguard"`:                      "/weft/backend",
		`podCidr="10.244.0.0"`:                          "/podCidr",
		`podCidr=""`:                                    "a network needs one of them",
		`weft.vni=16777216`:                             "/weft/vni",
		`weft.args=["--healthz-port=1"]`:                "/weft/args/0",
		`weft.cniConfFile="../10-weft.conflist"`:        "/weft/cniConfFile",
		`weft.healthz={"ip":"127.0.0.1","port":"http"}`: "/weft/healthz/port",
	} {
		if _, err := tool(t, "helm", "template", "weft", deployed("chart", "weft"), "--set-json="+value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
	if _, err := tool(t, "helm", "lint", "--strict", deployed("chart", "weft")); err != nil {
		t.Error(err)
	}
}

// Probes ask where weftd listens, and devices and capabilities follow from what is chosen.
func TestChartFollowsItsValues(t *testing.T) {
	text := string(variant{values: []string{`weft.healthz.ip="0.0.0.0"`, `weft.userspaceDevices=true`, `weft.skipCNIConfigInstallation=true`,
		`weft.image={"repository":"registry.example/weft","digest":"sha256:` + strings.Repeat("0", 64) + `"}`}}.chart(t))
	for _, want := range []string{"host: 127.0.0.1", "--healthz-ip=0.0.0.0", "[NET_ADMIN, NET_RAW]", "/dev/net/tun", `"registry.example/weft@sha256:000`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "--conf-file") {
		t.Error("a configuration is installed")
	}
	names := slices.Collect(func(yield func(string) bool) {
		for _, v := range variants() {
			if !yield(v.name) {
				return
			}
		}
	})
	entries, err := os.ReadDir(deployed("kubernetes", "overlays"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(names, e.Name()) {
			t.Errorf("no test renders overlays/%s", e.Name())
		}
	}
}
