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

// deployed returns a path below cmd/weftd/deploy.
func deployed(path ...string) string {
	return filepath.Join(append([]string{"..", "..", "cmd", "weftd", "deploy"}, path...)...)
}

// policyAPI is the API that a server must have to hold weftd to its own node.
const policyAPI = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

// variant is one way to deploy, as a kustomization and as values of the chart.
type variant struct {
	name   string
	folder string
	values []string // for helm --set-json
}

func variants() []variant {
	return []variant{
		{"base", deployed("kubernetes", "base"), nil},
		{"udp", deployed("kubernetes", "overlays", "udp"), []string{`weft.backend="udp"`}},
		{"wireguard", deployed("kubernetes", "overlays", "wireguard"),
			[]string{`weft.backend="wireguard"`, `weft.userspaceDevices=true`}},
		{"host-gw", deployed("kubernetes", "overlays", "host-gw"), []string{`weft.backend="host-gw"`}},
		{"dual-stack", deployed("kubernetes", "overlays", "dual-stack"), []string{`podCidrv6="fd42::/48"`}},
		{"before-1.30", deployed("kubernetes", "overlays", "before-1.30"), []string{`weft.ownNodeOnly=false`}},
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
	args := []string{"template", "weft", deployed("chart", "weft"), "--namespace=kube-weft",
		"--api-versions=" + policyAPI}
	for _, s := range v.values {
		args = append(args, "--set-json="+s)
	}
	text, err := tool(t, "helm", args...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// objects returns the documents of text by kind and name.
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
		name := o.GetName()
		if o.GetKind() == "ConfigMap" {
			name, _, _ = strings.Cut(name, "-") // without the hash of its content
		}
		all[o.GetKind()+"/"+name] = o
	}
}

// normal returns the object without what a chart adds to every object, and with the JSON in it parsed.
func normal(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	o = o.DeepCopy()
	if o.GetKind() == "ConfigMap" {
		o.SetName("weft")
	}
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

// sortNamed orders volumes and mounts by name, since a patch puts its own first, and takes the hash from the
// name of a ConfigMap.
func sortNamed(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if config, ok := inner.(map[string]any); ok && key == "configMap" {
				config["name"] = "weft"
			}
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
			delete(want, "Namespace/kube-weft") // helm --create-namespace makes it
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
}

// A change of the configuration restarts the pods, which read it only when they start. In a kustomization the
// ConfigMap's name changes, and in the chart an annotation.
func TestConfigRestartsPods(t *testing.T) {
	seen := map[string]string{}
	for _, v := range variants() {
		all := objects(t, v.kustomize(t))
		name := all["ConfigMap/weft"].GetName()
		if used := marshal(all["DaemonSet/weft"].Object); !strings.Contains(used, fmt.Sprintf(`"name": %q`, name)) {
			t.Errorf("%s: the pods do not use %s", v.name, name)
		}
		data, _, _ := unstructured.NestedStringMap(all["ConfigMap/weft"].Object, "data")
		if other, ok := seen[name]; ok && other != marshal(data) {
			t.Errorf("%s: %s is also the name of another content", v.name, name)
		}
		seen[name] = marshal(data)
		if !strings.HasPrefix(name, "weft-") {
			t.Errorf("%s: the name is %s", v.name, name)
		}
	}
	if len(seen) < 4 {
		t.Errorf("%d names of %d variants", len(seen), len(variants()))
	}
	sum := func(values ...string) string {
		o := objects(t, variant{values: values}.chart(t))["DaemonSet/weft"]
		sum, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations",
			"checksum/config")
		return sum
	}
	if plain := sum(); plain == "" || plain == sum(`weft.vni=2`) || plain == sum(`weft.cniConf="{}"`) ||
		plain != sum(`weft.podLabels={"a":"b"}`) {
		t.Errorf("the checksum %q does not follow the configuration", plain)
	}
}

// Two releases in one cluster share no object that has no namespace.
func TestReleasesAreApart(t *testing.T) {
	seen := map[string]bool{}
	for _, release := range [][2]string{{"weft", "kube-weft"}, {"weft", "other"}, {"weft-a", "b"},
		{"weft", "a-b"}, {"kube-weft", "weft"}} {
		text, err := tool(t, "helm", "template", release[0], deployed("chart", "weft"), "--namespace="+release[1],
			"--api-versions="+policyAPI)
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range objects(t, text) {
			if o.GetNamespace() != "" {
				continue
			}
			if seen[name] {
				t.Errorf("release %s has %s of another release", release, name)
			}
			seen[name] = true
		}
	}
	if len(seen) != 5*4 { // for each release a ClusterRole, its binding, the policy and its binding
		t.Errorf("%d objects: %v", len(seen), seen)
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
		{[]string{`weft.backendPort=4789`, `weft.vni=4096`, `weft.GBP=true`, `weft.directRouting=true`,
			`weft.macPrefix="0E-2A"`, `weft.mtu=1400`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan","Port":4789,"VNI":4096,"GBP":true,"DirectRouting":true,"MacPrefix":"0E-2A","MTU":1400}}`},
		{[]string{`weft.backend="host-gw"`, `weft.mtu=1400`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"host-gw","MTU":1400}}`},
		{[]string{`weft.backend="wireguard"`, `weft.backendPort=51830`, `weft.userspace="never"`,
			`weft.backendConfig={"Mode":"auto"}`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"wireguard","ListenPort":51830,"Userspace":"never","Mode":"auto"}}`},
		{[]string{`weft.backend="auto"`, `weft.backendPort=51830`, `weft.backendConfig={"Encrypt":"always"}`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"auto","ListenPort":51830,"Encrypt":"always"}}`},
		{[]string{`weft.backend="auto"`, `weft.backendPort=4789`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"auto","Port":4789}}`},
		{[]string{`weft.backend="ipip"`, `weft.directRouting=true`},
			`{"Network":"10.244.0.0/16","EnableNFTables":true,"Backend":{"Type":"ipip","DirectRouting":true}}`},
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
	if _, err := tool(t, "helm", "lint", "--strict", deployed("chart", "weft")); err != nil {
		t.Error(err)
	}
}

// The chart ignores nothing that was set. It refuses values that it does not know, that no API takes, for
// which the chosen backend has no use, and that contradict each other.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		`weft.bakend="udp"`:    "additional properties 'bakend' not allowed",
		`weft.backend="ipsec"`: "/weft/backend",
		`weft.backend="wireguard" weft.vni=7`: "weft.vni is for the backend vxlan, " +
			"auto, and weft.backend is wireguard",
		`weft.backend="wireguard" weft.directRouting=true`: "weft.directRouting is for the backend " +
			"vxlan, ipip, and",
		`weft.backend="wireguard" weft.backendConfig={"ListenPort":1}`: "weft.backendConfig.ListenPort: set " +
			"weft.backendPort",
		`podCidr="10.244.0.0"`:                          "/podCidr",
		`podCidr="300.1.2.3/99"`:                        "/podCidr",
		`podCidr="10.244.0.0/33"`:                       "/podCidr",
		`podCidr="10.244.0/16"`:                         "/podCidr",
		`podCidr="fd42::/48"`:                           "/podCidr",
		`podCidrv6="fd42::1::/48"`:                      "/podCidrv6",
		`podCidrv6="fd42::/129"`:                        "/podCidrv6",
		`podCidrv6="12345::/48"`:                        "/podCidrv6",
		`podCidrv6="10.244.0.0/16"`:                     "/podCidrv6",
		`podCidr=""`:                                    "a network needs one of them",
		`weft.vni=16777216`:                             "/weft/vni",
		`weft.args=["--healthz-port=1"]`:                "/weft/args/0",
		`weft.cniConfFile="../10-weft.conflist"`:        "/weft/cniConfFile",
		`weft.healthz={"ip":"127.0.0.1","port":"http"}`: "/weft/healthz/port",
		`weft.healthz.ip="300.0.0.1"`:                   "/weft/healthz/ip",
		`weft.image.tag="a:b"`:                          "/weft/image/tag",
		`weft.ownNodeOnly="yes"`:                        "/weft/ownNodeOnly",
		`weft.backend="host-gw" weft.vni=7`: "weft.vni is for the backend vxlan, " +
			"auto, and weft.backend is host-gw",
		`weft.backend="host-gw" weft.directRouting=true`: "weft.directRouting is for the backend " +
			"vxlan, ",
		`weft.backend="udp" weft.GBP=true`:                  "weft.GBP is for",
		`weft.backend="udp" weft.userspace="never"`:         "weft.userspace is for",
		`weft.backend="udp" weft.macPrefix="0E-2A"`:         "weft.macPrefix is for",
		`weft.backend="alloc" weft.backendPort=1`:           "weft.backendPort is for",
		`weft.backend="alloc" weft.mtu=1400`:                "weft.mtu is for",
		`weft.backend="host-gw" weft.userspaceDevices=true`: "weft.userspaceDevices is for",
		`weft.backend="auto" weft.directRouting=true`: "weft.directRouting is for the backend " +
			"vxlan, ipip, and",
		`weft.backendConfig={"Type":"udp"}`:                    "weft.backendConfig.Type: set weft.backend",
		`weft.config={"Network":"10.0.0.0/8"}`:                 "weft.config.Network: set podCidr",
		`weft.podMonitor.enabled=true`:                         "weft.podMonitor needs weft.healthz.ip",
		`weft.podLabels={"app.kubernetes.io/name":"x"}`:        "weft.podLabels",
		`weft.maxSurge=0`:                                      "/weft/maxSurge",
		`weft.maxSurge="101%"`:                                 "/weft/maxSurge",
		`weft.updateStrategy={"rollingUpdate":{"maxSurge":1}}`: "/weft/updateStrategy/rollingUpdate/maxSurge",

		`weft.backend="auto" weft.vni=7 weft.backendConfig={"encrypt":"always"}`: "weft.vni is for the backend " +
			"vxlan, auto, and weft.backend is auto with Encrypt",
	} {
		args := []string{"template", "weft", deployed("chart", "weft")}
		for v := range strings.FieldsSeq(values) {
			args = append(args, "--set-json="+v)
		}
		if _, err := tool(t, "helm", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// With maxSurge a rollout starts the new pod beside the old one. The scheduler lets both run only if they
// declare no port.
func TestChartSurges(t *testing.T) {
	for _, surge := range []string{`1`, `"10%"`} {
		all := objects(t, variant{values: []string{`weft.maxSurge=` + surge, `weft.healthz.ip="node"`,
			`weft.podMonitor.enabled=true`}}.chart(t))
		spec := all["DaemonSet/weft"].Object["spec"].(map[string]any)
		var want any
		if err := json.Unmarshal(fmt.Appendf(nil,
			`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%s,"maxUnavailable":0}}`, surge), &want); err != nil {
			t.Fatal(err)
		}
		if got := spec["updateStrategy"]; marshal(got) != marshal(want) {
			t.Errorf("updateStrategy %s, want %s", marshal(got), marshal(want))
		}
		containers, _, _ := unstructured.NestedSlice(spec, "template", "spec", "containers")
		if len(containers) != 1 || containers[0].(map[string]any)["ports"] != nil {
			t.Errorf("a port is declared: %s", marshal(containers))
		}
		if text := marshal(all["PodMonitor/weft"]); strings.Contains(text, `"port"`) ||
			!strings.Contains(text, `$1:8081`) {
			t.Errorf("the monitor looks for a port that is not declared: %s", text)
		}
	}
}

// Probes ask where weftd listens, and the pod's devices, capabilities and the rest follow from the values.
func TestChartFollowsItsValues(t *testing.T) {
	text := string(variant{values: []string{`weft.healthz.ip="0.0.0.0"`, `weft.userspaceDevices=true`,
		`weft.skipCNIConfigInstallation=true`,
		`weft.image={"repository":"registry.example/weft","digest":"sha256:` + strings.Repeat("0", 64) +
			`"}`}}.chart(t))
	for _, want := range []string{"--healthz-ip=0.0.0.0", "[NET_ADMIN, NET_RAW]", "/dev/net/tun",
		`"registry.example/weft@sha256:000`, "imagePullPolicy: IfNotPresent"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "--conf-file") || strings.Contains(text, "hostIP") {
		t.Errorf("a configuration is installed, or a port declared for one address:\n%s", text)
	}
	text = string(variant{values: []string{`weft.healthz.ip="node"`,
		`weft.args=["--control-socket=/run/weft/other.sock"]`, `weft.image.tag="edge"`,
		`weft.podLabels={"a":"label"}`, `weft.podAnnotations={"a":"annotation"}`, `weft.priorityClassName="mine"`,
		`weft.affinity={"nodeAffinity":{}}`, `weft.extraVolumes=[{"name":"extra","emptyDir":{}}]`,
		`weft.extraVolumeMounts=[{"name":"extra","mountPath":"/extra"}]`,
		`weft.podMonitor={"enabled":true,"labels":{"release":"prometheus"}}`,
		`weft.prometheusRule={"enabled":true,"labels":{"role":"alerts"}}`, `weft.dashboard.enabled=true`,
		`netpol.enabled=true`, `namespace.manage=true`}}.chart(t))
	for _, want := range []string{"--healthz-ip=$(NODE_IP)", "fieldPath: status.hostIP",
		"- --control-socket=/run/weft/other.sock", "weft:edge", "imagePullPolicy: Always",
		"a: label", "a: annotation", "priorityClassName: mine", "nodeAffinity: {}", "mountPath: /extra",
		"emptyDir: {}",
		"kind: PodMonitor", "release: prometheus", "kind: PrometheusRule", "role: alerts", "- alert: WeftNotReady",
		"on {{ $labels.instance }}", "grafana_dashboard: \"1\"", `"uid": "weft-overview"`,
		"kube-network-policies:v1.0.0", "networkpolicies", "pod-security.kubernetes.io/enforce: privileged"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
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
