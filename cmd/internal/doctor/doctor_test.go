package doctor

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
	"weft/routing/routehook"
	"weft/routing/underlay"
)

// at is when the facts were gathered.
func at() time.Time { return time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC) }

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

// healthy are the facts of a node with two peers on one wire, and nothing wrong.
func healthy(t *testing.T) *Facts {
	t.Helper()
	cfg, err := options.Parse([]string{"--etcd-endpoints=https://192.0.2.9:2379"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := []byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`)
	network, err := routing.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	record := func(node, subnet, at string) lease.Record {
		return lease.Record{Subnets: lease.Subnets{V4: pfx(subnet)},
			Attrs: lease.Attrs{PublicIP: ip(at), Weft: &lease.Weft{Node: node}}}
	}
	records := []lease.Record{record("a", "10.42.1.0/24", "192.0.2.1"), record("b", "10.42.2.0/24", "192.0.2.2"),
		record("c", "10.42.3.0/24", "192.0.2.3")}
	snapshot := lease.Snapshot{Config: raw, Revision: 7}
	for i := range records {
		snapshot.Records = append(snapshot.Records, &records[i])
	}
	overlay, wire := RouteLookup{Link: "flannel0"}, RouteLookup{Link: "eth0"}
	return &Facts{
		Now:      at(),
		Settings: Settings{Config: cfg, From: "the test"},
		Daemon: Daemon{Asked: true, PID: 7, Status: control.Status{Ready: true, PID: 7, NodeID: "a",
			Lease: &control.Lease{Subnet: pfx("10.42.1.0/24"), Held: true}}},
		Kernel: Kernel{Release: "6.1.0-18-amd64", NetAdmin: true, NetRaw: true, Whose: "weftd",
			Settings: map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "0",
				"bridge/bridge-nf-call-iptables": "1", "ipv4/conf/flannel0/forwarding": "1",
				"ipv4/neigh/default/gc_thresh3": "1024", "ipv6/neigh/default/gc_thresh3": "1024"}},
		Links: Links{
			Links: []Link{
				{Index: 2, Name: "eth0", MTU: 1500, Up: true, Carrier: true, Addrs: []netip.Prefix{pfx("192.0.2.1/24")}},
				{Index: 3, Name: "flannel0", Alias: ownAlias, MTU: 1472, Up: true, Carrier: true,
					Addrs: []netip.Prefix{pfx("10.42.1.0/32")}},
				{Index: 4, Name: "cni0", Kind: "bridge", MTU: 1472, Up: true, Carrier: true,
					Addrs: []netip.Prefix{pfx("10.42.1.1/24")}},
			},
			Routes: []Route{
				{Dst: pfx("0.0.0.0/0"), Gateway: ip("192.0.2.254"), Link: "eth0"},
				{Dst: pfx("192.0.2.0/24"), Link: "eth0"},
				{Dst: pfx("10.42.0.0/16"), Link: "flannel0", Protocol: ownProtocol},
				{Dst: pfx("10.42.1.0/24"), Link: "cni0"},
			},
			Rules: []Rule{{Priority: 0, Table: 255}, {Priority: 32766, Table: 254}, {Priority: 32767, Table: 253},
				{Priority: 5200, Table: 52, To: pfx("100.64.0.0/10")}},
			Silent: map[netip.Addr]string{},
			To: map[netip.Addr]RouteLookup{ip("192.0.2.2"): wire, ip("192.0.2.3"): wire,
				ip("10.42.2.1"): overlay, ip("10.42.3.1"): overlay},
			Underlay: underlay.Link{Name: "eth0", MTU: 1500, Addr4: ip("192.0.2.1"), Ext4: ip("192.0.2.1")},
		},
		Store: Store{Asked: true, What: etcdStore, Snapshot: snapshot,
			Endpoints: []Endpoint{{URL: "https://192.0.2.9:2379", Addrs: []netip.Addr{ip("192.0.2.9")},
				Clock: true, Ahead: 300 * time.Millisecond, Within: time.Second,
				Shown: cert("etcd", at().AddDate(0, -1, 0), at().AddDate(0, 11, 0))}}},
		Network: Network{Network: network, From: "/coreos.com/network/config", Records: records,
			RecordsFrom: etcdStore, Own: lease.Subnets{V4: pfx("10.42.1.0/24")}, MTU: 1472},
		Files: []CertFile{{Flag: "etcd-cafile", Path: "/ca.pem", Begins: at().AddDate(-1, 0, 0),
			Ends: at().AddDate(9, 0, 0)}},
	}
}

func cert(name string, begins, ends time.Time) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotBefore: begins, NotAfter: ends}
}

// bad lists what is not well, as "id verdict".
func bad(r Report) []string {
	var out []string
	for _, x := range r.Findings {
		if x.Verdict != OK && x.Verdict != Unknown {
			out = append(out, x.ID+" "+string(x.Verdict))
		}
	}
	return out
}

// What weftd notes is told, but for what another check says with more.
func TestNotesOfWeftd(t *testing.T) {
	f := healthy(t)
	f.Daemon.Status.Notes = []string{"no peer answers", "a disk is full"}
	f.Daemon.Status.NoteCodes = []control.Code{control.NoPeerAnswers, control.CacheNotSaved}
	got := checkDaemon(f)
	if len(got) != 1 || got[0].Verdict != Note || !strings.Contains(got[0].Found, "a disk is full") {
		t.Errorf("%+v", got)
	}
}

// Each row makes one fault in a healthy node. The checks name that one, with a remedy, and no other.
func TestChecks(t *testing.T) {
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
	}
	endpoint := func(err error) func(*Facts) {
		return func(f *Facts) {
			f.Store.Endpoints[0].Err, f.Store.Endpoints[0].Clock = err,
				false
			f.Store.Err = err
		}
	}
	lost := func(n int) []events.Event {
		return slices.Repeat([]events.Event{{Time: at(), Kind: events.Kind(lease.EventStoreLost),
			Details: map[string]string{"cause": "silent since 8s"}}}, n)
	}
	file := func(begins, ends time.Time, err error) func(*Facts) {
		return func(f *Facts) {
			f.Files = append(f.Files, CertFile{Flag: "etcd-certfile", Path: "/client.pem", Err: err, Begins: begins,
				Ends: ends})
		}
	}
	config := func(text string) func(*Facts) {
		return func(f *Facts) {
			n, err := routing.Parse([]byte(text))
			if err != nil { // what the running weftd uses stays
				n.NetworkConfig = f.Network.NetworkConfig
			}
			f.Network.Network, f.Network.Err = n, err
		}
	}
	route := func(r Route) func(*Facts) { return func(f *Facts) { f.Links.Routes = append(f.Links.Routes, r) } }
	out := func(o control.WayOut) func(*Facts) {
		return func(f *Facts) { f.Daemon.Status.Namespace = &control.Namespace{PID: 7, Out: &o} }
	}
	setting := func(name, value string) func(*Facts) {
		return func(f *Facts) {
			if f.Kernel.Settings[name] = value; value == "" {
				delete(f.Kernel.Settings, name)
			}
		}
	}
	hook := healthy(t).Network
	hook.Network, _ = routing.Parse([]byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"route-hook"}}`))
	hook.MTU = 1500
	third, few := 0.3, 0.06
	probed := func(x control.Probe) func(*Facts) {
		return func(f *Facts) { f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Probes: []control.Probe{x}}} }
	}
	sealed := func(inPlace bool) func(*Facts) {
		return func(f *Facts) {
			f.Daemon.Status.Backend.Encrypt, f.Daemon.Status.Rules.InPlace, f.Daemon.Status.Rules.LastError = "always",
				inPlace, ""
			if !inPlace {
				f.Daemon.Status.Rules.LastError = "nftables: operation not permitted"
			}
		}
	}
	encrypted := func(x control.Encryption) func(*Facts) {
		return func(f *Facts) {
			f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Encryption: []control.Encryption{x}}}
		}
	}
	controlled := func(c control.Controller) func(*Facts) {
		return func(f *Facts) {
			c.Controller = "https://routes.example/v1/views/a"
			f.Daemon.Status.Controller = &c
		}
	}
	dropped := []hostrules.Suspect{{Hook: "input", Table: "ip filter", Chain: "INPUT", Rule: 3, Dropped: 7}}
	silent := []control.Peer{{Name: "b", Address: ip("192.0.2.2"),
		Probes: []control.Probe{{Answers: "no", Since: at()}}}}
	suspect := func(hook, table, chain, owner string) []hostrules.Suspect {
		return []hostrules.Suspect{{Hook: hook, Table: table, Chain: chain, Owner: owner}}
	}
	for _, tt := range []struct {
		name string
		make func(*Facts)
		want string // "id verdict", with commas; "" for nothing
		says string // in what was found
	}{
		{"nothing", func(*Facts) {}, "", ""},
		{"no daemon", func(f *Facts) { f.Daemon = Daemon{Asked: true, Err: control.ErrNoDaemon} },
			"daemon warning", ""},
		{"a frozen daemon", func(f *Facts) { f.Daemon = Daemon{Asked: true, PID: 7, Err: control.ErrStuck} },
			"daemon fault", "pid 7"},
		{"a daemon without descriptors", func(f *Facts) {
			f.Daemon = Daemon{Asked: true, PID: 7, Err: control.ErrStuck, Descriptors: 64, MayOpen: 64}
		}, "daemon fault", "prlimit --pid 7"},
		{"a daemon that is not ready", func(f *Facts) {
			f.Daemon.Status.Ready, f.Daemon.Status.NotReady = false,
				[]string{"lease: waiting"}
		}, "daemon fault", "lease: waiting"},
		{"pods are kept", func(f *Facts) { f.Daemon.Status.Custody = &control.Custody{By: "holder", Items: 2} }, "",
			""},
		{"pods are not kept", func(f *Facts) {
			f.Daemon.Status.Custody = &control.Custody{Items: 2, Fault: "set FileDescriptorStoreMax="}
		}, "custody warning", "restart"},
		{"pods wait for weftd", func(f *Facts) {
			f.Daemon = Daemon{Asked: true, Err: control.ErrNoDaemon,
				Holder: custody.Report{PID: 8, Descriptors: 2, Left: 60000}}
		}, "daemon warning, custody warning", "1m0s"},
		{"pods have ports", func(f *Facts) { f.Daemon.Status.Pods = &control.PodCounts{Attached: 2} }, "", ""},
		{"a pod's port is missing", func(f *Facts) {
			f.Daemon.Status.Pods = &control.PodCounts{Attached: 2, Missing: 1, Problems: 1}
		}, "pods fault", ""},
		{"a pod waits", func(f *Facts) {
			f.Daemon.Status.Pods = &control.PodCounts{Attached: 2, Waiting: 1, Problems: 2}
		}, "pods warning", ""},
		{"another namespace", func(f *Facts) { f.Daemon.Elsewhere = true }, "daemon warning", ""},
		{"a bad flag", func(f *Facts) {
			f.Settings.Err = errors.New("--ifcae: did you mean --iface?\n" + options.ErrUsage.Error())
		}, "settings fault", "--iface"},
		{"a misspelt variable", func(f *Facts) { f.Settings.Unknown = []string{"WEFTD_IFCAE"} }, "settings warning",
			"WEFTD_IFCAE"},
		{"an old kernel", func(f *Facts) { f.Kernel.Release = "4.19.0-27-amd64" }, "kernel-version note", "4.19"},
		{"no tun", func(f *Facts) {
			f.Kernel.TUN = &fs.PathError{Op: "open", Path: "/dev/net/tun",
				Err: syscall.ENOENT}
		}, "tun-device fault", ""},
		{"tun forbidden", func(f *Facts) {
			f.Kernel.TUN = &fs.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.EPERM}
		}, "tun-device fault", "not permitted"},
		{"no NET_ADMIN", func(f *Facts) { f.Kernel.NetAdmin = false }, "cap-net-admin fault",
			"CAP_NET_ADMIN"},
		{"neither, for an ordinary user without a weftd", func(f *Facts) {
			f.Kernel.NetAdmin, f.Kernel.NetRaw, f.Kernel.Ordinary = false, false, true
		}, "cap-net-admin note", "weftd --rootless --check"},
		{"no NET_RAW", func(f *Facts) { f.Kernel.NetRaw = false }, "cap-net-raw warning",
			"CAP_NET_RAW"},
		{"connections have room", func(f *Facts) {
			f.Kernel.Settings[conntracked], f.Kernel.Settings[conntrackMost] = "235000", "262144"
		}, "", ""},
		{"few connections are left", func(f *Facts) {
			f.Kernel.Settings[conntracked], f.Kernel.Settings[conntrackMost] = "236000", "262144"
		}, "conntrack warning", "sysctl -w net.netfilter.nf_conntrack_max=524288"},
		{"no connection is left", func(f *Facts) {
			f.Kernel.Settings[conntracked], f.Kernel.Settings[conntrackMost] = "4", "4"
		}, "conntrack fault", ""},
		{"neighbours have room", func(f *Facts) {
			f.Kernel.Neighbours = []Neighbours{{Family: "IPv4",
				Entries: 900, Refused: 70}}
		}, "", ""},
		{"the neighbours' table is full", func(f *Facts) {
			f.Kernel.Neighbours = []Neighbours{{Family: "IPv6",
				Entries: 700, Refused: 70, Lately: 3}}
		}, "neighbours fault", "sysctl -w net.ipv6.neigh.default.gc_thresh3=4096"},
		{"the neighbours' table is nearly full", func(f *Facts) {
			f.Kernel.Neighbours = []Neighbours{{Family: "IPv4",
				Entries: 922}}
		}, "neighbours warning", "net.ipv4.neigh.default.gc_thresh2"},
		{"no forwarding", setting("ipv4/ip_forward", "0"), "forwarding-ipv4 fault", "net.ipv4.ip_forward is 0"},
		{"no forwarding where the TUN is not", func(f *Facts) {
			f.Settings.Rootless.On = true
			setting("ipv4/ip_forward", "0")(f)
		}, "", ""},
		{"no tun for an ordinary user", func(f *Facts) {
			f.Settings.Rootless.On, f.Kernel.TUN = true,
				&fs.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.EACCES}
		}, "tun-device fault", "chmod 0666"},
		{"a namespace without a way out", out(control.WayOut{Masquerade: true}), "way-out note", ""},
		{"a way out without masquerading", out(control.WayOut{IPv4: "tap0"}), "way-out note", "--ip-masq"},
		{"a way out", out(control.WayOut{IPv4: "tap0", Masquerade: true}), "", ""},
		{"no capability of an ordinary user", func(f *Facts) {
			f.Settings.Rootless.On, f.Kernel.NetAdmin, f.Kernel.NetRaw = true, false, false
		}, "", ""},
		{"no forwarding by the pods' bridge", setting("ipv4/conf/cni0/forwarding", "0"), "forwarding-ipv4 fault",
			"cni0"},
		{"the pods' bridge is down", func(f *Facts) { f.Links.Links[2].Up = false }, "pod-bridge fault", "cni0"},
		{"no forwarding by one link", setting("ipv4/conf/flannel0/forwarding", "0"), "forwarding-ipv4 fault",
			"flannel0"},
		{"no br_netfilter", setting("bridge/bridge-nf-call-iptables", ""), "bridge-netfilter note", ""},
		{"br_netfilter off", setting("bridge/bridge-nf-call-iptables", "0"), "bridge-netfilter note", "is off"},
		{"strict and symmetric", setting("ipv4/conf/eth0/rp_filter", "1"), "", ""},
		{"strict and not symmetric", func(f *Facts) {
			setting("ipv4/conf/all/rp_filter", "1")(f)
			f.Links.To[ip("192.0.2.2")] = RouteLookup{Link: "eth1"}
		}, "rp-filter fault, interface warning", "192.0.2.2"},

		{"refused", endpoint(dial(syscall.ECONNREFUSED)), "store-endpoint fault", ""},
		{"wrong password", func(f *Facts) {
			f.Store.Err = errors.New("connect to etcd: rpc error: code = InvalidArgument desc = etcdserver: " +
				"authentication failed, invalid user ID or password")
		}, "store-read fault", ""},
		{"no permission", func(f *Facts) {
			f.Store.Err = errors.New("rpc error: code = PermissionDenied desc = etcdserver: permission denied")
		}, "store-read fault", ""},
		{"anything else", func(f *Facts) { f.Store.Err = errors.New("rpc error: code = Internal desc = boom") },
			"store-read fault", ""},
		{"one of two endpoints", func(f *Facts) {
			f.Store.Endpoints = append(f.Store.Endpoints,
				Endpoint{URL: "https://192.0.2.10:2379", Err: dial(syscall.ECONNREFUSED)})
		}, "store-endpoint warning", "refuses"},
		{"a record by hand", func(f *Facts) {
			f.Store.Snapshot.Bad = []lease.Rejected{{Key: "x", Reason: lease.RejectOutside, Detail: "nonsense"}}
		}, "store-read warning", "nonsense"},
		{"the store is silent for weftd alone", func(f *Facts) {
			f.Daemon.Status.Store = control.Store{Error: "it is silent"}
		}, "store-watch warning", ""},
		{"the store is silent for weftd alone, which has a proxy", func(f *Facts) {
			f.Daemon.Status.Store, f.Settings.Proxy = control.Store{Error: "it is silent"}, "http://192.0.2.8:3128"
		}, "store-watch warning", "through the proxy http://192.0.2.8:3128"},
		{"the store is slow", func(f *Facts) {
			f.Daemon.Status.Store = control.Store{Connected: true, Took: 3 * time.Second}
		}, "store-watch warning", "3s"},
		{"the store was silent once", func(f *Facts) { f.Daemon.StoreLost = lost(1) }, "store-watch note", "8s"},
		{"the store is silent again and again", func(f *Facts) { f.Daemon.StoreLost = lost(75) },
			"store-watch warning", "min: 75"},
		{"clock", func(f *Facts) { f.Store.Endpoints[0].Ahead = -3 * time.Minute }, "clock warning", "ahead of"},
		{"clock, hours", func(f *Facts) {
			f.Store.Endpoints[0].Ahead = -5*time.Hour + 400*time.Millisecond
		}, "clock warning", "5 hours ahead of"},
		{"clock, a little", func(f *Facts) { f.Store.Endpoints[0].Ahead = 20 * time.Second },
			"clock note", "behind"},
		{"the store's certificate ends", func(f *Facts) {
			f.Store.Endpoints[0].Shown.NotAfter = at().AddDate(0, 0, 3)
		}, "store-certificate warning", "2026-11-04"},
		{"our certificate expired", file(at().AddDate(-1, 0, 0), at().AddDate(0, 0, -2), nil), "certificates fault",
			"2026-10-30"},
		{"our certificate ends soon", file(at().AddDate(-1, 0, 0), at().AddDate(0, 0, 5), nil),
			"certificates warning", "2026-11-06"},
		{"our certificate lives a day", file(at().Add(-12*time.Hour), at().Add(12*time.Hour), nil), "", ""},
		{"our certificate begins later", file(at().AddDate(0, 0, 1), at().AddDate(1, 0, 0), nil),
			"certificates fault", "2026-11-02"},
		{"our certificate is not there", file(at(), at(),
			&fs.PathError{Op: "open", Path: "/client.pem", Err: syscall.ENOENT}), "certificates fault", ""},

		{"no config", func(f *Facts) { f.Network.Err = errors.New("the store has no network config") },
			"network-config fault", ""},
		{"another prefix than before", func(f *Facts) {
			f.Network.Err, f.Network.LastStore = errors.New("the store has no network config"), "/coreos.com/network"
			f.Store.Asked, f.Store.Err, f.Store.Snapshot.Config = true, nil, nil
		}, "network-config fault", "set --etcd-prefix /coreos.com/network"},
		{"a bad config", config(`{"Network":"10.42.0.0/33"}`), "network-config fault", "10.42.0.0/33"},
		{"a misspelt key", config(`{"Network":"10.42.0.0/16","SubnetLenght":25,"Backend":{"Type":"udp"}}`),
			"config-keys warning", "SubnetLen"},
		{"a changed config", func(f *Facts) {
			f.Daemon.Status.Config = control.Config{Differs: true, Changes: []string{"port from 8285 to 9000"}}
		}, "config-running warning", "9000"},
		{"the overlay contains the store", func(f *Facts) {
			f.Store.Endpoints[0].Addrs = []netip.Addr{ip("10.42.200.9")}
		}, "overlap fault", "10.42.200.9"},
		{"the overlay contains this host", func(f *Facts) {
			f.Links.Links[0].Addrs = append(f.Links.Links[0].Addrs, pfx("10.42.77.5/24"))
		}, "overlap fault", "10.42.77.0/24"},
		{"a bridge in the overlay", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "docker0", Kind: "bridge", Up: true,
				Addrs: []netip.Prefix{pfx("10.42.77.1/24")}})
		}, "overlap fault", ""},
		{"four fifths are taken", taken(205), "subnets-left warning", "205 of 255"},
		{"nothing is left", taken(255), "subnets-left fault", "all 255"},
		{"three quarters are taken", taken(192), "", ""},
		{"one address for two", func(f *Facts) { f.Network.Records[2].PublicIP = ip("192.0.2.2") },
			"duplicate-address fault", "10.42.3.0/24"},
		{"a cloned identity", func(f *Facts) { f.Network.Records[2].Weft = &lease.Weft{Node: "a"} },
			"identity fault", "10.42.3.0/24"},

		{"no interface", func(f *Facts) {
			f.Links.Underlay, f.Links.UnderlayErr = underlay.Link{}, errors.New("no underlay interface:\n--iface eth7")
		}, "interface fault", "--iface eth7"},
		{"the interface is down", func(f *Facts) { f.Links.Links[0].Up = false }, "interface fault", "is down"},
		{"no carrier", func(f *Facts) { f.Links.Links[0].Carrier = false }, "interface fault", "no carrier"},
		{"the address moved to another interface", func(f *Facts) {
			br := RouteLookup{Link: "br0"}
			f.Links.Links[0].Addrs = nil
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "br0", Kind: "bridge", Up: true, Carrier: true,
				Addrs: []netip.Prefix{pfx("192.0.2.1/24")}})
			f.Links.To = map[netip.Addr]RouteLookup{ip("192.0.2.2"): br, ip("192.0.2.3"): br}
		}, "interface fault", "the address 192.0.2.1 is on br0 now; restart weftd with --iface br0"},
		{"a netmask that leaves out peers", func(f *Facts) {
			f.Links.Links[0].Addrs = []netip.Prefix{pfx("192.0.2.1/31")}
			f.Links.To[ip("192.0.2.3")] = RouteLookup{Err: syscall.ENETUNREACH}
		}, "peer-underlay fault", "eth0 has [192.0.2.1/31]; ip addr show eth0; ip route get 192.0.2.3"},
		{"the wrong interface", func(f *Facts) {
			other := RouteLookup{Link: "eth1"}
			f.Links.To[ip("192.0.2.2")], f.Links.To[ip("192.0.2.3")] = other, other
		}, "interface fault", "eth1"},
		{"one peer elsewhere", func(f *Facts) { f.Links.To[ip("192.0.2.3")] = RouteLookup{Link: "eth1"} },
			"interface warning", "eth1"},
		{"the overlay's MTU is too large", func(f *Facts) { f.Network.MTU = 1372 }, "mtu fault",
			"flannel0 has MTU 1472"},
		{"two devices, of two families", func(f *Facts) {
			f.Network.EnableIPv6, f.Network.MTU = true, 1430
			f.Kernel.Settings["ipv6/conf/all/forwarding"], f.Kernel.Settings["bridge/bridge-nf-call-ip6tables"] = "1",
				"1"
			f.Links.Links[1].MTU = 1450
		}, "", ""},
		{"a smaller path", func(f *Facts) { f.Links.To[ip("192.0.2.3")] = RouteLookup{Link: "eth0", MTU: 1400} },
			"mtu note", "1400"},
		{"the port is taken", func(f *Facts) {
			f.Port.Holders = []Holder{{PID: 99, Name: "flanneld", At: netip.MustParseAddrPort("0.0.0.0:8285")}}
		}, "port fault", "flanneld (pid 99)"},
		{"the second port is taken", func(f *Facts) {
			f.Port.Holders =
				[]Holder{{PID: 99, Name: "flanneld", At: netip.MustParseAddrPort("[::]:51821")}}
		}, "port fault", "51821"},
		{"a peer's packets cannot be read", func(f *Facts) {
			f.Daemon.Peers, f.Daemon.Later = malformedPeers("b", 5, "c", 5), malformedPeers("b", 1, "c", 45, "new", 2)
		}, "peer-packets fault", "c"},
		{"a peer has a session, or needs none", encrypted(control.Encryption{Device: "flannel-wg"}), "", ""},
		{"nothing may pass in plain", sealed(true), "", ""},
		{"nothing may pass in plain, and nothing keeps it", sealed(false), "encryption fault", ""},
		{"a peer has no session", encrypted(control.Encryption{Device: "flannel-wg", Likely: "its answers are " +
			"refused", Look: "compare Backend.PSK"}), "encryption fault", ""},
		{"a controller has all routes in place", controlled(control.Controller{Accepted: 3, Taken: at()}), "", ""},
		{"a controller refuses a route", controlled(control.Controller{Accepted: 2, Refused: 1, Taken: at()}),
			"route-controller fault", ""},
		{"a controller has not seen a route yet",
			controlled(control.Controller{Accepted: 2, Pending: 1, Taken: at()}), "route-controller note", ""},
		{"a controller is away", controlled(control.Controller{Accepted: 3, Taken: at().Add(-time.Hour),
			Since: at().Add(-time.Minute), Fault: "connection refused"}), "route-controller warning", "1m0s"},
		{"a controller never answered", controlled(control.Controller{Since: at().Add(-time.Minute), Fault: "401"}),
			"route-controller fault", ""},
		{"a controller does not know the token", func(f *Facts) {
			controlled(control.Controller{Since: at().Add(-time.Minute), Fault: "401"})(f)
			f.Settings.Hook = routehook.Options{CAFile: "/ca.pem", TokenFile: "/token"}
		}, "route-controller fault", `curl -sSim 10 --cacert /ca.pem -H "Authorization: Bearer $(head -n1 /token)" ` +
			"https://routes.example/v1/views/a asks it"},
		{"a controller's token is missing", func(f *Facts) {
			f.HookErr = errors.New("the token: open /token: no such file or directory")
		}, "route-controller fault", ""},
		{"a controller's authority ends", func(f *Facts) {
			f.Files = append(f.Files, CertFile{Flag: "route-hook-cafile", Path: "/routes-ca.pem",
				Begins: at().AddDate(-1, 0, 0), Ends: at().AddDate(0, 0, 3)})
		}, "certificates warning", "--route-hook-cafile /routes-ca.pem"},
		{"another's vxlan", func(f *Facts) { f.Port.Device = "vxlan.calico" }, "port warning", "vxlan.calico"},
		{"a firewall that may drop", func(f *Facts) {
			f.Firewall.Suspects = suspect("input", "ip filter", "INPUT", "")
		},
			"firewall-input note", "iptables -I INPUT -p udp --dport 8285 -j ACCEPT"},
		{"a firewall on path raw", func(f *Facts) {
			f.Firewall.Suspects, f.Daemon.Status.Backend.Path = suspect("input", "ip filter", "INPUT", ""), "raw"
		}, "", ""},
		{"firewalld, and a peer is silent", func(f *Facts) {
			f.Firewall.Suspects, f.Daemon.Peers.Peers = suspect("input", "inet firewalld", "filter_INPUT",
				"firewalld"), silent
		}, "firewall-input warning, peer-answers fault", "--add-port=8285/udp"},
		{"weft's own rules, and a peer is silent", func(f *Facts) {
			f.Daemon.Status.Rules.Pods, f.Daemon.Peers.Peers = 9, silent
		}, "firewall-input warning, peer-answers fault", "udp port 8285"},
		{"weft's own rules, and every peer answers", func(f *Facts) { f.Daemon.Status.Rules.Pods = 9 },
			"", ""},
		{"a rule that has dropped some, and a peer is silent", func(f *Facts) {
			f.Firewall.Suspects, f.Daemon.Peers.Peers = dropped, silent
		}, "firewall-input warning, peer-answers fault",
			"rule 3 of chain INPUT of table ip filter has dropped 7 packets; iptables -I INPUT -p udp --dport 8285"},
		{"a rule that has dropped some, and every peer answers", func(f *Facts) { f.Firewall.Suspects = dropped },
			"", ""},
		{"this host has a peer's address", func(f *Facts) {
			f.Links.Links[0].Addrs = append(f.Links.Links[0].Addrs, pfx("192.0.2.2/24"))
			f.Links.Neighbours = map[netip.Addr]diagnose.Neighbour{ip("192.0.2.2"): {At: ip("192.0.2.2"), Link: "eth0",
				Own: true, Answers: []net.HardwareAddr{{2, 0, 0, 0, 0, 2}}}}
		}, "duplicate-address fault, peer-underlay fault", "ip addr del 192.0.2.2/24 dev eth0"},
		{"our certificate has no key, and its authority ends soon", func(f *Facts) {
			f.Files[0].Ends = at().AddDate(0, 0, 5)
			f.Store.Check = errors.New("etcd certificate /client.pem: its key file is not given")
		}, "certificates warning, certificates fault", "its key file is not given"},
		{"a firewall for ipip", func(f *Facts) {
			config(`{"Network":"10.42.0.0/16","Backend":{"Type":"ipip"}}`)(f)
			f.Firewall.Suspects = suspect("input", "inet theirs", "c", "")
		}, "firewall-input note", "l4proto"},
		{"a firewall for what leaves", func(f *Facts) {
			f.Firewall.Suspects = suspect("output", "ip filter", "OUTPUT", "ufw")
		},
			"firewall-output note", "8285/udp"},
		{"a firewall for what is forwarded", func(f *Facts) {
			f.Settings.Rules.ForwardRules, f.Firewall.Suspects = false, suspect("forward", "ip filter", "FORWARD", "")
		}, "firewall-forward note", "iptables -I FORWARD -i"},
		{"a firewall whose forwarding weftd's rules meet", func(f *Facts) {
			f.Settings.Rules.ForwardRules, f.Firewall.Suspects = true, suspect("forward", "ip filter", "FORWARD", "")
		}, "", ""},
		{"a rule ahead of weftd's", func(f *Facts) {
			f.Settings.Rules.ForwardRules, f.Firewall.Suspects = true, suspect("forward", "ip filter", "FORWARD", "")
			f.Firewall.Suspects[0].Rule, f.Firewall.Suspects[0].Sure = 1, true
		}, "firewall-forward warning", "iptables -I FORWARD -i"},
		{"a rule ahead of weftd's that has dropped some", func(f *Facts) {
			f.Settings.Rules.ForwardRules, f.Firewall.Suspects = true, suspect("forward", "ip filter", "FORWARD", "")
			x := &f.Firewall.Suspects[0]
			x.Rule, x.Ahead, x.Dropped = 1, true, 57
		}, "firewall-forward note", "57 packets"},
		{"a policy of iptables beside weftd's nftables", func(f *Facts) {
			f.Network.EnableNFTables, f.Settings.Rules.ForwardRules = true, true
			f.Firewall.Suspects = suspect("forward", "ip filter", "FORWARD", "")
		}, "firewall-forward note", "iptables -I FORWARD -i"},
		{"rules of legacy iptables, and a peer is silent", func(f *Facts) {
			f.Firewall.Suspects, f.Daemon.Peers.Peers = suspect("input", "filter (legacy iptables)", "INPUT", ""), silent
			f.Firewall.Suspects[0].Legacy, f.Firewall.Suspects[0].Some = true, 2
		}, "firewall-input warning, peer-answers fault", "iptables-legacy -I INPUT -p udp --dport 8285 -j ACCEPT"},
		{"rules of legacy iptables, and every peer answers", func(f *Facts) {
			f.Firewall.Suspects = suspect("input", "filter (legacy iptables)", "INPUT", "")
			f.Firewall.Suspects[0].Legacy, f.Firewall.Suspects[0].Some = true, 2
		}, "", ""},
		{"a peer of another type", func(f *Facts) {
			f.Network.Records[1].BackendType = "ipip"
			f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Reached: []control.Reached{{Subnet: pfx("10.42.2.0/24"),
				How: "skipped", Reason: "its backend is ipip, this network's is udp"}}}}
		}, "peer-route fault", "on b: systemctl restart weftd"},
		{"peers of another type, which this node does not run yet", func(f *Facts) {
			f.Network.Records[1].BackendType = "ipip"
			f.Daemon.Status.Config.Changes = []string{"type from udp to ipip"}
			f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Reached: []control.Reached{{Subnet: pfx("10.42.2.0/24"),
				How: "skipped", Reason: "its backend is ipip, this network's is udp"}}}}
		}, "config-running warning, peer-route fault", "systemctl restart weftd, since this node"},
		{"routes that a controller makes", func(f *Facts) {
			f.Network = hook
			f.Links.To[ip("10.42.2.1")] = RouteLookup{Link: "eth0", Gateway: ip("192.0.2.254")}
			f.Links.To[ip("10.42.3.1")] = f.Links.To[ip("10.42.2.1")]
		}, "", ""},
		{"routes that a controller makes, and one that leads elsewhere", func(f *Facts) {
			f.Network = hook
			f.Links.To[ip("10.42.2.1")] = RouteLookup{Link: "eth0", Gateway: ip("192.0.2.254")}
			f.Links.To[ip("10.42.3.1")] = RouteLookup{Link: "tun7"}
		}, "peer-route fault", "tun7"},
		{"another network's weftd has the same directory", func(f *Facts) {
			f.Network.Saved = f.Network.Records[0]
			f.Network.Saved.V4 = pfx("10.43.1.0/24")
		}, "daemon warning", "give each its own --cache-dir"},
		{"another node has the same directory", func(f *Facts) { f.Network.Saved = f.Network.Records[1] },
			"daemon warning", "the last state is that of b with 10.42.2.0/24"},
		{"the last state is this node's", func(f *Facts) { f.Network.Saved = f.Network.Records[0] }, "", ""},
		{"a second network's device", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "flannel1", Alias: ownAlias, MTU: 8972, Up: true,
				Carrier: true, Addrs: []netip.Prefix{pfx("10.43.1.0/32")}})
		}, "", ""},
		{"a firewall beside a second network's device", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "flannel1", Alias: ownAlias, MTU: 1472, Up: true,
				Carrier: true, Addrs: []netip.Prefix{pfx("10.43.1.0/32")}})
			f.Settings.Rules.ForwardRules, f.Firewall.Suspects = false, suspect("forward", "ip filter", "FORWARD", "")
		}, "firewall-forward note", "iptables -I FORWARD -i flannel0 -j ACCEPT"},
		{"a rule", func(f *Facts) {
			f.Links.Rules = append(f.Links.Rules, Rule{Priority: 100, Table: 7, To: pfx("10.0.0.0/8")})
		}, "policy-rules warning", "table 7"},
		{"a rule with more conditions", func(f *Facts) {
			f.Links.Rules = append(f.Links.Rules, Rule{Priority: 100, Table: 7, Narrow: true})
		}, "policy-rules note", "may send"},
		{"a route of an address", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "br7", Kind: "bridge", Up: true,
				Addrs: []netip.Prefix{pfx("10.42.2.1/24")}})
			f.Links.Routes = append(f.Links.Routes, Route{Dst: pfx("10.42.2.0/24"), Link: "br7", Protocol: 2})
		}, "overlap fault, route-shadow fault", "delete the pods"},
		{"a route of a link's address", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "eth7", Up: true,
				Addrs: []netip.Prefix{pfx("10.42.2.1/24")}})
			f.Links.Routes = append(f.Links.Routes, Route{Dst: pfx("10.42.2.0/24"), Link: "eth7", Protocol: 2})
		}, "overlap fault, route-shadow fault", "ip addr del 10.42.2.1/24 dev eth7"},
		{"a bridge of a former subnet", func(f *Facts) {
			f.Links.Links = append(f.Links.Links, Link{Index: 9, Name: "cni9", Kind: "bridge", Up: true,
				Addrs: []netip.Prefix{pfx("10.42.77.1/24")}})
			f.Links.Routes = append(f.Links.Routes, Route{Dst: pfx("10.42.77.0/24"), Link: "cni9", Protocol: 2})
		}, "overlap fault", "delete the pods"},
		{"a more specific route", route(Route{Dst: pfx("10.42.2.128/25"), Link: "eth0",
			Gateway: ip("192.0.2.254")}), "route-shadow fault", "10.42.2.0/24"},
		{"a route to nobody", route(Route{Dst: pfx("10.42.9.0/24"), Link: "eth0"}), "route-shadow warning", ""},
		{"a direct route", route(Route{Dst: pfx("10.42.2.0/24"), Link: "eth0", Gateway: ip("192.0.2.2"),
			Protocol: ownProtocol}), "", ""},
		{"a blackhole of our own subnet",
			route(Route{Dst: pfx("10.42.1.0/24"), Blocks: true, Protocol: ownProtocol}), "", ""},
		{"no route", func(f *Facts) {
			f.Links.To[ip("10.42.3.1")] = RouteLookup{Link: "eth0", Gateway: ip("192.0.2.254")}
		}, "peer-route fault", "eth0"},
		{"a silent peer", func(f *Facts) { f.Links.Silent[ip("192.0.2.3")] = "eth0" }, "peer-underlay fault",
			"192.0.2.3"},
		{"a silent gateway", func(f *Facts) {
			f.Links.To[ip("192.0.2.3")] = RouteLookup{Link: "eth0", Gateway: ip("192.0.2.254")}
			f.Links.Silent[ip("192.0.2.254")] = "eth0"
		}, "peer-underlay fault", "gateway 192.0.2.254"},
		{"a peer that does not answer",
			probed(control.Probe{Answers: "no", Address: ip("10.42.2.0"), Since: at().Add(-time.Minute),
				Likely: "its weftd is stopped", Look: "systemctl status weftd"}), "peer-answers fault", ""},
		{"a peer that answers by no family", func(f *Facts) {
			no := control.Probe{Answers: "no", Since: at().Add(-time.Minute), Likely: "its host is down",
				Look: "ping it"}
			f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Probes: []control.Probe{no, no}},
				{Name: "c", Probes: []control.Probe{{Answers: "yes"}}}}
			f.Daemon.Peers.Peers[0].Probes[0].Address, f.Daemon.Peers.Peers[0].Probes[1].Address = ip("10.42.2.0"),
				ip("fd42:2::")
		}, "peer-answers fault", "10.42.2.0"},
		{"many that do not", func(f *Facts) {
			for i := range 8 {
				f.Daemon.Peers.Peers = append(f.Daemon.Peers.Peers,
					control.Peer{Name: fmt.Sprint("n", i),
						Probes: []control.Probe{{Answers: "no", Since: at().Add(-time.Minute), Likely: "a port is closed",
							Look: "open it"}}})
			}
		}, "peer-answers fault", "60"},
		{"packets lost one way", probed(control.Probe{Answers: "yes", Lossy: true, LossOut: &third}),
			"peer-answers warning", "30"},
		{"a few packets lost one way", probed(control.Probe{Answers: "yes", LossOut: &few,
			Since: at().Add(-5 * time.Minute)}), "peer-answers note", "6"},
		{"a few packets lost by a restart", probed(control.Probe{Answers: "yes", LossOut: &few,
			Since: at().Add(-time.Minute)}), "", ""},
		{"large packets lost", probed(control.Probe{Answers: "yes", LargeLost: true, PathMTU: 1280}),
			"peer-answers fault", "1280"},
		{"a peer that answers", probed(control.Probe{Answers: "yes", PathMTU: 1472}), "", ""},
		{"no way to any", func(f *Facts) {
			f.Links.Links[0].Up = false
			none := RouteLookup{Err: syscall.ENETUNREACH}
			f.Links.To[ip("192.0.2.2")], f.Links.To[ip("192.0.2.3")] = none, none
		}, "interface fault, peer-underlay fault", "192.0.2.2"},
		{"no way to a peer", func(f *Facts) { f.Links.To[ip("192.0.2.3")] = RouteLookup{Err: syscall.ENETUNREACH} },
			"peer-underlay fault", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := healthy(t)
			tt.make(f)
			r := Examine(f)
			got := bad(r)
			if got := strings.Join(slices.Compact(got), ", "); got != tt.want {
				t.Errorf("got %q, want %q\n%v", got, tt.want, r.Findings)
			}
			if strings.Contains(tt.want, " fault") == r.Healthy {
				t.Errorf("healthy: %v", r.Healthy)
			}
			said := tt.says == ""
			for _, x := range r.Findings {
				if x.Verdict == OK || x.Verdict == Unknown {
					continue
				}
				said = said || strings.Contains(x.String(), tt.says)
				if x.Remedy == "" && tt.name != "anything else" && tt.name != "a bad config" {
					t.Errorf("%q has no remedy", x)
				}
			}
			if !said {
				t.Errorf("nothing says %q: %v", tt.says, r.Findings)
			}
		})
	}
}

