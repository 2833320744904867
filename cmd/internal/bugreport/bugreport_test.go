package bugreport

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/running"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		text, errText := io.ReadAll(r)
		if err := errors.Join(err, errText); err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(text)
	}
}

// Secrets are planted in every place where one has been seen, and none is in the archive.
func TestNoSecretIsInTheArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cretFile\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := running.Process{
		Args: []string{"weftd", "--etcd-password", "s3cretArg", "--etcd-username=root",
			"-etcd-password=s3cretOne",
			"--etcd-endpoints=https://u:s3cret%2FUrl@192.0.2.1:2379,http://192.0.2.2:2379"},
		Environ: []string{"WEFTD_ETCD_PASSWORD=s3cretEnv", "WEFTD_ETCD_PASWRD=s3cretMisspelt",
			"WEFTD_ETCD_PW=s3cretNoName", "SOMEBODYS=s3cretForeign", "WEFTD_ETCD_PASSWORD_FILE=" + file,
			"FLANNELD_ETCD_ENDPOINTS=http://v:s3cretFlannel@192.0.2.3:2379"},
	}
	const planted = `level=INFO msg="the store" endpoints=[http://root:s3cretA@192.0.2.9:2379 root:s3cretB@192.0.2.8:2379]
level=WARN cause="dial https://a:s3/cret@C@192.0.2.1: refused" token=s3cretD "password": "s3cretE", 'api_key': 's3cretF'
{"etcdPassword":"s3cretG \" s3cretG2","privateKey":"s3cretH","text":"{\"password\":\"s3cretI\"}"}
Authorization: Bearer s3cretJ.abc  authorization: Basic czNjcmV0Szpz3cret
eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzM2NyZXRMIn0.c2lnbmF0dXJl
-----BEGIN EC PRIVATE KEY-----
s3cretM
-----END EC PRIVATE KEY-----
WEFTD_ETCD_PASSWORD=s3cretN
#WEFTD_ETCD_PASSWORD = s3cretO
client-key-data: s3cretP
weftd --etcd-password s3cretQ --iface eth0
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
and in plain words: s3cretArg, s3cretOne, s3cretEnv, s3cretFile, s3cret/Url, s3cret%2FUrl, s3cretFlannel
WEFTD_ETCD_PASSWORD=s3,s3cretS;s3cretT&s3cretU" s3cretV
Environment="FLANNELD_ETCD_PASSWORD=pa}s3cretW s3cretX"
etcd-password: pa,s3cretY
weftd --etcd-password=pa,s3cretZ&s3cret0 --etcd-password 'a s3cret1' -etcd-password="b s3cret2" --public-ip 192.0.2.7
{"passwords": ["s3cret3", "s3cret4"], "secret": {"value": "s3cret5"}, "privateKey": null}
etcd-password: |
  s3cret6
  s3cret7
next: line
ExecStart=/usr/local/bin/weftd --etcd-password \
  s3cret8 --etcd-pasword=-s3cret9 --etcd-password -s3cret10
ExecStartPre=/usr/bin/etcdctl --user root:s3cret11 put x; curl -u me:s3cret12 "https://192.0.2.1/?a=b&sig=s3cret13&key=s3cret14"
{"Backend":{"Type":"extension","PreStartupCommand":"wg set wg0 private-key <(echo s3cret15 \"s3cret16\")","SubnetAddCommand":"add -k s3cret17"}}
config="{\"ShutdownCommand\":\"down \\\"s3cret20\\\" s3cret21\",\"Port\":8285}"
client: LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQpzM2NyZXQxOA==
join 192.0.2.1:6443 abcdef.s3cret0123456789 AKIAS3CRETS3CRET1234 ghp_s3crets3crets3crets3cret
{"pw":"s3cret22","dbPw": "s3cret23", "sig":"s3cret24","\u0070ass":["s3cret25"]} config="{\"sig\":\"s3cret26\"}" DB_PW=s3cret27
url="https://192.0.2.1/?a=b&pw=s3cret28" {"url":"https://192.0.2.1/?a=b\u0026%74oken=s3cret29"} https://192.0.2.1/hook?s3cret30
msg="login \"s3cret \\\"quoted\" failed" auth cm9ib3Q6czNjcmV0
-----BEGIN PGP PRIVATE KEY BLOCK-----
s3cret19
-----END PGP PRIVATE KEY BLOCK-----
-----BEGIN PRIVATE KEY-----
s3cretR`
	s := newScrubber(secrets(p, []string{"ETCDCTL_PASSWORD=s3cretOwn", `MY_TOKEN=s3cret "quoted`,
		"BASIC_SECRET=robot:s3cret"}))
	cfg, bad := p.Settings()
	all := []part{
		{"planted.txt", "s", time.Second, func(context.Context) ([]byte, error) {
			return []byte(planted), errors.New("dial http://x:s3cretZ@192.0.2.1 s3cretOwn")
		}},
		settings(cfg, bad),
		{"plain.txt", "s", time.Second, func(context.Context) ([]byte, error) { return []byte(harmless), nil }},
	}
	var b bytes.Buffer
	if _, err := write(t.Context(), Request{Name: "r"}, all, s, &b); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, b.Bytes())
	for name, text := range got {
		for _, secret := range []string{"s3cret", "s3/cret", "czNjcmV0", "c2lnbmF0dXJl", "yAnz5TF", "S3CRET",
			"cm9ib3Q6", "LS0tLS1"} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has a secret: %q", name, text[max(0, i-40):min(len(text), i+40)])
			}
		}
	}
	if got["r/plain.txt"] != harmless {
		t.Errorf("what is no secret is struck out:\n%s", got["r/plain.txt"])
	}
	for _, want := range []string{"192.0.2.9:2379", "192.0.2.8:2379", "--iface eth0", "level=WARN",
		"--public-ip 192.0.2.7", "next: line", `"PreStartupCommand":"wg xxxxx"`, "etcdctl --user root:",
		`\"down xxxxx\",\"Port\":8285}`, "put x; curl", "192.0.2.1:6443"} {
		if !strings.Contains(got["r/planted.txt"], want) {
			t.Errorf("%s is not there any more:\n%s", want, got["r/planted.txt"])
		}
	}
}

