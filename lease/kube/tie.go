package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"weft/lease"
)

// A flanneld never removes our annotation from its Node. So what ours says holds only for exactly
// those of flannel's beside it that were written with it, by their sum. That alone is not enough: a
// flanneld on a node where weft was publishes the same address and, with most backends, the same data.
// Therefore our data begin with a blank, which is nothing in JSON, and which flannel's own reader of
// the MAC passes over too. A flanneld compares the text with its own when it starts, finds another,
// and writes all of its annotations anew: the sum is wrong from then on.

// mark begins the data of a Node that weft writes.
const mark = " "

// sumDigits is how much of the sum stands in the annotation. It keeps nobody from lying: who can
// write one annotation can write all.
const sumDigits = 16

// tieJSON is our annotation: our object, and the sum of flannel's annotations beside it.
type tieJSON struct {
	*lease.Weft
	Of string
}

// tie adds our annotation to out, which is all that flannel would write, and marks that.
func (k keys) tie(out map[string]string, w *lease.Weft) error {
	for _, key := range [...]string{k.data, k.v6data} {
		if text, ok := out[key]; ok {
			out[key] = mark + text
		}
	}
	b, err := json.Marshal(tieJSON{w, k.sumOf(out)})
	if err != nil {
		return err
	}
	out[k.weft] = string(b)
	return nil
}

// tied returns what our annotation says: nil if there is none, or if what stands beside it is not what
// it was written with. One without a sum is of a weft from before there were any, or has been left
// behind by one; which, nobody can tell, so that it does not say what the node can receive. The
// error wraps ErrAnnotation.
func (k keys) tied(annotations map[string]string) (*lease.Weft, error) {
	text, ok := annotations[k.weft]
	if !ok {
		return nil, nil
	}
	w, err := lease.DecodeWeft([]byte(text))
	var tie struct{ Of string }
	if err == nil {
		err = json.Unmarshal([]byte(text), &tie)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrAnnotation, k.weft, err)
	case w == nil:
		return nil, nil
	case tie.Of == "":
		w.Recv = nil
	case tie.Of != k.sumOf(annotations):
		return nil, nil
	}
	return w, nil
}

// sumOf is over the annotations that flannel writes, each with whether it is there.
func (k keys) sumOf(annotations map[string]string) string {
	h := sha256.New()
	for _, key := range [...]string{k.backendType, k.data, k.v6data, k.public, k.publicV6} {
		text, ok := annotations[key]
		_, _ = fmt.Fprintf(h, "%v %d %s ", ok, len(text), text) // a sum takes everything
	}
	return hex.EncodeToString(h.Sum(nil))[:sumDigits]
}