// malformedPeers are peers with so many malformed packets each, and others that were dropped for another
// reason.
func malformedPeers(counts ...any) (out control.Peers) {
	for i := 0; i < len(counts); i += 2 {
		out.Peers = append(out.Peers, control.Peer{Name: counts[i].(string), Drops: []control.Drop{
			{Reason: "malformed", Packets: uint64(counts[i+1].(int))}, {Reason: "stranger", Packets: 7}}})
	}
	return out
}

// Peers of which the same is to be said are one finding.
func TestPeerRoutesAreSaidOnce(t *testing.T) {
	lost, skipped := healthy(t), healthy(t)
	for _, r := range lost.peers() {
		lost.Links.To[inside(r)] = RouteLookup{Link: "tun7"}
		skipped.Daemon.Peers.Peers = append(skipped.Daemon.Peers.Peers, control.Peer{Name: r.Called(),
			Reached: []control.Reached{{Subnet: r.V4, How: "skipped", Reason: "its backend is ipip"}}})
	}
	skipped.Network.Records[1].BackendType, skipped.Network.Records[2].BackendType = "ipip", "ipip"
	for f, want := range map[*Facts]string{lost: "ip route get 10.42.2.1", skipped: "on b, c: systemctl restart weftd"} {
		if got := checkPeerRoutes(f); len(got) != 1 || got[0].Subject != "b, c" ||
			!strings.Contains(got[0].Remedy, want) {
			t.Errorf("%v, want one with %q", got, want)
		}
	}
}

