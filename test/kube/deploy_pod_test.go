package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/test/image"
	"weft/test/lab"
	"weft/test/lab/netns"
)

// accountFolder is the folder in which a pod finds its token for the API server.
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// kubelet does for one pod of a node what a kubelet does: it makes the volumes and the environment, runs
// the init containers in their order and then the container, as in a container of our image.
type kubelet struct {
	cluster *Cluster
	host    *lab.Node
	pod     *corev1.Pod
	root    image.Root
	dir     string          // its own files, and the host's folders
	main    image.Container // made by Start
	end     func()          // likewise

	log safeBuffer
}

// safeBuffer is a buffer to which one goroutine writes what a process prints, while the test reads it.
type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// hostPath returns the path on this machine that stands for a path on the node's host. Nothing of this
// machine itself is used, except the TUN device.
func (k *kubelet) hostPath(path string) string {
	if path == "/dev/net/tun" {
		return path
	}
	return filepath.Join(k.dir, "host", path)
}

// container returns the pod's container c with everything that the pod says about it.
func (k *kubelet) container(ctx context.Context, c corev1.Container) (image.Container, error) {
	out := image.Container{
		Root: k.root.Dir, Mounts: slices.Clone(k.root.Mounts),
		Args: append(append([]string{}, c.Command...), c.Args...), Net: k.host.NS.FD(), Stdout: &k.log,
		Stderr: &k.log,
		Env: append([]string{"KUBERNETES_SERVICE_HOST=" + k.cluster.Control.Underlay4.String(),
			"KUBERNETES_SERVICE_PORT=" + strconv.Itoa(apiPort)}, k.root.Env...),
	}
	if s := c.SecurityContext; s != nil {
		if s.Privileged != nil && *s.Privileged {
			return out, fmt.Errorf("container %s is privileged", c.Name)
		}
		out.ReadOnly = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
		if s.Capabilities != nil {
			for _, name := range s.Capabilities.Add {
				out.Capabilities = append(out.Capabilities, string(name))
			}
		}
	}
	for _, e := range c.Env {
		value, err := k.value(e)
		if err != nil {
			return out, err
		}
		out.Env = append(out.Env, e.Name+"="+value)
		for i := range out.Args {
			out.Args[i] = strings.ReplaceAll(out.Args[i], "$("+e.Name+")", value)
		}
	}
	for _, m := range c.VolumeMounts {
		source, err := k.volume(ctx, m)
		if err != nil {
			return out, fmt.Errorf("container %s: volume %s: %w", c.Name, m.Name, err)
		}
		out.Mounts = append(out.Mounts, image.Mount{Source: source, Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

func (k *kubelet) value(e corev1.EnvVar) (string, error) {
	if e.ValueFrom == nil {
		return e.Value, nil
	}
	if f := e.ValueFrom.FieldRef; f != nil {
		switch f.FieldPath {
		case "spec.nodeName":
			return k.pod.Spec.NodeName, nil
		case "status.hostIP":
			return k.host.Underlay4.String(), nil
		case "metadata.name":
			return k.pod.Name, nil
		case "metadata.namespace":
			return k.pod.Namespace, nil
		}
	}
	return "", fmt.Errorf("variable %s: not one that this kubelet knows", e.Name)
}

// volume makes what is to be mounted and returns its path.
func (k *kubelet) volume(ctx context.Context, m corev1.VolumeMount) (string, error) {
	own := filepath.Join(k.dir, "volumes", m.Name)
	for _, v := range k.pod.Spec.Volumes {
		switch {
		case v.Name != m.Name:
		case v.HostPath != nil:
			return k.hostPath(v.HostPath.Path), k.makeHostPath(v.HostPath)
		case v.ConfigMap != nil:
			config, err := k.cluster.Admin.CoreV1().ConfigMaps(k.pod.Namespace).Get(ctx, v.ConfigMap.Name,
				metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			return own, writeFiles(own, config.Data)
		case m.MountPath == accountFolder:
			token, err := k.token(ctx)
			if err != nil {
				return "", err
			}
			return own, writeFiles(own, map[string]string{"token": token, "namespace": k.pod.Namespace,
				"ca.crt": string(k.cluster.pki.pem)})
		}
	}
	return "", errors.New("not one that this kubelet knows")
}

// token returns a token of the pod's account that is bound to the pod.
func (k *kubelet) token(ctx context.Context) (string, error) {
	seconds := int64(3600)
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: k.pod.Name,
			UID: k.pod.UID},
	}}
	got, err := k.cluster.Admin.CoreV1().ServiceAccounts(k.pod.Namespace).CreateToken(ctx,
		k.pod.Spec.ServiceAccountName, req, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return got.Status.Token, nil
}

func (k *kubelet) makeHostPath(v *corev1.HostPathVolumeSource) error {
	path := k.hostPath(v.Path)
	kind := corev1.HostPathUnset
	if v.Type != nil {
		kind = *v.Type
	}
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate:
		// without a type, container runtimes make a folder
		return os.MkdirAll(path, 0o755)
	case corev1.HostPathFileOrCreate:
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	case corev1.HostPathCharDev:
		_, err := os.Stat(path)
		return err
	case corev1.HostPathDirectory, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathBlockDev:
		// our manifest has none
	}
	return fmt.Errorf("host path of type %s", kind)
}

func writeFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Start runs the init containers and starts the pod's only container. With end, or when the test ends, that
// gets SIGTERM and has to exit with status 0.
func (k *kubelet) Start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range k.pod.Spec.InitContainers {
		run, err := k.container(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Run(ctx); err != nil {
			t.Fatalf("init container %s, %v: %v\n%s", c.Name, run.Args, err, k.log.String())
		}
	}
	run, err := k.container(ctx, k.pod.Spec.Containers[0])
	if err != nil {
		t.Fatal(err)
	}
	k.main = run
	live, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run.Run(live) }() // waited for in the cleanup
	k.end = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", k.pod.Name, err)
		}
	})
	t.Cleanup(func() {
		k.end()
		if t.Failed() {
			t.Logf("%s's log:\n%s", k.pod.Name, k.log.String())
		}
	})
}

