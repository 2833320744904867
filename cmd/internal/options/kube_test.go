package options

import (
	"slices"
	"strings"
	"testing"
)

func TestKubernetesFlagsAndVariables(t *testing.T) {
	c, err := Parse(strings.Fields("--ip-masq --kube-subnet-mgr --kube-api-url https://192.0.2.1 "+
		"--kubeconfig-file /k --kube-annotation-prefix x.example/y- -set-node-network-unavailable=false"),
		[]string{"NODE_NAME=n", "POD_NAME=p", "POD_NAMESPACE=s"})
	want := Kube{On: true, APIURL: "https://192.0.2.1", Kubeconfig: "/k", AnnotationPrefix: "x.example/y-",
		NodeName: "n", PodName: "p", PodNamespace: "s"}
	if err != nil || c.Kube != want {
		t.Errorf("%v, %+v", err, c.Kube)
	}
	if len(c.Remarks()) > 0 {
		t.Errorf("remarks %q", c.Remarks())
	}
	c, err = Parse([]string{"--kube-annotation-prefix="}, []string{"FLANNELD_KUBE_SUBNET_MGR=true"})
	want = Kube{On: true, AnnotationPrefix: "flannel.alpha.coreos.com", SetNodeNetworkUnavailable: true}
	if err != nil || c.Kube != want {
		t.Errorf("%v, %+v", err, c.Kube)
	}
}

// The flags and variables of flannel's own manifest are accepted without a warning.
func TestFlannelsManifestIsUnderstood(t *testing.T) {
	c, err := Parse(strings.Fields("--ip-masq --kube-subnet-mgr --healthz-port=8081"),
		[]string{"WIREGUARD_KEY_FILE=/run/flannel/wgkey", "POD_NAME=kube-flannel-ds-x",
			"POD_NAMESPACE=kube-flannel", "EVENT_QUEUE_DEPTH=5000", "CONT_WHEN_CACHE_NOT_READY=false"})
	if err != nil || len(c.Remarks()) > 0 || c.WireGuardKeyFile != "/run/flannel/wgkey" {
		t.Errorf("%v, %q, %q", err, c.Remarks(), c.WireGuardKeyFile)
	}
	if q := strings.Join(c.Quiet(), "\n"); !strings.Contains(q, "EVENT_QUEUE_DEPTH") ||
		!strings.Contains(q, "CONT_WHEN_CACHE_NOT_READY") {
		t.Errorf("not told at all: %q", q)
	}
	if c, err := Parse(nil, []string{"EVENT_QUEUE_DEPTH=many"}); err != nil || len(c.Unknown) > 0 {
		t.Errorf("%v, %q", err, c.Unknown)
	}
}

func TestFlagsOfTheOtherSourceAreRemarkedUpon(t *testing.T) {
	for _, tt := range []struct {
		args string
		env  []string
		want []string
	}{
		{"--kube-subnet-mgr --etcd-endpoints=, --etcd-cafile /nonexistent", nil,
			[]string{"--etcd-cafile", "--etcd-endpoints"}},
		{"--kube-subnet-mgr --subnet-lease-renew-margin 5",
			[]string{"WEFTD_EMBEDDED_ETCD_DIR=/x", "FLANNELD_ETCD_PREFIX=/y"},
			[]string{"--embedded-etcd-dir (WEFTD_EMBEDDED_ETCD_DIR)", "--etcd-prefix (FLANNELD_ETCD_PREFIX)",
				"--subnet-lease-renew-margin"}},
		{"--kube-subnet-mgr=false --kube-api-url http://x --kubeconfig-file /k",
			[]string{"FLANNELD_SET_NODE_NETWORK_UNAVAILABLE=true"},
			[]string{"--kube-api-url", "--kubeconfig-file",
				"--set-node-network-unavailable (FLANNELD_SET_NODE_NETWORK_UNAVAILABLE)"}},
		{"--net-config-path /x", nil, nil},
	} {
		c, err := Parse(strings.Fields(tt.args), tt.env)
		got := c.Remarks()
		if err != nil || len(got) != len(tt.want) {
			t.Errorf("%s: %v, %q", tt.args, err, got)
		}
		for _, w := range tt.want {
			if !slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, w) }) {
				t.Errorf("%s: %q is not in %q", tt.args, w, got)
			}
		}
	}
}