// Peers whose hosts say alike that nothing listens are one finding. Their answers passed this node's link and
// rules, which so are not at fault.
func TestPeersThatRefuseAreSaidOnce(t *testing.T) {
	f := healthy(t)
	for _, a := range []string{"192.0.2.2", "192.0.2.3"} {
		f.Daemon.Peers.Peers = append(f.Daemon.Peers.Peers, control.Peer{Name: "p" + a[len(a)-1:], Weft: true,
			Path: "socket", Address: ip(a), Probes: []control.Probe{{Answers: "no", Since: at().Add(-time.Minute)}},
			Unreachable: &control.Unreachable{Says: "port unreachable", By: ip(a), Last: at()}})
	}
	got := checkPeerAnswers(f)
	if len(got) != 1 || got[0].Subject != "p2, p3" || !strings.Contains(got[0].Found, "no peer answers") ||
		slices.ContainsFunc(got[0].Open, func(c diagnose.Cause) bool { return c.Code == "own-fault" }) {
		t.Errorf("%v", got)
	}
	// A cause that was observed leaves nothing open.
	f.Links.Neighbours = map[netip.Addr]diagnose.Neighbour{}
	for i := range f.Daemon.Peers.Peers {
		f.Links.Neighbours[f.Daemon.Peers.Peers[i].Address] = diagnose.Neighbour{At: ip("192.0.2.254"),
			Link: "eth0", Pinned: true, Answers: []net.HardwareAddr{{2, 0, 0, 0, 0, 2}}}
	}
	if got := checkPeerAnswers(f); len(got) != 1 || got[0].Cause == "" || len(got[0].Open) > 0 {
		t.Errorf("%+v", got)
	}
}