// Exec runs a program with the files of the pod's container, and returns what it prints.
func (k *kubelet) Exec(ctx context.Context, args ...string) (string, error) {
	run := k.main
	var out safeBuffer
	run.Args, run.Stdout, run.Stderr = args, &out, &out
	err := run.Run(ctx)
	return out.String(), err
}

// probe does what a kubelet does for a probe, and returns an error unless it succeeds.
func (k *kubelet) probe(ctx context.Context, p *corev1.Probe) error {
	if p.Exec != nil {
		if out, err := k.Exec(ctx, p.Exec.Command...); err != nil {
			return fmt.Errorf("%v: %w: %s", p.Exec.Command, err, out)
		}
		return nil
	}
	host := p.HTTPGet.Host
	if host == "" {
		host = k.host.Underlay4.String() // the pod's address, which is the host's
	}
	return k.get(ctx, fmt.Sprintf("http://%s:%d%s", host, p.HTTPGet.Port.IntValue(), p.HTTPGet.Path))
}

// get makes a request from the node, as the kubelet does.
func (k *kubelet) get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := k.host.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode >= 400) {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return err
}

// survivesHostPort gives weftd's own port to a pod as its host port, by the plugin that does so on a real
// node, and checks that the probes still ask weftd and not that pod.
func (k *kubelet) survivesHostPort(t *testing.T) {
	t.Helper()
	ns, err := netns.New("taker")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD())
	main := k.pod.Spec.Containers[0]
	if len(main.Ports) != 1 || main.Ports[0].HostPort != 8081 {
		t.Errorf("the port is not declared, so that the scheduler does not know of it: %v", main.Ports)
	}
	conf := fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"cbr0","type":"portmap","runtimeConfig":{"portMappings":[{"hostPort":8081,"containerPort":80,"protocol":"tcp"}]},
		"prevResult":{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":%q}],"ips":[{"address":"10.244.250.2/24","interface":0}]}}`, path)
	portmap := func(command string) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(pluginDir, "portmap"))
		cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=taker", "CNI_NETNS=" + path,
			"CNI_IFNAME=eth0", "CNI_PATH=" + pluginDir, "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin"}
		var out strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(conf), &out, &out
		if err := k.host.NS.Run(cmd); err != nil {
			t.Fatalf("portmap %s: %v: %s", command, err, out.String())
		}
	}
	portmap("ADD")
	if err := k.get(t.Context(), "http://127.0.0.1:8081/healthz"); err == nil {
		t.Error("the port was not taken, so this shows nothing")
	}
	for name, p := range map[string]*corev1.Probe{"readiness": main.ReadinessProbe,
		"liveness": main.LivenessProbe} {
		if err := k.probe(t.Context(), p); err != nil {
			t.Errorf("%s, while a pod has the port: %v", name, err)
		}
	}
	portmap("DEL")
}
