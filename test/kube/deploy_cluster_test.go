package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"weft/test/image"
)

// apply gives text to the API server as an administrator would with kubectl. Every warning is an error.
func (c *Cluster) apply(t *testing.T, text []byte, args ...string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := c.Command(t.Context(), "kubectl",
		append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "--warnings-as-errors",
			"-f", file}, args...)...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// imageOf makes the root file system of one stage of our Dockerfile.
func imageOf(t *testing.T, bin, stage string) image.Root {
	t.Helper()
	root, err := image.New(stage, filepath.Join("..", ".."), bin, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// schedule makes a pod of a DaemonSet on a node, as its controller does. That the API server takes the pod
// shows that the namespace's pod security standard admits it.
func (c *Cluster) schedule(t *testing.T, namespace, daemonSet, node string) *corev1.Pod {
	t.Helper()
	ds, err := c.Admin.AppsV1().DaemonSets(namespace).Get(t.Context(), daemonSet, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: daemonSet + "-" + node + "-", Namespace: namespace,
			Labels: ds.Spec.Template.Labels},
		Spec: ds.Spec.Template.Spec,
	}
	pod.Spec.NodeName = node
	made, err := c.Admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// run puts a node on the wire and runs a DaemonSet's pod there from an image, until its readiness
// probe succeeds.
func (c *Cluster) run(t *testing.T, bin, stage, namespace, daemonSet, node string) *kubelet {
	t.Helper()
	k := &kubelet{cluster: c, host: c.Host(t), dir: t.TempDir()}
	k.root = imageOf(t, bin, stage)
	c.CreateNode(t, node, k.host.Underlay4, NodeOptions{})
	k.pod = c.schedule(t, namespace, daemonSet, node)
	// The node has a default route, as most machines do, since weftd without --iface takes its device as the
	// underlay.
	if out, err := k.host.Command(t.Context(), "ip", "route", "replace", "default", "via",
		c.Control.Underlay4.String()); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	k.Start(t)
	main := k.pod.Spec.Containers[0]
	Until(t, node+" is ready", func(ctx context.Context) error { return k.probe(ctx, main.ReadinessProbe) })
	if err := k.probe(t.Context(), main.LivenessProbe); err != nil {
		t.Error(err)
	}
	Until(t, node+"'s condition", func(ctx context.Context) error { return c.networkIsUp(ctx, node) })
	if text, err := k.Exec(t.Context(), "weft", "status"); err != nil ||
		!regexp.MustCompile(`(?m)^ready +yes`).MatchString(text) {
		t.Errorf("weft status: %v\n%s", err, text)
	}
	if k.pod.Namespace == "kube-weft" {
		k.withinRequests(t)
	}
	return k
}

// withinRequests checks that weftd takes no more memory than the pod requests.
func (k *kubelet) withinRequests(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://"+net.JoinHostPort(k.metricsHost(), "8081")+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.host.HTTPClient().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no process_resident_memory_bytes in /metrics")
	}
	resident, err := strconv.ParseFloat(string(m[1]), 64)
	requested := k.pod.Spec.Containers[0].Resources.Requests.Memory().Value()
	t.Logf("resident %.1f MiB, requested %d MiB", resident/(1<<20), requested>>20)
	if err != nil || resident <= 0 || resident > float64(requested) {
		t.Errorf("%v: %.0f bytes are resident, and %d requested", err, resident, requested)
	}
}

// metricsHost is the address at which the pod was told to serve metrics.
func (k *kubelet) metricsHost() string {
	for _, arg := range k.main.Args {
		if ip, ok := strings.CutPrefix(arg, "--healthz-ip="); ok {
			return ip
		}
	}
	return "127.0.0.1"
}

// mayNotWriteTo tries to change another node's status with the pod's own token, and labels of its own, which
// has to be refused.
func (k *kubelet) mayNotWriteTo(t *testing.T, node string) {
	t.Helper()
	token, err := k.token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := k.cluster.clientConfig()
	config.BearerToken, config.Dial = token, k.cluster.Control.NS.Dial
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, name, field string) error {
		patch := fmt.Appendf(nil, `{"metadata":{%q:{"example.com/by":%q}}}`, field, k.pod.Name)
		_, err := client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status")
		return err
	}
	// A policy is in force only a moment after it was made.
	Until(t, "another node's status is refused", func(ctx context.Context) error {
		if err := write(ctx, node, "annotations"); err == nil || !strings.Contains(err.Error(), "node") {
			return fmt.Errorf("writing to %s: %w", node, errors.Join(err, errors.New("want a refusal of the policy")))
		}
		return nil
	})
	if err := write(t.Context(), k.pod.Spec.NodeName, "annotations"); err != nil {
		t.Errorf("its own node: %v", err)
	}
	if err := write(t.Context(), k.pod.Spec.NodeName, "labels"); !apierrors.IsInvalid(err) &&
		!apierrors.IsForbidden(err) {
		t.Errorf("labels of its own node: %v, want a refusal of the policy", err)
	}
}

func (c *Cluster) networkIsUp(ctx context.Context, node string) error {
	n, err := c.Admin.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, have := range n.Status.Conditions {
		if have.Type == corev1.NodeNetworkUnavailable && have.Status == corev1.ConditionFalse &&
			have.Reason == "FlannelIsUp" {
			return nil
		}
	}
	return fmt.Errorf("conditions %v", n.Status.Conditions)
}

