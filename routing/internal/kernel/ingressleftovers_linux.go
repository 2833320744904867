package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"golang.org/x/sys/unix"
)

// ingressPrefix begins the names of the tables that path raw makes, one for each socket.
const ingressPrefix = "weft-raw-"

// IngressTables lists the nf_tables tables of family netdev that path raw left in the current network
// namespace: they have its prefix and its rule. A table with an owner is none, since it belongs to a
// process that runs, which may be another network's weftd, and the kernel removes it with that. A kernel
// without nf_tables has none.
func IngressTables() ([]string, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, absentNFTables(err)
	}
	ts, err := c.ListTablesOfFamily(nftables.TableFamilyNetdev)
	if err != nil {
		return nil, absentNFTables(err)
	}
	var names []string
	for _, t := range ts {
		if strings.HasPrefix(t.Name, ingressPrefix) && !hasOwner(t) && hasIngressRule(c, t) {
			names = append(names, t.Name)
		}
	}
	return names, nil
}

// hasOwner reports whether a table that was listed has an owner. The library reads the flags, which the
// kernel sends in network order, in the machine's.
func hasOwner(t *nftables.Table) bool {
	return binaryutil.BigEndian.Uint32(binaryutil.NativeEndian.PutUint32(t.Flags))&tableOwner != 0
}

// hasIngressRule reports whether the table has the rule that is ours.
func hasIngressRule(c *nftables.Conn, t *nftables.Table) bool {
	rules, err := c.GetRules(t, &nftables.Chain{Name: ingressChain, Table: t})
	return err == nil && slices.ContainsFunc(rules, isIngressRule)
}

// absentNFTables returns err, or nil if it is the answer of a kernel without nf_tables.
func absentNFTables(err error) error {
	for _, absent := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT,
		unix.ENOENT} {
		if errors.Is(err, absent) {
			return nil
		}
	}
	return fmt.Errorf("list nf_tables tables: %w", err)
}

// RemoveIngressTable deletes one of IngressTables. The error wraps unix.ENOENT if it is gone.
func RemoveIngressTable(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyNetdev})
	return c.Flush()
}
