package lease

import (
	"fmt"
	"net/netip"
	"strings"
)

// maxName is the longest name of a node, in bytes: that of a name in the DNS.
const maxName = 253

// ValidName reports whether name can be the name of a node: letters, digits, dots, dashes and underscores, at
// most 253 of them, as in the names of hosts. So it can be printed, and stand in a label or on a command
// line.
func ValidName(name string) bool { return len(name) <= maxName && ValidNode(name) }

// HostName returns the name under which a host is known to others, "" if name, which is what the host calls
// itself, does not tell it from other hosts, or is no name.
func HostName(name string) string {
	first, _, _ := strings.Cut(name, ".")
	if strings.EqualFold(first, "localhost") || !ValidName(name) {
		return ""
	}
	return name
}

// Name returns what people call the owner of the record: in Kubernetes the Node's name, else the name that
// the node published, else its identity; "" for a record without any, as flannel writes it.
func (r *Record) Name() string {
	switch {
	case r.Kube != nil && r.Kube.Name != "":
		return r.Kube.Name
	case r.PublishedName() != "":
		return r.PublishedName()
	}
	return r.Node()
}

// Called returns Name, or the record's subnet where nothing else is known of its owner.
func (r *Record) Called() string {
	switch name := r.Name(); {
	case name != "":
		return name
	case r.V4.IsValid():
		return r.V4.String()
	}
	return r.V6.String()
}

// PublishedName is the name in our object.
func (a Attrs) PublishedName() string {
	if a.Weft == nil {
		return ""
	}
	return a.Weft.Name
}

// DescribeOwner names a node for an error or a log line.
func DescribeOwner(name, node string, address netip.Addr) string {
	who := fmt.Sprintf("node %q", node)
	switch {
	case node == "":
		who = "a node without identity"
	case name != "" && name != node:
		who = fmt.Sprintf("node %q (id %s)", name, node)
	}
	if !address.IsValid() {
		return who
	}
	return fmt.Sprintf("%s at %s", who, address)
}