// harmless has what looks a little like a secret and is none.
const harmless = `lease 10.42.1.0/24 10.42.2.0/24, fd00:1::/64 id=89ad9530fca7be597d7ac52d53aa1f70
WEFTD_ETCD_PASSWORD_FILE=/etc/weft/password
"etcd-keyfile": "/etc/weft/key.pem"
2: eth0@if3: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue
    link/ether c6:d2:32:6f:8f:44 brd ff:ff:ff:ff:ff:ff link-netnsid 0
-A FLANNEL-FWD -s 10.42.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT
http://192.0.2.1:2379 [2001:db8::1]:2379
`

// What fails, or hangs, is named, and takes nothing from the rest.
func TestAPartThatFailsIsNamed(t *testing.T) {
	never := make(chan struct{})
	defer close(never)
	all := []part{
		{"hangs.txt", "", time.Millisecond, func(context.Context) ([]byte, error) { <-never; return nil, nil }},
		program("slow.txt", "", 50*time.Millisecond, "sleep", "60"),
		program("none.txt", "", time.Second, "no-such-program"),
		program("fails.txt", "", time.Second, "sh", "-c", "echo said; echo why >&2; exit 3"),
		files("gone.txt", "", "/nonexistent/*"),
		{"good.txt", "", time.Second, func(context.Context) ([]byte, error) { return []byte("good"), nil }},
	}
	var b bytes.Buffer
	m, err := write(t.Context(), Request{Name: "r"}, all, newScrubber(nil), &b)
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(t, b.Bytes())
	if len(got) != len(all)+1 || got["r/good.txt"] != "good" ||
		!strings.Contains(got["r/fails.txt"], "said\n\n[stderr]\nwhy\n\n[not complete: exit status 3]") {
		t.Errorf("%q", got)
	}
	for i, want := range []string{"more than 1ms", "more than 50ms", "no-such-program", "exit status 3",
		"there is none of /nonexistent/*", ""} {
		if got := m.Parts[i].Error; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", m.Parts[i].Name, got, want)
		}
	}
	if !strings.Contains(got["r/manifest.json"], `"schema_version": 1`) ||
		!strings.Contains(got["r/manifest.json"], "no-such-program") {
		t.Error(got["r/manifest.json"])
	}
}
