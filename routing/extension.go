package routing

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"weft/lease"
	"weft/lease/redact"
)

// typeExtension is flannel's extension: the operator's commands make peers reachable.
const typeExtension = "extension"

func extensionType() Type {
	return Type{Name: typeExtension, Settings: func(lease.NetworkConfig, func(string) bool) settings { return new(extension) }}
}

// extension leaves it to commands of the operator's to make peers reachable, and wants nothing of the kernel itself.
// Each command is split at white space, and $NAME or ${NAME} in a word stands for a variable of its environment; there
// is no shell, and no value is ever split or expanded again.
type extension struct {
	// PreStartupCommand runs before there is a lease. The lease record carries its output as BackendData.
	PreStartupCommand string
	// PostStartupCommand runs once the lease is known, with NETWORK, SUBNET, IPV6NETWORK, IPV6SUBNET,
	// PUBLIC_IP and PUBLIC_IPV6.
	PostStartupCommand string
	// SubnetAddCommand and SubnetRemoveCommand run for a peer, with SUBNET, IPV6SUBNET, PUBLIC_IP and
	// PUBLIC_IPV6; their standard input is what the peer's PreStartup printed. SubnetAdd runs again
	// after a restart, so it has to cope with what it made before.
	SubnetAddCommand, SubnetRemoveCommand string
	// ShutdownCommand runs when the daemon is asked to stop, with the variables of PostStartup.
	ShutdownCommand string
	plain
	data string // what PreStartup printed
}

// Facts implements settings.
func (e *extension) Facts() Facts {
	return Facts{Carrier: CarrierOthers, Commands: []Command{
		{"PreStartupCommand", e.PreStartupCommand}, {"PostStartupCommand", e.PostStartupCommand}, {"SubnetAddCommand", e.SubnetAddCommand},
		{"SubnetRemoveCommand", e.SubnetRemoveCommand}, {"ShutdownCommand", e.ShutdownCommand},
	}}
}

// variables are the environment of a command, in addition to what is public of the daemon's own.
type variables [][2]string

func (v variables) environ() []string {
	var out []string
	for _, e := range v {
		out = append(out, e[0]+"="+e[1])
	}
	return out
}

// lookup finds a variable: one of v before one of the daemon's.
func (v variables) lookup(name string) string {
	for _, e := range v {
		if e[0] == name {
			return e[1]
		}
	}
	if secret(name) {
		return ""
	}
	return os.Getenv(name)
}

// public returns environ without variables that commands do not need and might pass on: above all the
// store's passwords, under flannel's names, ours and etcdctl's.
func public(environ []string) []string {
	var out []string
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); !secret(name) {
			out = append(out, e)
		}
	}
	return out
}

// secret reports whether a variable of that name holds a secret. etcdctl's user may have the password behind a colon.
func secret(name string) bool {
	return redact.Name(name) || strings.Contains(strings.ToUpper(name), "ETCDCTL_USER")
}

// splitCommand makes a command's words. A variable's value never becomes two words, and is not
// looked at again.
func splitCommand(command string, lookup func(string) string) []string {
	words := strings.Fields(command)
	for i, w := range words {
		words[i] = os.Expand(w, lookup)
	}
	return words
}

// recordVariables are those about a node's subnets and addresses. A family that it has not is empty.
func recordVariables(r lease.Record) variables {
	return variables{
		{"SUBNET", prefixText(r.V4)}, {"IPV6SUBNET", prefixText(r.V6)},
		{"PUBLIC_IP", addrText(r.PublicIP)}, {"PUBLIC_IPV6", addrText(r.PublicIPv6)},
	}
}

// nodeVariables are those about this node.
func nodeVariables(s situation) variables {
	own := s.set.Own
	own.PublicIP, own.PublicIPv6 = s.under.Ext4, s.under.Ext6
	return append(variables{{"NETWORK", prefixText(s.set.Config.Network)}, {"IPV6NETWORK", prefixText(s.set.Config.IPv6Network)}}, recordVariables(own)...)
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// extPeer is what SubnetAdd ran for. It is comparable, and what the state file keeps.
type extPeer struct {
	V4   netip.Prefix `json:",omitzero"`
	V6   netip.Prefix `json:",omitzero"`
	IP   netip.Addr   `json:",omitzero"`
	IPv6 netip.Addr   `json:",omitzero"`
	// Data is what the peer's PreStartup printed: anything.
	Data string `json:",omitempty"`
}

func (p extPeer) subnets() lease.Subnets { return lease.Subnets{V4: p.V4, V6: p.V6} }

func (p extPeer) variables() variables {
	return recordVariables(lease.Record{Subnets: p.subnets(), Attrs: lease.Attrs{PublicIP: p.IP, PublicIPv6: p.IPv6}})
}

// newExtPeer converts a record, or says why it is not used. BackendData is a JSON string or absent.
func newExtPeer(r lease.Record) (extPeer, string) {
	p := extPeer{V4: r.V4, V6: r.V6, IP: r.PublicIP, IPv6: r.PublicIPv6}
	if !strings.EqualFold(r.BackendType, typeExtension) {
		return p, fmt.Sprintf("its backend is %s, this network's is %s", backendName(r.BackendType), typeExtension)
	}
	if given(r.BackendData) {
		if err := json.Unmarshal(r.BackendData, &p.Data); err != nil {
			return p, fmt.Sprintf("its BackendData is %s, which is no text", shorten(r.BackendData))
		}
	}
	return p, ""
}

// extPlan says for which peers to run commands: one that changed is removed and added, a new one is
// added, and those that are gone are removed last. It is pure; both results are in the order of their
// arguments.
func extPlan(have, want []extPeer) (change []extChange, remove []extPeer) {
	there := make(map[lease.Subnets]extPeer, len(have))
	for _, h := range have {
		there[h.subnets()] = h
	}
	wanted := make(map[lease.Subnets]bool, len(want))
	for _, w := range want {
		wanted[w.subnets()] = true
		h, known := there[w.subnets()]
		switch {
		case !known:
			change = append(change, extChange{add: w})
		case h != w:
			change = append(change, extChange{old: &h, add: w})
		}
	}
	for _, h := range have {
		if !wanted[h.subnets()] {
			remove = append(remove, h)
		}
	}
	return change, remove
}

// extChange is one peer to add; old is what was added for it before, if it has changed.
type extChange struct {
	old *extPeer
	add extPeer
}

func (*extension) trait() trait {
	return trait{name: typeExtension, record: typeExtension, path: PathCommand, last: true}
}

func (e *extension) publish() (data, v6data json.RawMessage) {
	if e.PreStartupCommand == "" {
		return nil, nil
	}
	data, _ = json.Marshal(e.data) // a string is always JSON
	return data, nil
}

func (e *extension) want(s situation) desired {
	var d desired
	for _, r := range s.set.Peers {
		_, why := newExtPeer(r)
		for _, f := range families(r, s.set, s.under) {
			report := f.reached(r)
			if report.How = HowCommand; why != "" {
				report = report.skip("%s", why)
			}
			d.reached = append(d.reached, report)
		}
	}
	return d
}
