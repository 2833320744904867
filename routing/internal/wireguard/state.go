package wireguard

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// PeerState is what a device knows of one of its peers.
type PeerState struct {
	Key PublicKey
	// Endpoint is where packets for the peer are sent: where the record said, or where it was heard from last.
	Endpoint netip.AddrPort
	// Handshake is when the last handshake was completed; zero for never since the device was made.
	Handshake time.Time
	// Rx and Tx are bytes of datagrams' payloads.
	Rx, Tx     uint64
	AllowedIPs []netip.Prefix
	// Refused is what was refused of that endpoint's address; zero for a device of the kernel's, which does not say.
	Refused Refused
}

// parseState reads a device's answer in WireGuard's configuration protocol. The private and preshared keys in it are passed over.
func parseState(text string) ([]PeerState, error) {
	var ps []PeerState
	var at *PeerState
	var sec int64
	s := bufio.NewScanner(strings.NewReader(text))
	for s.Scan() {
		key, value, _ := strings.Cut(s.Text(), "=")
		if key == "public_key" {
			k, err := hex.DecodeString(value)
			if err != nil || len(k) != KeyLen {
				return nil, errors.New("the device lists a peer without a key")
			}
			ps = append(ps, PeerState{Key: PublicKey(k)})
			at, sec = &ps[len(ps)-1], 0
			continue
		}
		if at == nil {
			continue
		}
		var err error
		switch key {
		case "endpoint":
			at.Endpoint, err = netip.ParseAddrPort(value)
		case "last_handshake_time_sec":
			sec, err = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			var nsec int64
			if nsec, err = strconv.ParseInt(value, 10, 64); sec != 0 || nsec != 0 {
				at.Handshake = time.Unix(sec, nsec)
			}
		case "rx_bytes":
			at.Rx, err = strconv.ParseUint(value, 10, 64)
		case "tx_bytes":
			at.Tx, err = strconv.ParseUint(value, 10, 64)
		case "allowed_ip":
			var p netip.Prefix
			if p, err = netip.ParsePrefix(value); err == nil {
				at.AllowedIPs = append(at.AllowedIPs, p)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the device's %s: %w", key, err)
		}
	}
	return sorted(ps), s.Err()
}
