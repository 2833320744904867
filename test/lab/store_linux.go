package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// configKey is the key of flannel's network config under the default prefix.
const configKey = "/coreos.com/network/config"

// Store is an etcd process on a host of its own. Tests stop, kill and pause it by way of Daemon.
type Store struct {
	*Host
	// Addr is its address on the wire; clients use port 2379 there.
	Addr netip.Addr
	// Daemon is the etcd process, with its data in Dir.
	Daemon *Daemon
	Dir    string
}

// Endpoint is the store's URL as the nodes see it.
func (s *Store) Endpoint() string { return fmt.Sprintf("http://%s:2379", s.Addr) }

// buildStore starts etcd on the wire and puts the network config into it.
func (l *Lab) buildStore(ctx context.Context) error {
	start := time.Now()
	host, err := l.newHost("store")
	if err != nil {
		return err
	}
	if err := l.plug(host, storeNumber); err != nil {
		return err
	}
	s := &Store{Host: host, Addr: underlay4(storeNumber), Dir: filepath.Join(l.Spec.StateDir, "store")}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	const peer = "http://127.0.0.1:2380"
	s.Daemon = &Daemon{
		Name: "etcd", LogFile: filepath.Join(l.Spec.StateDir, "etcd.log"), ns: host.NS, path: "etcd",
		args: []string{
			"--name=lab", "--data-dir=" + s.Dir, "--listen-client-urls=" + s.Endpoint(), "--advertise-client-urls=" +
				s.Endpoint(),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		},
	}
	l.Store = s
	if err := s.Start(ctx); err != nil {
		return err
	}
	if err := s.Put(ctx, configKey, string(l.Spec.NetworkConfig)); err != nil {
		return s.fault(err)
	}
	l.progress("store: etcd at %s (%s)", s.Endpoint(), since(start))
	return nil
}

func (s *Store) fault(err error) error {
	if err == nil {
		return nil
	}
	return &NodeError{Node: s.Name, LogFile: s.Daemon.LogFile, LogTail: s.Daemon.LogTail(20), Err: err}
}

// Start starts etcd and waits until it answers, at most 20 s.
func (s *Store) Start(ctx context.Context) error {
	if err := s.Daemon.Start(); err != nil {
		return s.fault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return s.fault(s.Daemon.until(ctx, func() error {
		status, _, err := s.get(ctx, s.Endpoint()+"/health")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	}))
}

// Put writes one key without a TTL, through etcd's JSON gateway, which takes keys and values in base64.
func (s *Store) Put(ctx context.Context, key, value string) error {
	return s.call(ctx, "/v3/kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, &struct{}{})
}

// Get reads one key; ok is false if there is no such key.
func (s *Store) Get(ctx context.Context, key string) (value string, ok bool, err error) {
	var got struct {
		KVs []struct{ Value []byte }
	}
	if err := s.call(ctx, "/v3/kv/range", map[string][]byte{"key": []byte(key)}, &got); err != nil ||
		len(got.KVs) == 0 {
		return "", false, err
	}
	return string(got.KVs[0].Value), true, nil
}

func (s *Store) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return json.Unmarshal(text, out)
}
