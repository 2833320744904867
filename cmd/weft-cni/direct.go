package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"weft/cmd/internal/podport"
	"weft/cmd/internal/podtun"
	"weft/cmd/internal/socket"
	"weft/cmd/weft-cni/internal/delegate"
	"weft/cmd/weft-cni/internal/netconf"
)

// byPlugin is podport.Request.By of this program.
const byPlugin = "weft-cni"

// limited is the specification's code for a STATUS that says that those who are attached may be cut off too.
const limited = 51

// noted is the file in the directory of the state that says that people have been told what rules of the host
// do not see. Its name does not begin as those of temporary files do, which GC deletes.
const noted = ".direct-noted"

func weftd(direct netconf.Direct) podport.Client {
	return podport.Client{Socket: direct.ControlSocket, Timeout: askTimeout}
}

// listens refuses a direct attachment while weftd is away, before an address is taken for it.
func (r request) listens(ctx context.Context, d netconf.Delegate) error {
	direct, ok := d.Direct()
	if !ok {
		return nil
	}
	if _, err := weftd(direct).Pods(ctx); err != nil {
		return types.NewError(types.ErrTryAgainLater, "a pod is attached directly by weftd alone: "+err.Error(), "")
	}
	return nil
}

// attachDirectly makes the interface for the addresses that the ipam plugin has given, and hands it to weftd.
// detachDirectly removes the rest of a failed attempt.
func (r request) attachDirectly(ctx context.Context, direct netconf.Direct, given types.Result,
	env netconf.Env) (types.Result, error) {
	asked := given.Version()
	result, err := types100.GetResult(given)
	if err != nil {
		return nil, fmt.Errorf("result of ipam: %w", err)
	}
	spec, err := r.spec(direct, result)
	if err != nil {
		return nil, err
	}
	r.forward(spec)
	tun, err := podtun.Make(spec)
	if err != nil {
		return nil, types.NewError(types.ErrInternal, "make the pod's interface: "+err.Error(), "")
	}
	defer tun.Close() // weftd has one of its own, and the device does not need this one
	fds := []int{int(tun.Fd())}
	if settings, err := podtun.OpenSettings(spec.Netns, spec.Name, podport.Settings()); err == nil {
		// without them the interface keeps its MTU when the overlay's changes
		for _, f := range settings {
			defer f.Close()
			fds = append(fds, int(f.Fd()))
		}
	}
	_, err = weftd(direct).Attach(ctx, podport.Request{
		Key:  podport.Key{ID: r.id.Container, Interface: r.id.Interface},
		Name: podName(r.call.Args), Netns: r.call.NetNS, By: byPlugin, Addresses: spec.Addresses, MTU: spec.MTU,
	}, fds)
	switch {
	case errors.Is(err, socket.ErrRefused):
		return nil, types.NewError(types.ErrInternal, "weftd does not attach the pod: "+err.Error(), "")
	case err != nil:
		return nil, types.NewError(types.ErrTryAgainLater, "weftd: "+err.Error(), "")
	}
	r.note(env)
	return directResult(spec, result).GetAsVersion(asked)
}

// spec is the interface that the pod with that result is to have.
func (r request) spec(direct netconf.Direct, result *types100.Result) (podtun.Spec, error) {
	s := podtun.Spec{Netns: r.call.NetNS, Name: r.call.IfName, MTU: direct.MTU}
	for _, ip := range result.IPs {
		if i := ip.Interface; i != nil && *i >= 0 && *i < len(result.Interfaces) &&
			result.Interfaces[*i].Name != r.call.IfName {
			continue // another plugin's of the list
		}
		a, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return s, fmt.Errorf("ipam gives the address %s", ip.Address.IP)
		}
		s.Addresses = append(s.Addresses, a.Unmap())
	}
	if len(s.Addresses) == 0 {
		return s, errors.New("ipam gives no address")
	}
	add := func(p netip.Prefix) {
		has := slices.ContainsFunc(s.Addresses, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() })
		if has && !slices.Contains(s.Routes, p) {
			s.Routes = append(s.Routes, p)
		}
	}
	for _, route := range result.Routes {
		a, ok := netip.AddrFromSlice(route.Dst.IP)
		bits, _ := route.Dst.Mask.Size()
		if !ok {
			return s, fmt.Errorf("ipam gives a route to %s", route.Dst.IP)
		}
		add(netip.PrefixFrom(a.Unmap(), bits).Masked())
	}
	if direct.DefaultRoute {
		add(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		add(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	return s, nil
}

// directResult is the result of an ADD: the addresses have the length that they have on the interface, and
// there is no gateway.
func directResult(s podtun.Spec, ipam *types100.Result) *types100.Result {
	out := &types100.Result{
		CNIVersion: types100.ImplementedSpecVersion, DNS: ipam.DNS,
		Interfaces: []*types100.Interface{{Name: s.Name, Mtu: s.MTU, Sandbox: s.Netns}},
	}
	for _, a := range s.Addresses {
		out.IPs = append(out.IPs, &types100.IPConfig{Interface: types100.Int(0),
			Address: net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}})
	}
	for _, p := range s.Routes {
		out.Routes = append(out.Routes,
			&types.Route{Dst: net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}})
	}
	return out
}

