package lease

import (
	"fmt"
	"net/netip"
	"time"
)

// ContestError means that a record stands in the place of ours, and that its owner lives or may live.
// Meanwhile this process takes no subnet and gives none up.
type ContestError struct {
	// Ours is our identity, and OurAddress where we are.
	Ours       string
	OurAddress netip.Addr
	// Theirs is the record's, "" for none; it is Ours if the machine was copied, or moved.
	Theirs  string
	Address netip.Addr
	// TheirName is what people call it; "" if unknown.
	TheirName string
	// Subnets is the record's.
	Subnets Subnets
	// Lives is how we know that the owner lives; "" while we ask.
	Lives string
	// Since is when we first met the record.
	Since time.Time
	// Holds means that this node carries packets of the subnet, and continues.
	Holds bool
}

func (e *ContestError) Error() string {
	who := fmt.Sprintf("another weftd with our identity %q at %s", e.Ours, e.Address)
	if e.Theirs != e.Ours {
		who = DescribeOwner(e.TheirName, e.Theirs, e.Address)
	}
	met := fmt.Sprintf("%s has %s since %s at the latest", who, e.Subnets, e.Since.UTC().Format(time.RFC3339))
	if e.Lives == "" {
		return met + ": asking whether it lives"
	}
	does := "this one, at " + e.OurAddress.String() + ", takes nothing and waits"
	if e.Holds {
		does = "this one, at " + e.OurAddress.String() +
			", goes on carrying packets, and waits to have its record back"
	}
	remedy := "if that node is gone"
	if e.Theirs == e.Ours {
		remedy = "if this machine is a copy, give it --node-id and an empty --cache-dir of its own; if the other " +
			"one is gone"
	}
	return fmt.Sprintf("%s and lives (%s): %s: %s: weft lease release %s", met, e.Lives, does, remedy, e.Subnets)
}
