package manage

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"weft/lease/kube"
)

// kubeFlags say how weft cleanup finds the Node object of this host.
type kubeFlags kube.Config

func (k *kubeFlags) bind(fs *pflag.FlagSet) {
	fs.StringVar(&k.Kubeconfig, "kubeconfig-file", "",
		"`file` for the API server, to remove weft's annotation from the Node object; in a pod its service account")
	fs.StringVar(&k.APIURL, "kube-api-url", "", "`URL` of the API server, instead of the file's")
	fs.StringVar(&k.AnnotationPrefix, "kube-annotation-prefix", kube.DefaultPrefix, "weftd's `prefix`")
	fs.StringVar(&k.NodeName, "node-name", os.Getenv("NODE_NAME"), "the Node object's `name`")
}

// given reports whether the flags or the environment say which Node object is this host's, and how to reach
// the API.
func (k *kubeFlags) given() bool {
	return k.Kubeconfig != "" || k.APIURL != "" || k.NodeName != "" && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// forget removes weft's annotation from this host's Node object.
func (f *cleanupFlags) forget(ctx context.Context, c *cleaned) error {
	if !f.kube.given() {
		return nil
	}
	client, err := kube.New(kube.Config(f.kube))
	if err != nil {
		return fmt.Errorf("weft's annotation of the Node object: %w", err)
	}
	defer func() { _ = client.Close() }() // nothing was written that a close could lose
	annotation, err := client.Forget(ctx, f.dryRun)
	if err != nil {
		return fmt.Errorf("weft's annotation of the Node object: %w", err)
	}
	if annotation != "" {
		c.Removed = append(c.Removed, fmt.Sprintf("annotation %s of node %s", annotation, f.kube.NodeName))
	}
	return nil
}
