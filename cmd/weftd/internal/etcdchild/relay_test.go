package etcdchild

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// What etcd logs becomes a record here, however it is cut into writes.
func TestRelay(t *testing.T) {
	const log = `{"level":"info","ts":"2026-01-02T03:04:05.678Z","caller":"x/y.go:1","msg":"one","n":7,"a":["x"]}
{"level":"warn","ts":"2026-01-02T03:04:05.678Z","msg":"two"}
{"level":"error","ts":"2026-01-02T03:04:05.678Z","msg":"three","error":"no space\nleft","stacktrace":"main.main"}
{"level":"fatal","ts":"2026-01-02T03:04:05.678Z","msg":"four","error":"gone"}
`
	const want = "level=DEBUG msg=one a=[x] n=7\nlevel=DEBUG msg=two\nlevel=WARN msg=three error=\"no " +
		"space\\nleft\"\nlevel=WARN msg=four error=gone\n"
	for _, size := range []int{1, 7, len(log)} {
		var got bytes.Buffer
		r := &relay{log: slog.New(slog.NewTextHandler(&got,
			&slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))}
		for part := range slices.Chunk([]byte(log), size) {
			if n, err := r.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if said := r.end(); said != "four: gone" || got.String() != want {
			t.Errorf("in writes of %d: %q\ngot  %swant %s", size, said, &got, want)
		}
	}
}

func TestRelayOfWhatIsNoRecord(t *testing.T) {
	for _, c := range []struct{ in, said string }{
		{"panic: oh no\n\ngoroutine 1 [running]:\n", "panic: oh no"},
		{"not ended", "not ended"},
		{"{\"level\":\"INFO\"}\n", `{"level":"INFO"}`},
		{"{\"msg\":", `{"msg":`},
		{"[]\n", "[]"},
		{strings.Repeat("x", maxLine+1), strings.Repeat("x", maxLine+1)},
		{"\n", ""},
	} {
		var got bytes.Buffer
		r := &relay{log: slog.New(slog.NewTextHandler(&got, nil))}
		if _, err := r.Write([]byte(c.in)); err != nil {
			t.Fatal(err)
		}
		if said := r.end(); said != c.said || (said != "") != strings.Contains(got.String(), "level=WARN") {
			t.Errorf("%.40q: %.40q, logged %.80q", c.in, said, &got)
		}
	}
}

func TestTheChildGetsNoSecrets(t *testing.T) {
	got := environment([]string{"WEFTD_ETCD_PASSWORD=x", "FLANNELD_ETCD_PASSWORD=x", "GOGC=50",
		"NOTIFY_SOCKET=/x", "TZ=UTC", "PATH=/bin", "SSL_CERT_FILE=/f"})
	if want := []string{"GOGC=50", "TZ=UTC", "SSL_CERT_FILE=/f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
