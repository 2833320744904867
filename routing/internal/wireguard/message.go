package wireguard

import (
	"encoding/json"
	"net/netip"
)

// A device's process (process_linux.go) is spoken to over two kinds of sockets. The first is a pair of type SOCK_SEQPACKET. Its end here, the
// line, is kept by whoever keeps descriptors for the next weftd; when the last duplicate of it is closed, the process ends. Two packets go
// over the line, none comes back, and they mean the same in all versions:
//
//	'c', with a descriptor: a stream to be answered on
//	'e': end now
//
// Over a stream, of which each weftd has its own, go requests, each with one answer, in order: four bytes with the length of what follows,
// big endian, and JSON. Descriptors come beside the first byte, by SCM_RIGHTS. They have secrets in them, and no file or log has them.
const (
	lineConnect = 'c'
	lineEnd     = 'e'
)

// processProtocol is of what requests and answers mean. A key that is not known is passed over, so that it is another number only where that
// would be wrong.
const processProtocol = 1

// The verbs of requests.
const (
	verbAbout     = "about"     // Answer: Protocol, Version, PID, Lacks, Sockets, WrongKeys
	verbConfigure = "configure" // Config, Greet, and descriptors of the sockets Sockets. Answer: Changed
	verbPeers     = "peers"     // Answer: Peers
)

type request struct {
	Verb   string      `json:"verb"`
	Config *wireConfig `json:"config,omitempty"`
	Greet  []PublicKey `json:"greet,omitempty"`
	// Sockets are bound to these, and their descriptors are beside the request in this order.
	Sockets []netip.AddrPort `json:"sockets,omitempty"`
}

type answer struct {
	// Error says what is wrong, without secrets; "" if nothing is.
	Error    string `json:"error,omitempty"`
	Protocol int    `json:"protocol,omitempty"`
	Version  string `json:"version,omitempty"`
	PID      int    `json:"pid,omitempty"`
	// Lacks says what the process could not give up of its rights.
	Lacks string `json:"lacks,omitempty"`
	// Sockets are the addresses of those that the process has.
	Sockets   []netip.AddrPort `json:"sockets,omitempty"`
	WrongKeys uint64           `json:"wrong_keys,omitempty"`
	Changed   bool             `json:"changed,omitempty"`
	Peers     []PeerState      `json:"peers,omitempty"`
}

// wireConfig is a Config with its secrets, which a Config does not show.
type wireConfig struct {
	Private string     `json:"private"`
	Port    uint16     `json:"port"`
	Local4  netip.Addr `json:"local4"`
	Local6  netip.Addr `json:"local6"`
	MTU     int        `json:"mtu"`
	Peers   []wirePeer `json:"peers"`
}

type wirePeer struct {
	Key        string         `json:"key"`
	Preshared  string         `json:"preshared,omitempty"`
	Endpoint   netip.AddrPort `json:"endpoint"`
	Keepalive  int            `json:"keepalive,omitempty"`
	AllowedIPs []netip.Prefix `json:"allowed_ips"`
}

func wireOf(c Config) *wireConfig {
	w := &wireConfig{Private: c.Private.base64(), Port: c.Port, Local4: c.Local4, Local6: c.Local6, MTU: c.MTU, Peers: make([]wirePeer, len(c.Peers))}
	for i, p := range c.Peers {
		w.Peers[i] = wirePeer{Key: p.Key.String(), Endpoint: p.Endpoint, Keepalive: p.Keepalive, AllowedIPs: p.AllowedIPs}
		if !p.Preshared.IsZero() {
			w.Peers[i].Preshared = p.Preshared.base64()
		}
	}
	return w
}

// config is the inverse of wireOf. Its error does not quote a secret.
func (w *wireConfig) config() (c Config, err error) {
	c = Config{Port: w.Port, Local4: w.Local4, Local6: w.Local6, MTU: w.MTU, Peers: make([]Peer, len(w.Peers))}
	if c.Private, err = ParseSecret(w.Private); err != nil {
		return Config{}, err
	}
	for i, p := range w.Peers {
		q := Peer{Endpoint: p.Endpoint, Keepalive: p.Keepalive, AllowedIPs: p.AllowedIPs}
		if q.Key, err = ParsePublicKey(p.Key); err != nil {
			return Config{}, err
		}
		if p.Preshared != "" {
			if q.Preshared, err = ParseSecret(p.Preshared); err != nil {
				return Config{}, err
			}
		}
		c.Peers[i] = q
	}
	return c, nil
}

// parseJSON is json.Unmarshal, whose error may quote a secret, and this one's does not.
func parseJSON(b []byte, into any) error {
	if json.Unmarshal(b, into) != nil {
		return errMalformed
	}
	return nil
}
