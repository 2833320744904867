package talk

import (
	"fmt"
	"net"
	"net/netip"
)

// Identity is what a talker says of itself first: its process, as its own PID namespace has it.
type Identity struct{ PID int }

// Request is one thing that a talker is to do. One field is set.
type Request struct {
	// Addresses asks for the global addresses of the namespace.
	Addresses bool `json:",omitempty"`
	// Talk is done with each of these, all at the same time: TCP, UDP, and UDP of full size that must not be
	// fragmented.
	Talk []Target `json:",omitempty"`
}

// Target is another talker.
type Target struct {
	Addr netip.Addr
	// MTU is the longest packet that must pass, in bytes. A longer one must be refused at once.
	MTU int
}

// Reply is what became of a Request.
type Reply struct {
	Addresses []Address `json:",omitempty"`
	// Talked is how many conversations were held, and Faults has a sentence for each that went wrong.
	Talked int      `json:",omitempty"`
	Faults []string `json:",omitempty"`
}

// Address is one of a namespace's.
type Address struct {
	Interface string
	MTU       int
	Prefix    netip.Prefix
}

// Do does what is asked for.
func (r Request) Do() (reply Reply) {
	if !r.Addresses {
		reply.Talked, reply.Faults = talkToAll(r.Talk)
		return reply
	}
	var err error
	if reply.Addresses, err = addresses(); err != nil {
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
