package doctor

// ID names a check. Scripts go by it, and it stays from release to release.
type ID string

// The checks.
const (
	CheckDaemon           ID = "daemon"
	CheckCustody          ID = "custody"
	CheckPods             ID = "pods"
	CheckPodBridge        ID = "pod-bridge"
	CheckWayOut           ID = "way-out"
	CheckEncryption       ID = "encryption"
	CheckRouteController  ID = "route-controller"
	CheckSettings         ID = "settings"
	CheckKernelVersion    ID = "kernel-version"
	CheckTUNDevice        ID = "tun-device"
	CheckKernelFeature    ID = "kernel-feature"
	CheckCapNetAdmin      ID = "cap-net-admin"
	CheckCapNetRaw        ID = "cap-net-raw"
	CheckForwardingIPv4   ID = "forwarding-ipv4"
	CheckForwardingIPv6   ID = "forwarding-ipv6"
	CheckNeighbours       ID = "neighbours"
	CheckConntrack        ID = "conntrack"
	CheckRPFilter         ID = "rp-filter"
	CheckBridgeNetfilter  ID = "bridge-netfilter"
	CheckStoreSettings    ID = "store-settings"
	CheckCertificates     ID = "certificates"
	CheckStoreEndpoint    ID = "store-endpoint"
	CheckStoreRead        ID = "store-read"
	CheckStoreWatch       ID = "store-watch"
	CheckClock            ID = "clock"
	CheckStoreCertificate ID = "store-certificate"
	CheckNetworkConfig    ID = "network-config"
	CheckConfigKeys       ID = "config-keys"
	CheckConfigRunning    ID = "config-running"
	CheckOverlap          ID = "overlap"
	CheckSubnetsLeft      ID = "subnets-left"
	CheckDuplicateAddress ID = "duplicate-address"
	CheckIdentity         ID = "identity"
	CheckFirewallInput    ID = "firewall-input"
	CheckFirewallOutput   ID = "firewall-output"
	CheckFirewallForward  ID = "firewall-forward"
	CheckInterface        ID = "interface"
	CheckMTU              ID = "mtu"
	CheckPort             ID = "port"
	CheckPolicyRules      ID = "policy-rules"
	CheckRouteShadow      ID = "route-shadow"
	CheckPeerRoute        ID = "peer-route"
	CheckPeerUnderlay     ID = "peer-underlay"
	CheckPeerAnswers      ID = "peer-answers"
	CheckPeerPackets      ID = "peer-packets"
)

// Check is one of the checks.
type Check struct {
	ID ID
	// Looks says what it looks at.
	Looks string
	of    of
	run   func(*Facts) []Finding
}

// of says what a check is about.
type of uint8

const (
	// ofStart: weftd has to have it before it can start.
	ofStart of = 1 << iota
	// ofRunning: it means nothing while no weftd runs.
	ofRunning
	// ofTUN: it belongs where the TUN is.
	ofTUN
)