// A doctor sends nobody on this host to itself.
func TestDoctorIsNoCommandOfItsOwn(t *testing.T) {
	f := healthy(t)
	for _, silence := range []string{control.SilentUnderlay, control.SilentHeard, control.SilentUnsendable} {
		f.Daemon.Peers.Peers = append(f.Daemon.Peers.Peers, control.Peer{Name: silence, Weft: true,
			Address: ip("192.0.2.2"), Probes: []control.Probe{{Answers: "no", Silence: silence}}},
			control.Peer{Name: "well", Probes: []control.Probe{{Answers: "yes"}}})
	}
	for _, x := range checkPeerAnswers(f) {
		for _, c := range x.Open {
			if c.Where == "here" && strings.Contains(c.Command, "weft doctor") || c.Command == "" {
				t.Errorf("%s: %q", c.Code, c.Command)
			}
		}
	}
}

// Since is when a peer began to answer or to be silent, which says nothing of when large packets began to be
// lost.
func TestLossHasNoDuration(t *testing.T) {
	for answers, want := range map[string]bool{"yes": false, "no": true} {
		f := healthy(t)
		f.Daemon.Peers.Peers = []control.Peer{{Name: "b", Address: ip("192.0.2.2"), Probes: []control.Probe{
			{Answers: answers, Since: at().Add(-time.Hour), Lossy: answers == "yes", PathMTU: 1280}}}}
		if found := checkPeerAnswers(f)[0].Found; strings.Contains(found, "for 60 min") != want {
			t.Errorf("%s: %s", answers, found)
		}
	}
}

