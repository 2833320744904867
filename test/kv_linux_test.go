package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

const (
	prefix    = "/coreos.com/network"
	configKey = prefix + "/config"
)

// pair is one key of etcd with its raw value. lease is the etcd lease's id, 0 for none.
type pair struct {
	key, value string
	lease      int64
}

// etcd calls the store through its JSON gateway, in which bytes are base64 and 64-bit numbers are strings.
func etcd(t testing.TB, s *lab.Store, path string, in, out any) error {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(await.Context(t, await.Patience), http.MethodPost, s.Endpoint()+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := s.HTTPClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// list returns the keys that begin with start, in order.
func list(t testing.TB, s *lab.Store, start string) []pair {
	t.Helper()
	end := []byte(start)
	end[len(end)-1]++
	var got struct {
		KVs []struct {
			Key, Value []byte
			Lease      string
		}
	}
	if err := etcd(t, s, "/v3/kv/range", map[string]any{"key": []byte(start), "range_end": end}, &got); err != nil {
		t.Fatal(err)
	}
	var all []pair
	for _, kv := range got.KVs {
		id, _ := strconv.ParseInt(kv.Lease, 10, 64) // absent: none
		all = append(all, pair{string(kv.Key), string(kv.Value), id})
	}
	return all
}

// put writes a key, without TTL if ttl is 0.
func put(t testing.TB, s *lab.Store, key, value string, ttl time.Duration) {
	t.Helper()
	req := map[string]any{"key": []byte(key), "value": []byte(value)}
	if ttl > 0 {
		var granted struct{ ID string }
		if err := etcd(t, s, "/v3/lease/grant", map[string]any{"TTL": strconv.Itoa(int(ttl.Seconds()))}, &granted); err != nil {
			t.Fatal(err)
		}
		req["lease"] = granted.ID
	}
	if err := etcd(t, s, "/v3/kv/put", req, nil); err != nil {
		t.Fatal(err)
	}
}

func del(t testing.TB, s *lab.Store, key string) {
	t.Helper()
	if err := etcd(t, s, "/v3/kv/deleterange", map[string]any{"key": []byte(key)}, nil); err != nil {
		t.Fatal(err)
	}
}
