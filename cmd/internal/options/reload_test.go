package options

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReaderReadsTheFileAgain: flags win over the file, the file over the environment, and what is gone from
// the file is unset.
func TestReaderReadsTheFileAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "weftd.env")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# a comment\n; another\n\n WEFTD_V = " +
		"1\nWEFTD_IFACE=\"eth0\"\nFLANNELD_IP_MASQ=true\nWEFTD_ETCD_PASSWORD='pass word'\nWEFTD_ETCD_USERNAME=u\n")
	r := NewReader([]string{"--environment-file=" + file, "--log-format=json"},
		[]string{"WEFTD_V=1", "WEFTD_IFACE=eth0", "FLANNELD_IP_MASQ=true", "WEFTD_ETCD_PREFIX=/of/the/environment",
			"WEFTD_LOG_FORMAT=text"})
	first, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	if first.Log.Verbosity != 1 || !slices.Equal(first.Underlay.Ifaces, []string{"eth0"}) ||
		!first.Rules.IPMasq || first.Store.Prefix != "/of/the/environment" ||
		first.Store.Password.Reveal() != "pass word" || first.Log.Format != "json" {
		t.Fatalf("%+v", first)
	}
	write(
		"WEFTD_IFACE=eth1\nWEFTD_ETCD_PASSWORD=other\nWEFTD_ETCD_USERNAME=u\nWEFTD_ETCD_PREFIX=/of/the/file\nWEFTD_LOG_FORMAT=text\n")
	now, err := r.Read()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range first.Changes(now) {
		got = append(got, c.Name+" "+c.From+" "+c.To+" "+c.Effect.String())
	}
	want := []string{"etcd-password set set at once", "etcd-prefix /of/the/environment /of/the/file restart",
		"iface eth0 eth1 restart", "ip-masq true false restart", "v 1 0 at once"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	with := first.With(now, true)
	if with.Log.Verbosity != 0 || with.Store.Password.Reveal() != "other" ||
		with.Store.Prefix != "/of/the/environment" || with.Underlay.Ifaces[0] != "eth0" {
		t.Errorf("%+v", with)
	}
	if left := with.Changes(now); len(left) != 3 { // those that take a restart; the live ones are in force
		t.Errorf("still %+v", left)
	}

	write("WEFTD_V=much\nWEFTD_ETCD_PASSWORD s3cret\nWEFTD_LOG_FORMAT=xml\n")
	if _, err := r.Read(); err == nil || !strings.Contains(err.Error(), "WEFTD_V") ||
		!strings.Contains(err.Error(), "NAME=value") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if gone, err := r.Read(); err != nil || len(gone.Underlay.Ifaces) != 0 {
		t.Errorf("%v %v", gone.Underlay.Ifaces, err)
	}
}
