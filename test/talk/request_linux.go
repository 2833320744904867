package talk

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// Identity is what a talker says of itself first. Its ids are those of the process as its own user namespace and its own PID namespace have them.
type Identity struct {
	PID, UID int
	// CapEff and CapPrm are the capabilities in its user namespace, in hexadecimal.
	CapEff, CapPrm string
	NoNewPrivs     string
	// UIDMap is that of its user namespace: inside, outside, length.
	UIDMap string
}

// Self reads the identity of this process.
func Self() (Identity, error) {
	id := Identity{PID: os.Getpid(), UID: os.Getuid()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return id, err
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "CapEff":
			id.CapEff = value
		case "CapPrm":
			id.CapPrm = value
		case "NoNewPrivs":
			id.NoNewPrivs = value
		}
	}
	m, err := os.ReadFile("/proc/self/uid_map")
	id.UIDMap = strings.Join(strings.Fields(string(m)), " ")
	return id, err
}

// Request is one thing that a talker is to do. One field is set.
type Request struct {
	// Addresses asks for the global addresses of the namespace.
	Addresses bool `json:",omitempty"`
	// Talk is done with each of these, all at the same time: TCP, UDP, and UDP of full size that must not be fragmented.
	Talk []Target `json:",omitempty"`
	// Measure asks how fast it is towards an address.
	Measure *Measure `json:",omitempty"`
}

// Target is another talker.
type Target struct {
	Addr netip.Addr
	// MTU is the longest packet that must pass, in bytes. A longer one must be refused at once.
	MTU int
}

// Measure says what is measured, from a talker to another. One of its numbers is set.
type Measure struct {
	To       netip.Addr
	Duration time.Duration
	// Streams is the number of TCP connections that send.
	Streams int `json:",omitempty"`
	// Packet is the size of the payload of UDP datagrams, which are sent as fast as that goes.
	Packet int `json:",omitempty"`
	// PingPong is the size of the payload of a UDP datagram that goes to and fro.
	PingPong int `json:",omitempty"`
}

// Reply is what became of a Request.
type Reply struct {
	Addresses []Address `json:",omitempty"`
	// Talked is how many conversations were held, and Faults has a sentence for each that went wrong.
	Talked int      `json:",omitempty"`
	Faults []string `json:",omitempty"`
	// Figure is in bits a second (Streams), delivered packets a second (Packet) or seconds a round trip (PingPong).
	Figure float64 `json:",omitempty"`
}

// Address is one of a namespace's.
type Address struct {
	Interface string
	MTU       int
	Prefix    netip.Prefix
}

// Do does what is asked for.
func (r Request) Do() (reply Reply) {
	var err error
	switch {
	case r.Addresses:
		reply.Addresses, err = addresses()
	case r.Measure != nil:
		reply.Figure, err = r.Measure.do()
	default:
		reply.Talked, reply.Faults = talkToAll(r.Talk)
	}
	if err != nil {
		reply.Faults = append(reply.Faults, err.Error())
	}
	return reply
}

func addresses() (all []Address, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
				all = append(all, Address{l.Name, l.MTU, p})
			}
		}
	}
	return all, nil
}