// taken fills so many subnets.
func taken(n int) func(*Facts) {
	return func(f *Facts) {
		for i := range n {
			p := pfx(fmt.Sprintf("10.42.%d.0/24", i+1))
			if i+1 > 3 {
				f.Network.Records = append(f.Network.Records,
					lease.Record{Subnets: lease.Subnets{V4: p},
						Attrs: lease.Attrs{PublicIP: netip.AddrFrom4([4]byte{192, 0, 3, byte(i)})}})
			}
		}
	}
}

// Ids are what scripts go by: unique, and words with hyphens.
func TestIDsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.ID] || c.ID == "" || strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			c.Looks == "" {
			t.Errorf("%q", c.ID)
		}
		seen[c.ID] = true
	}
}

// Without anything known no check panics, and none finds a fault that is not there.
func TestNothingIsKnown(t *testing.T) {
	r := Examine(&Facts{Now: at()})
	for _, x := range r.Findings {
		if x.Verdict == Fault && x.ID != "cap-net-admin" && x.ID != "forwarding-ipv4" {
			t.Errorf("%v", x)
		}
	}
}

// The release of a kernel is read as far as it matters, whatever its distributor appended.
func TestReleases(t *testing.T) {
	for text, want := range map[string]Verdict{"6.1.0-18-amd64": OK, "5.0": OK, "4.19+": Note, "x": Unknown} {
		if got := checkRelease(&Facts{Kernel: Kernel{Release: text}}); got[0].Verdict != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
