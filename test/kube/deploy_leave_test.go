package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/test/lab"
)

// leaves runs the pod of the manifest that leads back to flannel, on a node that a weftd of the variant has
// left and with exactly the rights that the manifest gives: its init container ends when the rules of the
// port, a TUN of weft's and weft's annotation are gone.
func (c *Cluster) leaves(t *testing.T, bin string, v variant) {
	node := "leaver-" + v.name
	var host *lab.Node
	rules := func(t *testing.T) string {
		t.Helper()
		out, err := host.Command(t.Context(), "nft", "list", "ruleset")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	t.Run("weft", func(t *testing.T) {
		if err := c.apply(t, v.kustomize(t)); err != nil {
			t.Fatal(err)
		}
		host = c.run(t, bin, "minimal", "kube-weft", "weft", node).host
		Until(t, "the rules of the port", func(context.Context) error {
			if said := rules(t); !strings.Contains(said, "overlay-") {
				return fmt.Errorf("%s", said)
			}
			return nil
		})
	})
	if t.Failed() {
		return
	}
	text, err := tool(t, "kubectl", "kustomize", deployed("kubernetes", "leave"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.apply(t, text); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{cluster: c, host: host, dir: t.TempDir()}
	k.root = imageOf(t, bin, "minimal")
	k.pod = c.schedule(t, "kube-weft-leave", "weft-leave", node)
	k.Start(t)
	obj, err := c.Admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a := flannelAnnotations(obj); a["weft"] != "" || a["kube-subnet-manager"] != "true" ||
		a["backend-data"] == "" {
		t.Errorf("annotations %v", a)
	}
	if said := rules(t); strings.Contains(said, "overlay-") || !strings.Contains(said, "postrtg") {
		t.Errorf("rules:\n%s", said)
	}
	if links, err := host.Command(t.Context(), "ip", "-br", "link", "show", "type", "tun"); err != nil ||
		strings.Contains(string(links), "flannel0") {
		t.Errorf("links, %v:\n%s", err, links)
	}
	Until(t, "the container has nothing left to do", func(context.Context) error {
		// The chains that packets go by stay until a flannel has its own, and are named: by the init container, and
		// by this one, which has a handler for the signal by then.
		named, said := map[string]int{}, strings.Split(strings.TrimSpace(k.log.String()), "\n")
		for _, line := range said {
			named[line]++
		}
		if last := said[len(said)-1]; !strings.HasPrefix(last, "kept nftables table") || named[last] < 2 {
			return fmt.Errorf("log %q", said)
		}
		return nil
	})
}
