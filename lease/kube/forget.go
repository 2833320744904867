package kube

import (
	"context"
	"errors"
)

// Forget removes from our Node what weft said of itself beside flannel's annotations, for a node that
// weft has left for good. It returns the annotation's name, and "" if there was none; with dryRun it
// only looks. That the Node is gone is no error. A weftd that runs there writes it again.
func (c *Client) Forget(ctx context.Context, dryRun bool) (annotation string, err error) {
	name, err := c.nodeName(ctx)
	if err != nil {
		return "", err
	}
	n, err := c.getNode(ctx, name, "")
	var none *noNodeError
	switch {
	case errors.As(err, &none):
		return "", nil
	case err != nil:
		return "", err
	}
	if _, there := n.Annotations[c.keys.weft]; !there {
		return "", nil
	}
	if dryRun {
		return c.keys.weft, nil
	}
	p := patch{Metadata: &patchMetadata{Annotations: map[string]*string{c.keys.weft: nil}}}
	_, err = c.patchStatus(ctx, name, p.body())
	return c.keys.weft, err
}
