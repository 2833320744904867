package control

import "fmt"

// Code names a reason why a node is not ready, or a note. Programs compare codes; sentences may change.
type Code string

// These are the reasons why a node is not ready.
const (
	Waiting         Code = "waiting"             // the start waits for what the sentence names
	StoreUnheard    Code = "store_unheard"       // the store has not answered since the start
	StoreSilent     Code = "store_silent"        // the store has not answered for 30 seconds
	StoreRefuses    Code = "store_refuses"       // the store refuses this node's credentials
	StoreFailing    Code = "store_failing"       // the store answers, and does not serve this node
	ConfigUnread    Code = "config_not_compared" // the configuration in use is not compared yet with the store's
	LeaseNotHeld    Code = "lease_not_held"      // the store has not confirmed this node's subnet
	UnderlayLost    Code = "underlay_lost"       // the link of the underlay or its address is gone
	RoutesFailing   Code = "routes_failing"      // a device, address, route or rule could not be made
	RoutesPending   Code = "routes_pending"      // devices, addresses and routes are not in place yet
	SubnetFileFails Code = "subnet_file"         // the subnet file cannot be written
	RulesFailing    Code = "rules_failing"       // the firewall rules cannot be made
)

// These are the notes on a node that may be ready.
const (
	WithoutPart        Code = "without_part"          // a part could not be opened, such as the health port
	RestartLosesPods   Code = "restart_cuts_pods"     // a restart of weftd would cut off directly attached pods
	RestartLosesPorts  Code = "restart_loses_packets" // a restart of weftd would lose packets
	CertificateFails   Code = "certificate"           // a certificate ends soon, or a file cannot be used
	LeaseNote          Code = "lease_note"            // the lease or the store needs attention
	CacheNotSaved      Code = "cache_not_saved"       // the last state cannot be saved
	ConfigLastGood     Code = "config_last_good"      // the last good network configuration is in use
	NoUsablePeer       Code = "no_usable_peer"        // no other node can be a peer
	FormerSubnet       Code = "former_subnet"         // pods have addresses of a former subnet of this node
	NetworkNearlyFull  Code = "network_nearly_full"   // 80 percent of the subnets are taken
	ProbesFailing      Code = "probes_failing"        // peers cannot be asked whether they answer
	NoPeerAnswers      Code = "no_peer_answers"       // there are peers, and none answers
	ForgedSource       Code = "forged_source"         // a pod of this host sends with another node's address
	OffloadBreaksLinks Code = "offload_broken"        // a device breaks datagrams that are sent in one call
)

// sentences has the one sentence of each code, as a format.
var sentences = map[Code]string{
	Waiting:         "%s",
	StoreUnheard:    "%s: %s",
	StoreSilent:     "%s: silent for %v: %s",
	StoreRefuses:    "%s: refuses us: %s",
	StoreFailing:    "%s: has not served us for %v: %s",
	ConfigUnread:    "config: not compared yet with that of %s",
	LeaseNotHeld:    "lease: %s",
	UnderlayLost:    "underlay: %s",
	RoutesFailing:   "routes: %s",
	RoutesPending:   "routes: not in place yet",
	SubnetFileFails: "subnet file: %s",
	RulesFailing:    "rules: %s",

	WithoutPart:       "without %s",
	RestartLosesPods:  "a restart of weftd would cut off pods that are attached directly: %s",
	RestartLosesPorts: "a restart of weftd would lose packets: %s",
	CertificateFails:  "%s",
	LeaseNote:         "%s",
	CacheNotSaved: "the last state is not saved, and a start without the %s would not know it: %v: " +
		"see to the disk and to --cache-dir",
	ConfigLastGood: "network config: the last good one is in use, since that of %s cannot be: %s",
	NoUsablePeer:   "no peer is usable: %s",
	FormerSubnet:   "%s",
	NetworkNearlyFull: "%s: a node that joins when none is left waits; weft lease list shows who has them, " +
		"weft lease release gives one back that nobody needs; a wider Network takes a restart of every node",
	ProbesFailing: "%s",
	NoPeerAnswers: "no peer answers (%s): %s: weft doctor says what is not excluded",
	ForgedSource: "%[2]d packets that this host sent into the overlay had the source %[1]v, of another node's " +
		"subnet, and were dropped (foreign_source)",
	OffloadBreaksLinks: "%s is off: a peer found that datagrams sent in one call by link %s arrive broken; " +
		"packets pass one by one, so bulk costs more. Linux 7.0 to 7.1.4 does so with some devices: update the " +
		"kernel, or " +
		"have it cut them in front of the device by ethtool -K %[2]s tx-udp-segmentation off, and weft tries again",
}

// Verdict is a reason or a note.
type Verdict struct {
	Code Code
	Text string
}

// Say returns the verdict with the code's sentence.
func (c Code) Say(a ...any) Verdict { return Verdict{c, fmt.Sprintf(sentences[c], a...)} }

// Texts returns the sentences.
func Texts(all []Verdict) (out []string) {
	for _, v := range all {
		out = append(out, v.Text)
	}
	return out
}

// Codes returns the codes.
func Codes(all []Verdict) (out []Code) {
	for _, v := range all {
		out = append(out, v.Code)
	}
	return out
}

// NumCodes returns how many codes there are.
func NumCodes() int { return len(sentences) }
