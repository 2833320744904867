package etcdchild

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// What another process logs appears as if it had been logged here, however it is cut into writes.
func TestRelay(t *testing.T) {
	plain := func(level slog.Level, b *bytes.Buffer) *slog.Logger {
		return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
	say := func(log *slog.Logger) {
		log.Debug("a message", "z", "text with \"quotes\"", "a", 7, "list", []string{"x"})
		log.Warn("another", "error", "no space\nleft")
	}
	var child, want bytes.Buffer
	say(slog.New(slog.NewJSONHandler(&child, &slog.HandlerOptions{Level: slog.LevelDebug})))
	say(plain(slog.LevelDebug, &want))
	for _, size := range []int{1, 7, child.Len()} {
		var got bytes.Buffer
		r := &relay{log: plain(slog.LevelDebug, &got)}
		for part := range slices.Chunk(child.Bytes(), size) {
			if n, err := r.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if said := r.end(); said != "" || got.String() != want.String() {
			t.Errorf("in writes of %d: %q\ngot  %swant %s", size, said, &got, &want)
		}
	}
}

func TestRelayOfWhatIsNoRecord(t *testing.T) {
	for _, c := range []struct{ in, said string }{
		{"panic: oh no\n\ngoroutine 1 [running]:\n", "panic: oh no"},
		{"not ended", "not ended"},
		{"{\"level\":\"LOUD\",\"msg\":\"x\"}\n", `{"level":"LOUD","msg":"x"}`},
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
	got := environment([]string{"WEFTD_ETCD_PASSWORD=x", "FLANNELD_ETCD_PASSWORD=x", "GOGC=50", "NOTIFY_SOCKET=/x", "TZ=UTC", "PATH=/bin", "SSL_CERT_FILE=/f"})
	if want := []string{"GOGC=50", "TZ=UTC", "SSL_CERT_FILE=/f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
