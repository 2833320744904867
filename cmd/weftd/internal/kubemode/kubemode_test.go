package kubemode

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft/cmd/internal/options"
	"weft/lease/kube"
)

func TestWhatTheClusterDecidesDoesNotCount(t *testing.T) {
	n, err := ParseNetwork(
		[]byte(
			`{"Network":"10.244.0.0/16","subnetLEN":99,"SubnetMin":"","IPv6SubnetMax":7,"EnableNFTables":true,"Backend":{"Type":"vxlan","VNI":7}}`))
	if err != nil || n.NetworkConfig.Network != netip.MustParsePrefix("10.244.0.0/16") || !n.EnableNFTables ||
		n.BackendType != "vxlan" {
		t.Errorf("%v, %+v", err, n)
	}
	if !slices.Equal(n.Ignored, []string{"IPv6SubnetMax", "SubnetMin", "subnetLEN"}) {
		t.Errorf("ignored %q", n.Ignored)
	}
	again, err := ParseNetwork(n.Raw)
	if err != nil || !again.Equal(n.NetworkConfig) || len(again.Ignored) > 0 {
		t.Errorf("what is kept is another: %v, %s", err, n.Raw)
	}
	flannels := []byte("{\n  \"Network\": \"10.244.0.0/16\",\n  \"EnableNFTables\": false,\n  \"Backend\": " +
		"{\n    \"Type\": \"vxlan\"\n  }\n}\n")
	if n, err = ParseNetwork(flannels); err != nil || string(n.Raw) != string(flannels) {
		t.Errorf("%v, %s", err, n.Raw)
	}
}

func TestFaultsInTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "net-conf.json")
	for text, want := range map[string]string{
		`{`:    path,
		`null`: path,
		`[]`:   path,
		`{}`:   "Network",
		`{"Network":"10.244.0.0/16","SubnetLen":99,"Backend":{"Type":"ipsec"}}`: "ipsec",
		`{"Network":"10.244.0.0/16"} trailing`:                                  path,
		strings.Repeat(" ", maxConfig+1):                                        "more than",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadNetwork(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "--net-config-path") {
			t.Errorf("%.40s: %v", text, err)
		}
	}
	if _, err := ReadNetwork(filepath.Join(dir, "none.json")); err == nil ||
		!strings.Contains(err.Error(), "ConfigMap") {
		t.Errorf("no file: %v", err)
	}
	if _, err := ReadNetwork(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: %v", err)
	}
}

func TestEveryOptionReachesTheClient(t *testing.T) {
	c := Client(options.Config{Kube: options.Kube{
		On: true, APIURL: "u", Kubeconfig: "k", AnnotationPrefix: "p", SetNodeNetworkUnavailable: true,
		NodeName: "n", PodName: "o", PodNamespace: "s",
	}}, nil)
	if c.APIURL != "u" || c.Kubeconfig != "k" || c.AnnotationPrefix != "p" || !c.SetNodeNetworkUnavailable ||
		c.NodeName != "n" || c.PodName != "o" || c.PodNamespace != "s" {
		t.Errorf("%+v", c)
	}
}

func TestAServiceIsNotRoutedTo(t *testing.T) {
	if got := Routed(options.Config{Kube: options.Kube{On: true}}, nil); got != nil {
		t.Errorf("in a pod: %q", got)
	}
	cfg := options.Config{Kube: options.Kube{On: true, APIURL: "http://192.0.2.1:8080", NodeName: "a"}}
	client, err := kube.New(Client(cfg, nil))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if got := Routed(cfg, client); !slices.Equal(got, []string{"http://192.0.2.1:8080"}) {
		t.Errorf("by its own address: %q", got)
	}
}
