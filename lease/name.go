package lease

import "strings"

// maxName is the longest name of a node, in bytes: that of a name in the DNS.
const maxName = 253

// ValidName reports whether name can be the name of a node: letters, digits, dots, dashes and underscores, at most
// 253 of them, as in the names of hosts. So it can be printed, and stand in a label or on a command line.
func ValidName(name string) bool { return len(name) <= maxName && validNode(name) }

// HostName returns the name under which a host is known to others, "" if name, which is what the host calls
// itself, does not tell it from other hosts, or is no name.
func HostName(name string) string {
	first, _, _ := strings.Cut(name, ".")
	if strings.EqualFold(first, "localhost") || !ValidName(name) {
		return ""
	}
	return name
}

// Name returns what people call the owner of the record: in Kubernetes the Node's name, else the name that the
// node published, else its identity; "" for a record without any, as flannel writes it.
func (r *Record) Name() string {
	switch {
	case r.Kube != nil && r.Kube.Name != "":
		return r.Kube.Name
	case r.Weft != nil && r.Weft.Name != "":
		return r.Weft.Name
	}
	return r.Node()
}