// detachDirectly has weftd forget the pod, and removes its interface. Neither has to work for the address to
// be freed: weftd may be away, and sees when it is back that the interface is gone; and the interface goes
// with the namespace.
func (r request) detachDirectly(ctx context.Context, direct netconf.Direct, call delegate.Call) {
	k := podport.Key{ID: call.ContainerID, Interface: call.IfName}
	_, err := weftd(direct).Detach(ctx, k)
	if err != nil && !errors.Is(err, socket.ErrNotFound) && !errors.Is(err, socket.ErrNoDaemon) {
		fmt.Fprintf(r.stderr, "weft-cni: detach %s: %v\n", k, err)
	}
	if call.NetNS == "" {
		return
	}
	if err := podtun.Remove(call.NetNS, call.IfName); err != nil {
		fmt.Fprintf(r.stderr, "weft-cni: detach %s: %v\n", k, err)
	}
}

// checkDirectly says whether the pod's interface is as ADD left it, and whether weftd has it.
func (r request) checkDirectly(ctx context.Context, direct netconf.Direct) error {
	prev, err := r.prev()
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	list, away := weftd(direct).Pods(ctx)
	k := podport.Key{ID: r.id.Container, Interface: r.id.Interface}
	i := slices.IndexFunc(list.Pods, func(p podport.Pod) bool { return p.Key == k })
	spec, err := r.spec(direct, prev)
	if i >= 0 && list.Pods[i].FollowsMTU {
		spec.MTU = list.Pods[i].MTU // weftd has given it the overlay's since
	}
	if err == nil {
		err = podtun.Check(spec)
	}
	if err != nil {
		return types.NewError(types.ErrInternal, err.Error(), "")
	}
	if away != nil {
		return types.NewError(types.ErrTryAgainLater, "whether weftd has the pod is not known: "+away.Error(), "")
	}
	switch {
	case i < 0:
		return types.NewError(types.ErrInternal,
			fmt.Sprintf("weftd knows no pod %s: no packet passes, and the container has to be made anew", k), "")
	case list.Pods[i].State != podport.Attached:
		return types.NewError(types.ErrInternal, fmt.Sprintf("%s is %s at weftd: %s", k, list.Pods[i].State,
			list.Pods[i].Problem), "")
	}
	for _, a := range spec.Addresses {
		if !slices.Contains(list.Pods[i].Addresses, a) {
			return types.NewError(types.ErrInternal, fmt.Sprintf("weftd has %s with the addresses %s, and not %s", k,
				list.Pods[i].Addresses, a), "")
		}
	}
	return nil
}

// prev is the result of ADD, as the runtime hands it back.
func (r request) prev() (*types100.Result, error) {
	result, err := delegate.ParseResult(r.CNIVersion, r.PrevResult)
	if err != nil {
		return nil, fmt.Errorf("prevResult: %w", err)
	}
	return result, nil
}

// statusDirectly says whether weftd would attach a pod.
func (r request) statusDirectly(ctx context.Context, direct netconf.Direct) error {
	list, err := weftd(direct).Pods(ctx)
	switch {
	case errors.Is(err, socket.ErrNoDaemon):
		return types.NewError(limited, "pods are attached directly, by weftd alone, and those of this node have "+
			"no connection without it: "+err.Error(), "")
	case err != nil:
		return types.NewError(errNotAvailable, err.Error(), "")
	case !list.Node.Attaches:
		return types.NewError(errNotAvailable, "weftd attaches no pods now: "+list.Node.Why, "")
	}
	return nil
}

// note tells people once for each node, on standard error, which a runtime logs, what they might not expect.
func (r request) note(env netconf.Env) {
	f, err := os.OpenFile(filepath.Join(r.DataDir, noted), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return // they have been told, or cannot be told only once
	}
	_ = f.Close() // nothing was written
	fmt.Fprintf(r.stderr, "weft-cni: network %s attaches pods directly (\"attach\": \"direct\"). What passes "+
		"between them, and between them and other nodes, does not pass the host's firewall: "+
		"a NetworkPolicy that is made of host rules does not hold for them. If you need one, leave the key "+
		"attach out. This is said once on a node.\n", r.Name)
	if !env.IPMasq {
		fmt.Fprintln(r.stderr, "weft-cni: with \"attach\": \"direct\" this plugin masquerades nothing, and the "+
			"node's subnet file says that nobody does: what pods send to other networks has their own addresses. "+
			"weftd --ip-masq masquerades.")
	}
}

// forward lets the host forward packets, as plugin bridge does for its pods: it is the host that takes the
// pod's packets to other networks.
func (r request) forward(s podtun.Spec) {
	for path, wanted := range map[string]func(netip.Addr) bool{
		"/proc/sys/net/ipv4/ip_forward": netip.Addr.Is4, "/proc/sys/net/ipv6/conf/all/forwarding": netip.Addr.Is6,
	} {
		if !slices.ContainsFunc(s.Addresses, wanted) {
			continue
		}
		if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) != "0" {
			continue
		}
		if err := os.WriteFile(path, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(r.stderr, "weft-cni: %v: pods reach the overlay, and nothing beyond it\n", err)
		}
	}
}

// podName is the name of a Kubernetes pod, as its runtime puts it into CNI_ARGS; "" if there is none.
func podName(args string) string {
	var namespace, name string
	for pair := range strings.SplitSeq(args, ";") {
		switch key, value, _ := strings.Cut(pair, "="); key {
		case "K8S_POD_NAMESPACE":
			namespace = value + "/"
		case "K8S_POD_NAME":
			name = value
		}
	}
	if name == "" {
		return ""
	}
	return namespace + name
}
