package subnetenv_test

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"weft/lease/subnetenv"
)

var dual = subnetenv.File{
	Networks:     []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")},
	Subnet:       netip.MustParsePrefix("10.5.72.1/24"),
	IPv6Networks: []netip.Prefix{netip.MustParsePrefix("2001:cafe:42::/56")},
	IPv6Subnet:   netip.MustParsePrefix("2001:cafe:42::1/64"),
	MTU:          1450, IPMasq: true,
}

const dualText = `FLANNEL_NETWORK=10.5.0.0/16
FLANNEL_SUBNET=10.5.72.1/24
FLANNEL_IPV6_NETWORK=2001:cafe:42::/56
FLANNEL_IPV6_SUBNET=2001:cafe:42::1/64
FLANNEL_MTU=1450
FLANNEL_IPMASQ=true
`

func TestWriteIsFlannelsText(t *testing.T) {
	four, six := dual, dual
	four.IPv6Networks, four.IPv6Subnet, four.IPMasq = nil, netip.Prefix{}, false
	six.Networks, six.Subnet = nil, netip.Prefix{}
	tests := map[string]struct {
		file subnetenv.File
		text string
	}{
		"dual stack": {dual, dualText},
		"IPv4": {four,
			"FLANNEL_NETWORK=10.5.0.0/16\nFLANNEL_SUBNET=10.5.72.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=false\n"},
		"IPv6": {six,
			"FLANNEL_IPV6_NETWORK=2001:cafe:42::/56\nFLANNEL_IPV6_SUBNET=2001:cafe:42::1/64\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run", "flannel", "subnet.env")
			if err := subnetenv.Write(path, tt.file); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tt.text {
				t.Fatalf("wrote %q, %v, want %q", got, err, tt.text)
			}
			back, err := subnetenv.Read(path)
			if err != nil || !back.Equal(tt.file) {
				t.Errorf("read back %+v, %v", back, err)
			}
		})
	}
}

func TestWriteModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	path := filepath.Join(dir, "subnet.env")
	mode := func() os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if err := subnetenv.Write(path, dual); err != nil || mode() != 0o644 {
		t.Fatalf("mode %o, %v: want 644 under umask 077", mode(), err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := subnetenv.Write(path, dual); err != nil || mode() != 0o600 {
		t.Errorf("mode %o, %v: want the existing 600 kept", mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := subnetenv.Write(filepath.Join(path, "x"), dual); err == nil {
		t.Error("no error for a directory that is a file")
	}
}

func TestRead(t *testing.T) {
	if _, err := subnetenv.Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	comment := "#" + strings.Repeat("x", 64<<10-1-len(dualText)-1) + "\n"
	several := dual
	several.Networks = []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16"), netip.MustParsePrefix("10.6.0.0/16")}
	for text, want := range map[string]subnetenv.File{
		dualText: dual,
		"# comment\r\n\nOTHER='x'\nnonsense\n" + strings.Replace(dualText, "FLANNEL_MTU",
			"export FLANNEL_MTU", 1): dual,
		strings.Replace(dualText, "=true", "=1",
			1): dual,
		strings.Replace(dualText, "10.5.0.0/16", "10.5.0.0/16, 10.6.0.0/16",
			1): several,
		comment + dualText: dual, // as large as a file may be
	} {
		if got, err := subnetenv.Parse([]byte(text)); err != nil || !got.Equal(want) {
			t.Errorf("Parse(%.99q): %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"",
		"FLANNEL_MTU=1450\n",
		strings.Repeat("#", 64<<10), // one line, which hides no keys
		"#" + comment + dualText,
		dualText + "FLANNEL_SUBNET=10.5.72.1/24,10.6.72.1/24\n",
		dualText + "FLANNEL_SUBNET=fd00::1/64\n",
		dualText + "FLANNEL_IPV6_SUBNET=10.5.72.1/24\n",
		dualText + "FLANNEL_MTU=-1\n",
		dualText + "FLANNEL_MTU=99999999999999999999\n",
		dualText + "FLANNEL_IPMASQ=perhaps\n",
	} {
		if got, err := subnetenv.Parse([]byte(text)); err == nil {
			t.Errorf("Parse(%.99q): %+v", text, got)
		}
	}
}

// TestWithoutDescriptorsItCannotBeTold has a file that is as it should be, and a process that gets no
// descriptor more: that is no fault of the file.
func TestWithoutDescriptorsItCannotBeTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	f := subnetenv.File{Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")},
		Subnet: netip.MustParsePrefix("10.42.7.1/24"), MTU: 1472}
	if err := subnetenv.Write(path, f); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	held, err := subnetenv.Holds(path, f)
	if restore := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); restore != nil {
		t.Fatal(restore)
	}
	if held || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("without descriptors: %v, %v", held, err)
	}
	if held, err := subnetenv.Holds(path, f); !held || err != nil {
		t.Errorf("with descriptors: %v, %v", held, err)
	}
}