// Checks lists all checks, in the order in which they are reported.
func Checks() []Check {
	return []Check{
		{CheckDaemon, "whether weftd runs and answers, and is ready", ofRunning, checkDaemon},
		{
			CheckCustody, "whether a restart of weftd leaves the interfaces of directly attached pods",
			ofRunning, checkCustody,
		},
		{CheckPods, "whether the pods that are attached directly have their ports", ofRunning, checkPods},
		{CheckPodBridge, "whether the bridge of pods is up", ofTUN, checkPodBridge},
		{
			CheckWayOut, "where packets to neither pods nor peers go, if the TUN is in a network namespace of its own",
			ofRunning, checkWayOut,
		},
		{CheckEncryption, "whether peers of backend wireguard have sessions", ofRunning, checkEncryption},
		{
			CheckRouteController, "what the controller of backend route-hook says of this node's routes, and " +
				"whether it can be asked",
			ofRunning, checkRoutes,
		},
		{CheckSettings, "whether weftd's flags and variables are understood", ofStart, checkSettings},
		{CheckKernelVersion, "whether the kernel is recent enough", 0, checkRelease},
		{CheckTUNDevice, "/dev/net/tun, where the data plane needs it", ofStart, checkTUN},
		{CheckKernelFeature, "what the backend has the kernel do", ofStart | ofTUN, checkFeature},
		{
			CheckCapNetAdmin, "the capability to change devices, addresses, routes and rules",
			ofStart, checkNetAdmin,
		},
		{CheckCapNetRaw, "the capability to use packet sockets", ofStart, checkNetRaw},
		{CheckForwardingIPv4, "whether the kernel forwards IPv4", ofTUN, checkForwarding4},
		{CheckForwardingIPv6, "whether the kernel forwards IPv6", ofTUN, checkForwarding6},
		{CheckNeighbours, "whether the kernel's tables of neighbours have room", 0, checkNeighbours},
		{CheckConntrack, "whether the kernel's table of connections has room", 0, checkConntrack},
		{CheckRPFilter, "whether reverse path filtering refuses peers' packets", 0, checkReversePath},
		{
			CheckBridgeNetfilter, "whether iptables sees packets between pods on one bridge",
			ofTUN, checkBridgeNetfilter,
		},
		{CheckStoreSettings, "endpoints, files and login of the store", ofStart, checkStoreSettings},
		{
			CheckCertificates, "the files with certificates: present, readable, of one another, in time",
			0, checkFiles,
		},
		{
			CheckStoreEndpoint, "whether each endpoint of the store answers, and who it says it is",
			0, checkEndpoints,
		},
		{CheckStoreRead, "whether the store lets this node read with its credentials", 0, checkStoreRead},
		{
			CheckStoreWatch, "whether the running weftd, too, has its store's answers, now and lately",
			ofRunning, checkStoreWatch,
		},
		{CheckClock, "this host's clock against the store's", 0, checkClock},
		{CheckStoreCertificate, "when the store's own certificate ends", 0, checkServerCertificate},
		{
			CheckNetworkConfig, "whether there is a network config, and whether it can be used",
			ofStart, checkConfig,
		},
		{CheckConfigKeys, "keys of the network config that nobody reads", ofStart, checkKeys},
		{CheckConfigRunning, "the network config against the one that runs here", ofRunning, checkRunning},
		{
			CheckOverlap, "whether the overlay contains the store, peers or this host's own networks",
			ofTUN, checkOverlap,
		},
		{CheckSubnetsLeft, "how many subnets are left", 0, checkLeft},
		{CheckDuplicateAddress, "whether two nodes publish one address", 0, checkDuplicates},
		{CheckIdentity, "whether this node's record is its own", ofRunning, checkIdentity},
		{
			CheckFirewallInput, "whether a firewall of this host may drop peers' datagrams to the overlay's port",
			0, checkInput,
		},
		{CheckFirewallOutput, "whether a firewall of this host may drop datagrams to peers", 0, checkOutput},
		{
			CheckFirewallForward, "whether a firewall of this host may drop packets between pods and the overlay",
			ofTUN, checkForward,
		},
		{
			CheckInterface, "the interface that is chosen for the underlay, against where the peers are",
			ofStart, checkInterface,
		},
		{CheckMTU, "the MTU of the underlay against that of the overlay", ofStart, checkMTU},
		{CheckPort, "whether another process has the overlay's port", 0, checkPort},
		{CheckPolicyRules, "rules that send the overlay's packets to other routing tables", ofTUN, checkRules},
		{CheckRouteShadow, "routes within Network that are not weft's", ofTUN, checkShadows},
		{
			CheckPeerRoute, "whether packets to each peer's subnet go into the overlay",
			ofRunning | ofTUN, checkPeerRoutes,
		},
		{CheckPeerUnderlay, "the way to each peer's own address", 0, checkPeerWays},
		{
			CheckPeerAnswers, "what weftd's questions to each peer through the overlay have shown",
			ofRunning, checkPeerAnswers,
		},
		{CheckPeerPackets, "whether what comes from each peer can be read", ofRunning, checkPeerPackets},
	}
}
