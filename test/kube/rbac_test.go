package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The manifest's ClusterRole is enough, and each of its verbs is needed: if one is missing, weftd says which
// verb it is not allowed, and for what. To look up its node through its pod, as with flannel's manifest, it
// needs one verb more. The API server here does not stream lists, since the verb list is not needed with one
// that does.
func TestRBAC(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{APIServerArgs: []string{"--feature-gates=WatchList=false"}})
	c.AddNode(t, "other", NodeOptions{})
	rules, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	const pods = "get pods"
	// TestAnotherPodCIDR has those
	needed := slices.DeleteFunc(verbs(rules), func(v string) bool { return strings.HasSuffix(v, " events") })
	for _, missing := range append(needed, pods) {
		rules := rules
		if missing == pods {
			rules = append(rules[:len(rules):len(rules)],
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}})
		}
		t.Run("without "+missing, func(t *testing.T) {
			o := NodeOptions{}
			n := c.PrepareNode(t, strings.NewReplacer(" ", "-", "/", "-").Replace(missing), o)
			c.Register(t, n, o)
			if missing == pods {
				c.findsNodeByPod(t, n)
			}
			t.Cleanup(func() { n.leave(t) })
			if err := c.grant(t.Context(), without(rules, missing)); err != nil {
				t.Fatal(err)
			}
			if err := n.Daemon.Start(); err != nil {
				t.Fatal(err)
			}
			verb, resource, _ := strings.Cut(missing, " ")
			Until(t, n.Object+" says what it is not allowed", func(ctx context.Context) error {
				if log := string(n.Daemon.LogTail(100)); !saysForbidden(log, verb, resource) {
					return fmt.Errorf("readyz: %v\n%s", n.Ready(ctx), log)
				}
				return nil
			})
			t.Log(n.Ready(t.Context()))
			if err := c.grant(t.Context(), rules); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitReady(t.Context()); err != nil {
				t.Errorf("with the whole role: %v", err)
			}
		})
	}
}

// saysForbidden looks for a refusal in the API server's own words, or for one in ours that names verb and
// resource.
func saysForbidden(log, verb, resource string) bool {
	resource, sub, _ := strings.Cut(resource, "/")
	return strings.Contains(log, fmt.Sprintf("cannot %s resource", verb)) && strings.Contains(log, resource) &&
		strings.Contains(log, sub) ||
		strings.Contains(log, verb+" "+resource)
}

// findsNodeByPod lets n's weftd look up its node through its pod, as it does with flannel's manifest, which
// does not set NODE_NAME.
func (c *Cluster) findsNodeByPod(t *testing.T, n *Node) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "weft-" + n.Object, Namespace: flannelNamespace},
		Spec: corev1.PodSpec{
			NodeName: n.Object, ServiceAccountName: flannelAccount, HostNetwork: true,
			Containers: []corev1.Container{{Name: "weftd", Image: "weft"}},
		},
	}
	if _, err := c.Admin.CoreV1().Pods(flannelNamespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.Daemon.SetEnv("POD_NAME="+pod.Name, "POD_NAMESPACE="+flannelNamespace)
}

// verbs returns what rules allow, each as "verb resource".
func verbs(rules []rbacv1.PolicyRule) (all []string) {
	for _, r := range rules {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				all = append(all, verb+" "+resource)
			}
		}
	}
	return all
}

// without returns rules less one verb of one resource.
func without(rules []rbacv1.PolicyRule, missing string) (left []rbacv1.PolicyRule) {
	for _, one := range verbs(rules) {
		if verb, resource, _ := strings.Cut(one, " "); one != missing {
			left = append(left, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource},
				Verbs: []string{verb}})
		}
	}
	return left
}
