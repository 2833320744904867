package etcd

import (
	"fmt"
	"path"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

// keys are the names in the store that concern us.
type keys struct {
	prefix  string
	config  string
	subnets string // a prefix of keys without a slash at its end, as flannel reads it
}

func newKeys(prefix string) keys {
	return keys{prefix: prefix, config: path.Join(prefix, "config"), subnets: path.Join(prefix, "subnets")}
}

// record returns the key of s. It refuses what could not be read back: one such key
// under the prefix, and flannel's nodes drop all their peers.
func (k keys) record(s lease.Subnets) (string, error) {
	name := s.Key()
	if _, err := lease.ParseKey(name); err != nil {
		return "", fmt.Errorf("record of %s: %w", s, err)
	}
	return k.subnets + "/" + name, nil
}

// entry is one key of the subnets range: a record, or the reason why it is none.
type entry struct {
	name   string        // entryName of the key
	record *lease.Record // nil if it is none; never changed
	bad    *lease.Rejected
	lease  clientv3.LeaseID // NoLease for a reservation
}

// decode never fails: what does not parse costs that one entry.
func (k keys) decode(kv *mvccpb.KeyValue) entry {
	// Below the directory an entry goes by its name, as a record does; a stray key by all of it.
	name, ok := strings.CutPrefix(string(kv.Key), k.subnets+"/")
	reject := func(r lease.RejectReason, detail string) entry {
		name, detail := clip(name), clip(detail) // a key may have a megabyte
		return entry{bad: &lease.Rejected{Key: name, Reason: r, Detail: detail, Revision: kv.ModRevision}}
	}
	if !ok {
		return reject(lease.RejectKey, "not under "+k.subnets+"/")
	}
	subnets, err := lease.ParseKey(name)
	if err != nil {
		return reject(lease.RejectKey, err.Error())
	}
	attrs, err := lease.DecodeAttrs(kv.Value)
	if err != nil {
		return reject(lease.RejectValue, err.Error())
	}
	return entry{
		record: &lease.Record{
			Subnets: subnets, Attrs: attrs,
			Reservation: kv.Lease == 0, Revision: kv.ModRevision, Created: kv.CreateRevision,
		},
		lease: clientv3.LeaseID(kv.Lease),
	}
}

// huge is decode for a record whose value was not received.
func (k keys) huge(kv *mvccpb.KeyValue) entry {
	e := k.decode(kv)
	if e.bad == nil || e.bad.Reason == lease.RejectValue {
		name, _ := strings.CutPrefix(string(kv.Key), k.subnets+"/")
		e.bad = &lease.Rejected{Key: name, Reason: lease.RejectValue, Revision: kv.ModRevision,
			Detail: fmt.Sprintf("%v: more than %d bytes", lease.ErrValue, maxMessage)}
	}
	return e
}

// clip returns s, or the beginning of a long one.
func clip(s string) string {
	if len(s) <= maxName {
		return s
	}
	return strings.ToValidUTF8(s[:maxName], "") + "…"
}

// maxName is how much of a key is kept, in bytes. A record's has 60.
const maxName = 256
