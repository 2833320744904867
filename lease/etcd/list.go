package etcd

import (
	"context"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// maxMessage is the most that one answer of etcd may have, in bytes: what exceeds it is not
	// received at all. One value has 1.5 MB at most, unless etcd was told otherwise.
	maxMessage = 4 << 20
	// A list begins with pageFirst records and goes on with up to pageMost at once: nodes write a few
	// hundred bytes each, but etcd, too, has to hold what it answers.
	pageFirst, pageMost = 128, 1024
)

// list reads everything at one revision into v, which is replaced: in pages, and smaller ones where
// records are large, so that what somebody writes does not decide how much memory is taken.
func (s *Store) list(ctx context.Context, v *view) error {
	l := lister{store: s, view: v, next: s.keys.subnets, page: pageFirst, most: pageMost}
	for !l.done {
		if err := s.request(ctx, l.read); err != nil {
			return err
		}
	}
	return nil
}

// lister is a list under way.
type lister struct {
	store    *Store
	view     *view
	began    bool
	done     bool
	revision int64
	next     string // the first key to be read
	page     int64  // so many records are read next
	most     int64  // and never more than this
}

// read reads one page, the first one with the configuration.
func (l *lister) read(ctx context.Context, c *clientv3.Client) error {
	k := l.store.keys
	records := clientv3.OpGet(l.next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.subnets)),
		clientv3.WithLimit(l.page), clientv3.WithRev(l.revision))
	ops := []clientv3.Op{records}
	if !l.began {
		ops = append(ops, clientv3.OpGet(k.config))
	}
	resp, err := c.Txn(ctx).Then(ops...).Commit()
	switch {
	case tooLarge(err) && l.page > 1:
		l.page = max(l.page/8, 1)
		l.most = 2 * l.page // who wrote large ones may have written more
		return nil
	case tooLarge(err) && l.began:
		return l.skip(ctx, c)
	case tooLarge(err): // either of the two
		return l.begin(ctx, c)
	case err != nil:
		return fmt.Errorf("read %s: %w", k.prefix, err)
	}
	page := resp.Responses[0].GetResponseRange()
	if !l.began {
		l.start(resp.Header.ClusterId, resp.Header.Revision, resp.Responses[1].GetResponseRange().Kvs)
	}
	l.take(page.Kvs, page.More)
	return nil
}

// begin reads the configuration alone.
func (l *lister) begin(ctx context.Context, c *clientv3.Client) error {
	resp, err := c.Get(ctx, l.store.keys.config)
	if tooLarge(err) {
		return fmt.Errorf("read %s: it has more than %d bytes", l.store.keys.config, maxMessage)
	} else if err != nil {
		return fmt.Errorf("read %s: %w", l.store.keys.config, err)
	}
	l.start(resp.Header.ClusterId, resp.Header.Revision, resp.Kvs)
	return nil
}

func (l *lister) start(cluster uint64, revision int64, config []*mvccpb.KeyValue) {
	l.view.reset(clusterID(cluster), revision, config)
	l.began, l.revision = true, revision
}

func (l *lister) take(kvs []*mvccpb.KeyValue, more bool) {
	for _, kv := range kvs {
		l.view.put(kv)
	}
	if l.done = !more || len(kvs) == 0; !l.done {
		l.next = string(kvs[len(kvs)-1].Key) + "\x00"
		l.page = min(2*l.page, l.most)
	}
}

// skip passes over one record that is too large to be received: its key tells enough.
func (l *lister) skip(ctx context.Context, c *clientv3.Client) error {
	k := l.store.keys
	resp, err := c.Get(ctx, l.next, clientv3.WithRange(clientv3.GetPrefixRangeEnd(k.subnets)),
		clientv3.WithLimit(1), clientv3.WithRev(l.revision), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("read %s: %w", k.prefix, err)
	}
	for _, kv := range resp.Kvs {
		l.view.putHuge(kv)
	}
	l.take(nil, false)
	if len(resp.Kvs) > 0 && resp.More {
		l.next, l.done = string(resp.Kvs[0].Key)+"\x00", false
	}
	return nil
}

// tooLarge reports whether an answer was not received because of its size. Its code is also that of
// an etcd with too much to do.
func tooLarge(err error) bool { return err != nil && strings.Contains(err.Error(), "larger than max") }
