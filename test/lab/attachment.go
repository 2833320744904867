package lab

import (
	"fmt"
	"strings"
)

// Attachment says how a pod is joined to its node.
type Attachment uint8

const (
	_ Attachment = iota
	// Bridge joins each pod to its node's bridge by a veth pair.
	Bridge
	// DirectAttach gives each pod a TUN whose other end is weftd's (weft attach). There is no bridge.
	DirectAttach
)

func (a Attachment) String() string {
	switch a {
	case Bridge:
		return "bridge"
	case DirectAttach:
		return "direct"
	default:
		return fmt.Sprintf("Attachment(%d)", uint8(a))
	}
}

// Attachments are all, in the order in which they are shown.
func Attachments() []Attachment { return []Attachment{Bridge, DirectAttach} }

// ParseAttachment reads what String writes; "" is Bridge.
func ParseAttachment(s string) (Attachment, error) {
	var words []string
	for _, a := range Attachments() {
		if s == a.String() || s == "" {
			return a, nil
		}
		words = append(words, a.String())
	}
	return 0, fmt.Errorf("attach %q: want one of %s", s, strings.Join(words, ", "))
}