// The API server takes what each variant renders, without a warning, and its pods run.
func TestDeploy(t *testing.T) {
	c := Start(t, Options{})
	bin := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-o", bin+"/", "./cmd/weftd",
		"./cmd/weft-etcd", "./cmd/weft", "./cmd/weft-cni")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := c.apply(t, variants()[0].kustomize(t)); err != nil {
		t.Fatal(err)
	}
	for _, v := range variants() {
		if err := errors.Join(c.apply(t, v.kustomize(t), "--dry-run=server"),
			c.apply(t, v.chart(t), "--dry-run=server")); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
	images := map[string]string{"iptables": "default"} // the others need no more than the minimal image
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			if err := c.apply(t, v.chart(t)); err != nil {
				t.Fatal(err)
			}
			stage := images[v.name]
			if stage == "" {
				stage = "minimal"
			}
			k := c.run(t, bin, stage, "kube-weft", "weft", "weft-"+v.name)
			installed(t, k, "weft", "10-weft.conflist")
			if v.name == "base" {
				k.survivesHostPort(t)
			}
			if v.name == "udp" {
				k.mayNotWriteTo(t, "weft-base")
			}
		})
	}
	t.Run("metrics on the node's address", func(t *testing.T) {
		if err := c.apply(t, variant{values: []string{`weft.healthz.ip="node"`}}.chart(t)); err != nil {
			t.Fatal(err)
		}
		k := c.run(t, bin, "minimal", "kube-weft", "weft", "weft-metrics")
		if err := k.get(t.Context(), "http://127.0.0.1:8081/metrics"); err == nil {
			t.Error("they are on loopback too")
		}
	})
	t.Run("a rollout with maxSurge", func(t *testing.T) {
		if err := c.apply(t, variant{values: []string{`weft.backend="udp"`, `weft.maxSurge=1`}}.chart(t)); err != nil {
			t.Fatal(err)
		}
		from := c.run(t, bin, "minimal", "kube-weft", "weft", "surge-a")
		c.run(t, bin, "minimal", "kube-weft", "weft", "surge-b").rollsOut(t, from)
	})
	t.Run("a second installation", func(t *testing.T) { c.secondInstallation(t) })
	for _, v := range variants()[:2] { // by the kernel, and by a TUN
		t.Run("the manifest for the way back from "+v.name, func(t *testing.T) { c.leaves(t, bin, v) })
	}
	t.Run("flannel's manifest with other images", func(t *testing.T) {
		text, err := os.ReadFile("deploy_kube-flannel.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.apply(t, text); err != nil {
			t.Fatal(err)
		}
		k := c.run(t, bin, "default", "kube-flannel", "kube-flannel-ds", "was-flannels")
		installed(t, k, "flannel", "10-flannel.conflist")
	})
}

// secondInstallation lets helm install another release beside the manifest's, which has to keep everything
// that is its own.
func (c *Cluster) secondInstallation(t *testing.T) {
	t.Helper()
	chart, err := filepath.Abs(deployed("chart", "weft"))
	if err != nil {
		t.Fatal(err)
	}
	install := func(namespace string, args ...string) error {
		out, err := c.Command(t.Context(), "helm",
			append([]string{"install", "second", chart, "--namespace=" + namespace, "--create-namespace"}, args...)...)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := c.Admin.CoreV1().Namespaces().Create(t.Context(), strict, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--take-ownership", "--set=namespace.manage=true"}} {
		// each fails before it has made anything
		if err := install("strict", args...); err == nil ||
			!strings.Contains(err.Error(), "pod-security.kubernetes.io/enforce=privileged") {
			t.Errorf("in a namespace that admits no such pod: %v", err)
		}
	}
	if err := install("beside", "--take-ownership", "--set=namespace.manage=true"); err != nil {
		t.Fatal(err)
	}
	ns, err := c.Admin.CoreV1().Namespaces().Get(t.Context(), "beside", metav1.GetOptions{})
	if err != nil || ns.Labels["pod-security.kubernetes.io/enforce"] != "privileged" {
		t.Errorf("the namespace's labels: %v, %v", ns.Labels, err)
	}
	for name, namespace := range map[string]string{"kube-weft.weft": "kube-weft", "beside.second": "beside"} {
		binding, err := c.Admin.RbacV1().ClusterRoleBindings().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || binding.RoleRef.Name != name || len(binding.Subjects) != 1 ||
			binding.Subjects[0].Namespace != namespace {
			t.Errorf("binding %s: %+v, %v", name, binding, err)
		}
		// This server has such policies, so the chart makes one without being told.
		if _, err := c.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(),
			name+".own-node", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if out, err := c.Command(t.Context(), "helm", "uninstall", "second", "--namespace=beside"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := c.Admin.RbacV1().ClusterRoleBindings().Get(t.Context(), "kube-weft.weft", metav1.GetOptions{}); err != nil {
		t.Errorf("the first's went with the second: %v", err)
	}
	if ns, err := c.Admin.CoreV1().Namespaces().Get(t.Context(), "beside", metav1.GetOptions{}); err != nil ||
		ns.DeletionTimestamp != nil {
		t.Errorf("the namespace went with the release: %v", err)
	}
}

// installed checks what the init containers have left on the host.
func installed(t *testing.T, k *kubelet, plugin, file string) {
	t.Helper()
	out, err := exec.Command(k.hostPath("/opt/cni/bin/"+plugin), "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "weft-cni") {
		t.Errorf("the plugin: %v\n%s", err, out)
	}
	config, err := k.cluster.Admin.CoreV1().ConfigMaps(k.pod.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(k.hostPath("/etc/cni/net.d/" + file))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Items {
		// This host has no portmap that could be asked which versions it knows, so the newest is left out.
		if strings.Replace(c.Data["cni-conf.json"], `["0.4.0", "1.0.0", "1.1.0"]`, `["0.4.0","1.0.0"]`, 1) ==
			string(got) {
			return
		}
	}
	t.Errorf("%s is no ConfigMap's:\n%s", file, got)
}
