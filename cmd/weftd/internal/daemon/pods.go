package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/hostlocal"
	"weft/cmd/internal/options"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/rights"
	"weft/cmd/internal/statefiles"
	"weft/cmd/weftd/internal/pods"
	"weft/routing"
	"weft/tunnel"
	"weft/tunnel/port"
)

// openPods takes up the directly attached pods of an earlier run, with what of theirs was kept. It is done
// once no other weftd answers on the control socket, and before anything is served there.
func (d *Daemon) openPods(ctx context.Context) {
	d.openCustody(ctx)
	d.pods = newPods(d.cfg, podKeeper{ctx, d.custody, d.log.With("component", "pods")}, d.log)
}

// closePods gives up weftd's own descriptors of pods.
func (d *Daemon) closePods() {
	if d.pods != nil {
		d.pods.Close()
	}
}

// newPods returns the pods that are attached directly, with those of an earlier run.
func newPods(cfg options.Config, keeper pods.Keeper, log *slog.Logger) *pods.Set {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		log.Debug("which run of the kernel this is is not known", "reason", err)
	}
	return pods.New(pods.Options{
		File: filepath.Join(cfg.CacheDir, statefiles.Pods), Keeper: keeper, Free: freeAddresses,
		Reserved: checkAddresses, Boot: strings.TrimSpace(string(boot)), Logger: log.With("component", "pods"),
	})
}

// freeTime bounds how long the lock of host-local's store is waited for.
const freeTime = 2 * time.Second

// freeAddresses frees what is reserved for a pod that is gone.
func freeAddresses(r podport.Request) error {
	ctx, cancel := context.WithTimeout(context.Background(), freeTime)
	defer cancel()
	store, holder := reservationOf(r)
	_, err := store.Release(ctx, holder, r.Addresses...)
	return err
}

// checkAddresses says which address of a pod is not reserved for it.
func checkAddresses(r podport.Request) error {
	store, holder := reservationOf(r)
	return store.Check(holder, r.Addresses...)
}

func reservationOf(r podport.Request) (hostlocal.Store, hostlocal.Holder) {
	return hostlocal.Store{Dir: r.Reservation.Dir, Network: r.Reservation.Network},
		hostlocal.Holder{Container: r.ID, Interface: r.Interface}
}

// podCarrier gives pods their ports of one overlay's data plane.
type podCarrier struct {
	*routing.Node
	log *slog.Logger
}

// AttachPod implements pods.Carrier. Each attach asks the kernel for the device's abilities.
func (c podCarrier) AttachPod(tun int, addrs []netip.Addr, mtu int) (tunnel.PortID, error) {
	p, err := port.PodTUN(tun, 0, c.log)
	if err != nil {
		return 0, err
	}
	id, err := c.Engine().AttachPod(p, tunnel.PodOptions{Addrs: addrs, MTU: mtu})
	if err != nil {
		return 0, errors.Join(err, p.Close())
	}
	return id, nil
}

// Detach implements pods.Carrier.
func (c podCarrier) Detach(id tunnel.PortID) error { return c.Engine().Detach(id) }

// SetMTU implements pods.Carrier.
func (c podCarrier) SetMTU(id tunnel.PortID, mtu int) error { return c.Engine().SetMTU(id, mtu) }

// Stats implements pods.Carrier.
func (c podCarrier) Stats() []tunnel.PodStats { return c.Engine().Pods() }

// Routed implements pods.Carrier.
func (c podCarrier) Routed(addrs []netip.Addr) { c.SetPods(addrs) }

// servePods gives all pods ports of g.
func (d *Daemon) servePods(g *overlay) {
	d.tellPods(g)
	if g.plane == nil {
		d.pods.Serve(nil, noPorts(g.backend.Type()))
		return
	}
	d.learnFlows(g)
	d.pods.Serve(podCarrier{g.plane, d.log.With("component", "pods")}, "")
}

// learnFlows tells g's data plane, which has just begun or is about to, which flows the host's rules
// translate (Services): their answers go to the host.
func (d *Daemon) learnFlows(g *overlay) {
	if g.plane == nil || len(d.pods.List().Pods) == 0 {
		return
	}
	networks := g.network.config.Networks()
	flows, err := g.kernel.TranslatedFlows(func(client netip.Addr) bool {
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(client) })
	})
	if err != nil {
		d.log.Warn("connections of pods by way of a Service, of before this weftd, may break: which they are is "+
			"not known", "reason", err)
		return
	}
	g.plane.Engine().Learn(flows)
	if len(flows) > 0 {
		d.log.Info("connections of pods by way of a Service go on", "flows", len(flows))
	}
}

// noPorts says why a network has no ports for pods, and what to do.
func noPorts(backend string) string {
	return "with Backend.Type " + backend +
		" the kernel moves the packets, and weftd has no ports for pods: join them by a bridge (weft-cni without " +
		"\"attach\":\"direct\"), " +
		"or use a backend whose packets weftd moves, which is type udp, or vxlan with \"Userspace\":\"always\""
}

// stopPods takes the pods their ports, since the data plane has ended.
func (d *Daemon) stopPods() { d.pods.Serve(nil, "another network configuration is being taken up") }

// tellPods says what is so of this node.
func (d *Daemon) tellPods(g *overlay) {
	set, _ := g.state()
	l := pods.Local{MTU: g.backend.MTU()}
	for _, p := range []netip.Prefix{set.Own.V4, set.Own.V6} {
		if p.IsValid() {
			l.Subnets = append(l.Subnets, p.Masked())
		}
	}
	for _, p := range g.network.config.Networks() {
		l.Networks = append(l.Networks, p.Masked())
	}
	d.pods.SetLocal(l)
}

// MayAttach implements control.PodService.
func (d *Daemon) MayAttach(r podport.Request) error { return d.pods.MayAttach(r) }

// Attach implements control.PodService.
func (d *Daemon) Attach(r podport.Request, fds []int) (podport.Pod, error) {
	done, err := d.mayChange()
	if err != nil {
		rights.Close(fds)
		return podport.Pod{}, err
	}
	defer done()
	return d.pods.Attach(r, fds)
}

// Detach implements control.PodService.
func (d *Daemon) Detach(k podport.Key) (podport.Pod, error) {
	done, err := d.mayChange()
	if err != nil {
		return podport.Pod{}, err
	}
	defer done()
	return d.pods.Detach(k)
}

// Pods implements control.PodService.
func (d *Daemon) Pods() podport.Pods { return d.pods.List() }

// podCounts are nil where no pod is attached directly.
func (d *Daemon) podCounts() *control.PodCounts {
	if d.pods == nil {
		return nil
	}
	t := d.pods.Totals()
	if t.Attached+t.Waiting+t.Missing == 0 {
		return nil
	}
	t.Busiest = pods.Busiest(d.pods.List().Pods)
	return &t
}
