package routing

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"weft/lease"
)

func TestUnknownKeysAreFoundAndExplained(t *testing.T) {
	for config, want := range map[string]string{
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","SorceCheck":"off"}}`: "[Backend.SorceCheck>Backend.SourceCheck]",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","Prot":8472}}`:        "[Backend.Prot>Backend.Port]",
		`{"Network":"10.5.0.0/16","SubnetLenght":25}`:                           "[SubnetLenght>SubnetLen]",
		`{"Netwrok":"10.5.0.0/16","Comment":"mine"}`:                            "[Netwrok>Network Comment>]",
		`{"Network":"10.5.0.0/16","Port":8472,"EnableIpv6":false}`:              "[Port>Backend.Port]",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","SubnetLen":25}}`:     "[Backend.SubnetLen>SubnetLen]",
		// flannel's own, and keys in any case
		`{"network":"10.5.0.0/16","backend":{"type":"vxlan","vni":4096,"port":4789,"macprefix":"0E-2A","gbp":true}}`:                    "[]",
		`{"Network":"10.5.0.0/16","EnableNFTables":true,"Backend":{"Type":"wireguard","Mode":"auto","PersistentKeepaliveInterval":25}}`: "[]",
		`{"Network":"10.5.0.0/16","Backend":{"Type":"ipsec","PSK":"x","UDPEncap":true,"ESPProposal":"y"}}`:                              "[]",
		`{"Network":"10.5.0.0/16","Backend":null}`: "[]", `{"Network":`: "[]", `[1]`: "[]", ``: "[]",
	} {
		var got []string
		n, _ := Parse([]byte(config)) // it may have faults beside
		for _, u := range n.Unknown {
			got = append(got, u.Key+">"+u.Meant)
			if !strings.Contains(u.String(), u.Key) {
				t.Errorf("%s", u)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: got %s, want %s", config, got, want)
		}
	}
}

// A typo in any value is named with its key, the value, and what was meant.
func TestFaultsSayWhatWasMeant(t *testing.T) {
	for config, want := range map[string]string{
		`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlna"}}`:                           `Backend.Type "vxlna" vxlan`,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","Path":"sokcet"}}`:             `Backend.Path "sokcet" socket`,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","SourceCheck":"strikt"}}`:      `Backend.SourceCheck "strikt" strict`,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","Userspace":"alway"}}`:       `Backend.Userspace "alway" always`,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","SourceCheck":"of"}}`:        `Backend.SourceCheck "of" off`,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan","VNI":"one"}}`:               `Backend.VNI "one" `,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"udp","AllowedSources":["10.0/8"]}}`: `Backend.AllowedSources ["10.0/8"] `,
		`{"Network":"127.0.0.0/8"}`:                                        `Network 127.0.0.0/8 `,
		`{"Network":"224.0.0.0/8"}`:                                        `Network 224.0.0.0/8 `,
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"ff00::/16"}`: `IPv6Network ff00::/16 `,
		`{"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fe80::/16"}`: `IPv6Network fe80::/16 `,
		`{"Network":"10.5.0.0/16","Backend":{"Type":"ipsec"}}`:             `Backend.Type "ipsec" `,
	} {
		_, err := Parse([]byte(config))
		var fault *lease.ConfigError
		if !errors.As(err, &fault) || fmt.Sprint(fault.Key, " ", fault.Got, " ", fault.Meant) != want {
			t.Errorf("%s: %+v", config, fault)
		}
	}
}
