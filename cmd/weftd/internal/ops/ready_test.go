package ops

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	sys "golang.org/x/sys/unix"

	"weft/lease"
	"weft/routing"
	"weft/test/await"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// What the cluster has assigned outlasts a silence of the API server, which is a note then, beside that of a podCIDR
// that is missing.
func TestNotesOfAnAssignedSubnet(t *testing.T) {
	s := State{Assigned: true, Source: "API server", Lease: lease.Status{State: lease.Unconfirmed, StoreErr: errors.New("refused"), Notes: []string{"no podCIDR of IPv6"},
		Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.244.1.0/24")}}}}
	if got := s.Notes(time.Now()); !slices.Equal(got, []string{"no podCIDR of IPv6", "API server: refused"}) {
		t.Errorf("%q", got)
	}
	s.Lease.StoreRefuses = true // which is a reason not to be ready
	if got := s.Notes(time.Now()); len(got) != 1 {
		t.Errorf("%q", got)
	}
	s.Assigned = false
	if got := s.Notes(time.Now()); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestReasons(t *testing.T) {
	now := time.Unix(100000, 0)
	good := State{
		Lease:   lease.Status{State: lease.Held, StoreSeen: now},
		Backend: routing.Status{InPlace: true},
	}
	assigned := func(s *State) { // by the cluster, and known by the cache
		s.Assigned, s.Lease = true, lease.Status{State: lease.Unconfirmed, StoreErr: errors.New("refused"),
			Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.244.1.0/24")}}}
	}
	for _, tt := range []struct {
		name   string
		change func(*State)
		want   []string // beginnings, all of them
	}{
		{"ready", func(*State) {}, nil},
		{"waiting", func(s *State) { *s = State{Waiting: "config: none"} }, []string{"config: none"}},
		{"lease", func(s *State) { s.Lease.State, s.Lease.Err = lease.Lost, errors.New("b has it") }, []string{"lease: lost: b has it"}},
		{"store never seen", func(s *State) { s.Lease.StoreSeen = time.Time{} }, []string{"store: no answer"}},
		{"store silent within the grace", func(s *State) { s.Lease.StoreErr, s.Lease.StoreSeen = errors.New("refused"), now.Add(-storeGrace) }, nil},
		{"store silent", func(s *State) { s.Lease.StoreErr, s.Lease.StoreSeen = errors.New("refused"), now.Add(-time.Minute) }, []string{"store: silent for 1m0s: refused"}},
		{"store silent behind the overlay", func(s *State) {
			s.StoreCut, s.Lease.StoreErr, s.Lease.StoreSeen = "Network contains it", errors.New("refused"), now.Add(-time.Minute)
		}, []string{"store: silent for 1m0s: Network contains it (refused)"}},
		{"store behind the overlay that answers yet", func(s *State) { s.StoreCut = "Network contains it" }, nil},
		{"a store that refuses, at a start", func(s *State) {
			s.Lease.State, s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = lease.Unconfirmed, errors.New("forbidden: list nodes"), true, now.Add(-time.Second)
		}, []string{"store: refuses us: forbidden: list nodes", "lease: unconfirmed"}},
		{"a store that refuses within the grace", func(s *State) {
			s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = errors.New("forbidden"), true, now.Add(-storeGrace)
		}, nil},
		{"a store that goes on refusing, and answers all the time", func(s *State) {
			s.Lease.StoreErr, s.Lease.StoreRefuses, s.Lease.StoreSince = errors.New("forbidden"), true, now.Add(-time.Minute)
		}, []string{"store: refuses us: forbidden"}},
		{"a store that answers questions and no more", func(s *State) {
			s.Lease.StoreErr, s.Lease.StoreSince = errors.New("internal error"), now.Add(-time.Minute)
		}, []string{"store: has not served us for 1m0s: internal error"}},
		{"a quiet store that answers", func(s *State) { s.Lease.StoreSeen = now.Add(-time.Hour) }, nil},
		{"routes", func(s *State) { s.Backend = routing.Status{LastError: "x"} }, []string{"routes: x"}},
		{"routes at first", func(s *State) { s.Backend = routing.Status{} }, []string{"routes: not in place yet"}},
		{"underlay", func(s *State) { s.Backend.UnderlayLost = "eth0 is down" }, []string{"underlay: eth0 is down"}},
		{"rules", func(s *State) { s.Rules = "iptables is missing" }, []string{"rules: iptables is missing"}},
		{"a store with a name", func(s *State) { s.Source, s.Lease.StoreSeen = "API server", time.Time{} }, []string{"API server: no answer"}},
		{"a start without the API server", assigned, nil},
		{"a start without the API server, and without a subnet", func(s *State) { assigned(s); s.Lease.Own, s.Lease.State = lease.Record{}, lease.Acquiring }, []string{"store: refused", "lease: acquiring"}},
		{"a start before the API server was asked", func(s *State) { assigned(s); s.Lease.StoreErr = nil }, []string{"store: no answer", "lease: unconfirmed"}},
		{"an API server that is away", func(s *State) { assigned(s); s.Lease.State, s.Lease.StoreSeen = lease.Held, now.Add(-time.Hour) }, nil},
		{"an API server that refuses us, at a start", func(s *State) { assigned(s); s.Lease.StoreRefuses = true }, []string{"store: refuses us", "lease: unconfirmed"}},
		{"an API server behind the overlay", func(s *State) { assigned(s); s.StoreCut = "Network contains it" }, []string{"store: Network contains it", "lease: unconfirmed"}},
		{"annotations that cannot be written", func(s *State) { assigned(s); s.Lease.StoreErr, s.Lease.StoreSeen = nil, now }, []string{"lease: unconfirmed"}},
		{"all", func(s *State) { *s = State{SubnetFile: "y"} }, []string{"store:", "lease:", "routes:", "subnet file: y"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.change(&s)
			got := s.Reasons(now)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, w := range tt.want {
				if !strings.HasPrefix(got[i], w) {
					t.Errorf("got %q, want %q", got[i], w)
				}
			}
		})
	}
}

// Packets flow although the store does not answer.
func TestBrokenIsAboutPacketsOnly(t *testing.T) {
	s := State{Backend: routing.Status{InPlace: true}, Lease: lease.Status{State: lease.Unconfirmed, StoreErr: errors.New("refused")}, StoreCut: "Network contains it"}
	if got := s.Broken(); len(got) > 0 || len(s.Reasons(time.Now())) != 2 {
		t.Errorf("broken %q, reasons %q", got, s.Reasons(time.Now()))
	}
	s.Backend.UnderlayLost, s.SubnetFile, s.Rules = "eth0 is down", "x", "y"
	if got := strings.Join(s.Broken(), "; "); got != "underlay: eth0 is down; subnet file: x; rules: y" {
		t.Errorf("broken %q", got)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	var why []string
	h := Handler(func() []string { return why }, func() Snapshot { return Snapshot{} })
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	for _, tt := range []struct {
		path string
		why  []string
		code int
		body string
	}{
		{"/healthz", []string{"x"}, http.StatusOK, "flanneld is running"},
		{"/readyz", nil, http.StatusOK, "flanneld is ready"},
		{"/readyz", []string{"a", "b: x\ny"}, http.StatusServiceUnavailable, "flanneld is not ready yet\na\nb: x; y"},
	} {
		why = tt.why
		if code, body := get(tt.path); code != tt.code || body != tt.body {
			t.Errorf("%s with %q: %d %q, want %d %q", tt.path, tt.why, code, body, tt.code, tt.body)
		}
	}
}

func TestABusyPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ap := netip.MustParseAddrPort(l.Addr().String())
	if _, err := Listen(ap.Addr(), int(ap.Port())); err == nil || !strings.Contains(err.Error(), "--healthz-port") {
		t.Errorf("got %v", err)
	}
	if _, err := Listen(netip.MustParseAddr("192.0.2.77"), 0); err == nil || !strings.Contains(err.Error(), "--healthz-ip") {
		t.Errorf("got %v", err)
	}
}

func TestSystemdIsToldOnceThatItIsReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	s := NewSystemd(discard())
	s.Reloading()() // not before it is ready
	s.Readiness([]string{"a", "b\nc"})
	s.Readiness(nil)
	s.Readiness([]string{"d"})
	s.Readiness(nil)
	s.Readiness(nil)
	before := monotonic(t)
	done := s.Reloading()
	s.Readiness([]string{"e"})
	done()
	s.Stopping()
	for _, want := range []string{"STATUS=a; b; c", "READY=1\nSTATUS=ready", "STATUS=d", "STATUS=ready", "RELOADING=1\nMONOTONIC_USEC=", "STATUS=e", "READY=1\nSTATUS=e", "STOPPING=1\nSTATUS=stopping"} {
		b := make([]byte, 500)
		if err := c.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		n, err := c.Read(b)
		if at, ok := strings.CutPrefix(string(b[:n]), want); ok && strings.HasSuffix(want, "USEC=") { // systemd waits for one that is later than its SIGHUP
			if usec, err := strconv.ParseInt(at, 10, 64); err != nil || usec < before || usec > monotonic(t) {
				t.Errorf("at %q, %v: since %d", at, err, before)
			}
			continue
		}
		if err != nil || string(b[:n]) != want {
			t.Fatalf("got %q %v, want %q", b[:n], err, want)
		}
	}
}

// monotonic is the clock that systemd compares with, in microseconds.
func monotonic(t *testing.T) int64 {
	t.Helper()
	var now sys.Timespec
	if err := sys.ClockGettime(sys.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano() / 1000
}
