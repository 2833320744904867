package doctor

// Check is one of the checks.
type Check struct {
	// ID names it. Scripts go by it, and it stays from release to release.
	ID string `json:"id"`
	// Looks says what it looks at.
	Looks string `json:"looks_at"`
	of    kind
	run   func(*Facts) findings
}

// kind says what a check is about, and without what it cannot look.
type kind uint8

const (
	// ofStart: weftd has to have it before it can start.
	ofStart kind = 1 << iota
	// ofRunning: it means nothing while no weftd runs.
	ofRunning
	// ofTUN: it belongs where the TUN is.
	ofTUN
	// These are for a weftd that answers, links that could be listed, and a network config and records of peers
	// that are known.
	needsWeftd
	needsLinks
	needsNetwork
	needsRecords
)

// Checks lists all checks, in the order in which they are reported.
func Checks() []Check {
	return []Check{
		{"daemon", "whether weftd runs and answers, and is ready", ofRunning, checkDaemon},
		{"custody", "whether a restart of weftd leaves the interfaces of directly attached pods",
			ofRunning, checkCustody},
		{"pods", "whether the pods that are attached directly have their ports", ofRunning, checkPods},
		{"pod-bridge", "whether the bridge of pods is up", ofTUN, checkPodBridge},
		{"way-out", "where packets to neither pods nor peers go, if the TUN is in a network namespace of its own",
			ofRunning, checkWayOut},
		{"encryption", "whether peers of backend wireguard have sessions", ofRunning, checkEncryption},
		{"route-controller", "what the controller of backend route-hook says of this node's routes, and " +
			"whether it can be asked", ofRunning, checkRoutes},
		{"settings", "whether weftd's flags and variables are understood", ofStart, checkSettings},
		{"kernel-version", "whether the kernel is recent enough", 0, checkRelease},
		{"tun-device", "/dev/net/tun, where the data plane needs it", ofStart, checkTUN},
		{"kernel-feature", "what the backend has the kernel do", ofStart | ofTUN, checkFeature},
		{"cap-net-admin", "the capability to change devices, addresses, routes and rules", ofStart, checkNetAdmin},
		{"cap-net-raw", "the capability to use packet sockets", ofStart, checkNetRaw},
		{"forwarding-ipv4", "whether the kernel forwards IPv4", ofTUN, checkForwarding4},
		{"forwarding-ipv6", "whether the kernel forwards IPv6", ofTUN, checkForwarding6},
		{"neighbours", "whether the kernel's tables of neighbours have room", 0, checkNeighbours},
		{"conntrack", "whether the kernel's table of connections has room", 0, checkConntrack},
		{"rp-filter", "whether reverse path filtering refuses peers' packets", 0, checkReversePath},
		{"bridge-netfilter", "whether iptables sees packets between pods on one bridge",
			ofTUN, checkBridgeNetfilter},
		{"store-settings", "endpoints, files and login of the store", ofStart, checkStoreSettings},
		{"certificates", "the files with certificates: present, readable, of one another, in time", 0, checkFiles},
		{"store-endpoint", "whether each endpoint of the store answers, and who it says it is", 0, checkEndpoints},
		{"store-read", "whether the store lets this node read with its credentials", 0, checkStoreRead},
		{"store-watch", "whether the running weftd, too, has its store's answers, now and lately",
			ofRunning | needsWeftd, checkStoreWatch},
		{"clock", "this host's clock against the store's", 0, checkClock},
		{"store-certificate", "when the store's own certificate ends", 0, checkServerCertificate},
		{"network-config", "whether there is a network config, and whether it can be used", ofStart, checkConfig},
		{"config-keys", "keys of the network config that nobody reads", ofStart, checkKeys},
		{"config-running", "the network config against the one that runs here", ofRunning, checkRunning},
		{"overlap", "whether the overlay contains the store, peers or this host's own networks",
			ofTUN | needsLinks | needsNetwork, checkOverlap},
		{"subnets-left", "how many subnets are left", 0, checkLeft},
		{"duplicate-address", "whether two nodes publish one address", needsRecords, checkDuplicates},
		{"identity", "whether this node's record is its own", ofRunning | needsWeftd, checkIdentity},
		{"firewall-input", "whether a firewall of this host may drop peers' datagrams to the overlay's port",
			0, checkInput},
		{"firewall-output", "whether a firewall of this host may drop datagrams to peers", 0, checkOutput},
		{"firewall-forward", "whether a firewall of this host may drop packets between pods and the overlay",
			ofTUN, checkForward},
		{"interface", "the interface that is chosen for the underlay, against where the peers are",
			ofStart, checkInterface},
		{"mtu", "the MTU of the underlay against that of the overlay", ofStart, checkMTU},
		{"port", "whether another process has the overlay's port", needsNetwork, checkPort},
		{"policy-rules", "rules that send the overlay's packets to other routing tables",
			ofTUN | needsLinks | needsNetwork, checkRules},
		{"route-shadow", "routes within Network that are not weft's",
			ofTUN | needsLinks | needsNetwork, checkShadows},
		{"peer-route", "whether packets to each peer's subnet go into the overlay",
			ofRunning | ofTUN | needsRecords, checkPeerRoutes},
		{"peer-underlay", "the way to each peer's own address", needsRecords, checkPeerWays},
		{"peer-answers", "what weftd's questions to each peer through the overlay have shown",
			ofRunning | needsWeftd, checkPeerAnswers},
		{"peer-packets", "whether what comes from each peer can be read", ofRunning | needsWeftd, checkPeerPackets},
	}
}
