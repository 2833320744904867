package routehook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// fake is a controller that takes everything, unless it is told what to answer.
type fake struct {
	*httptest.Server
	mu     sync.Mutex
	etag   string // "" while there is no view
	number int
	asked  []string // method, condition and token of each request
	answer func(w http.ResponseWriter, r *http.Request) bool
	views  []View // that were taken
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := r.Header
	f.asked = append(f.asked,
		strings.TrimSpace(strings.Join([]string{r.Method, h.Get("If-Match") + h.Get("If-None-Match"),
			h.Get("Authorization")}, " ")))
	if f.answer != nil && f.answer(w, r) {
		return
	}
	if r.Method == http.MethodGet {
		if f.etag == "" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", f.etag)
		return
	}
	if f.etag == "" && h.Get("If-None-Match") != "*" || f.etag != "" && h.Get("If-Match") != f.etag {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	b, _ := io.ReadAll(r.Body)
	var v View
	if err := json.Unmarshal(b, &v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.views = append(f.views, v)
	f.number++
	f.etag = fmt.Sprintf("%q", fmt.Sprint("e", f.number))
	w.Header().Set("ETag", f.etag)
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	a := Answer{SchemaVersion: Schema, Instance: v.Instance, Generation: v.Generation}
	for _, x := range v.Routes {
		a.Routes = append(a.Routes, Verdict{Subnet: x.Subnet, State: Accepted})
	}
	_ = json.NewEncoder(w).Encode(a)
}

// requests are those since the last call.
func (f *fake) requests() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.asked, ", ")
	f.asked = nil
	return s
}

func view(generation uint64) View {
	return View{
		SchemaVersion: Schema, Node: "a/b", Instance: "i", Generation: generation, Lifetime: 900,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")},
		Routes: []Route{{Subnet: netip.MustParsePrefix("10.5.1.0/24"), NextHop: netip.MustParseAddr("192.0.2.1"),
			Node: "a/b", Own: true}},
	}
}

func newTestClient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := NewClient(o, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPutSaysWhatItReplaces: a first view is created, the next one replaces it, and where the controller has
// another one than this node knows, as after a restart of either, that is asked for first.
func TestPutSaysWhatItReplaces(t *testing.T) {
	f := newFake(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("first\nnot this\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newTestClient(t, Options{URL: f.URL + "/", TokenFile: token})
	put := func(c *Client, generation uint64, want string) {
		t.Helper()
		a, err := c.Put(t.Context(), view(generation))
		if err != nil || a.Verdicts()[netip.MustParsePrefix("10.5.1.0/24")].State != Accepted {
			t.Fatal(a, err)
		}
		if got := f.requests(); got != want {
			t.Errorf("asked %s\nwant %s", got, want)
		}
	}
	put(c, 1, "PUT * Bearer first")
	if err := os.WriteFile(token, []byte("second"), 0o600); err != nil { // it is read again
		t.Fatal(err)
	}
	put(c, 2, `PUT "e1" Bearer second`)
	put(newTestClient(t, Options{URL: f.URL}), 1, `PUT *, GET, PUT "e2"`) // another process
	put(c, 3, `PUT "e2" Bearer second, GET  Bearer second, PUT "e3" Bearer second`)
	f.etag = "" // the controller began anew
	put(c, 4, `PUT "e4" Bearer second, GET  Bearer second, PUT * Bearer second`)
	if len(f.views) != 5 || f.views[4].Generation != 4 {
		t.Errorf("views %+v", f.views)
	}
}

// TestLateRequestChangesNothing: a request that was given up, and is carried out after a later one, is
// refused by its condition.
func TestLateRequestChangesNothing(t *testing.T) {
	f := newFake(t)
	c := newTestClient(t, Options{URL: f.URL})
	if _, err := c.Put(t.Context(), view(1)); err != nil {
		t.Fatal(err)
	}
	var late *http.Request
	f.answer = func(w http.ResponseWriter, r *http.Request) bool { // it lies in a proxy
		b, _ := io.ReadAll(r.Body)
		late, _ = http.NewRequest(r.Method, f.URL+r.URL.Path, strings.NewReader(string(b)))
		late.Header = r.Header.Clone()
		f.answer = nil
		w.WriteHeader(http.StatusGatewayTimeout)
		return true
	}
	if _, err := c.Put(t.Context(), view(2)); err == nil {
		t.Fatal("a view without an answer counts as taken")
	}
	if _, err := c.Put(t.Context(), view(3)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(late)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusPreconditionFailed || len(f.views) != 2 || f.views[1].Generation != 3 {
		t.Errorf("the late request: %d, views %+v", resp.StatusCode, f.views)
	}
}

// TestPutSaysWhatIsWrong has each answer that is none, and nothing in it that controls a terminal.
func TestPutSaysWhatIsWrong(t *testing.T) {
	reply := func(status int, header, body string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			for h := range strings.SplitSeq(header, "|") {
				if name, value, ok := strings.Cut(h, ": "); ok {
					w.Header().Set(name, value)
				}
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return true
		}
	}
	const typed = `Content-Type: application/json|ETag: "x"`
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request) bool
		status int
		after  time.Duration
	}{
		"another token":  {reply(401, "", "who are you?\nsecond line"), 401, 0},
		"another place":  {reply(404, "", ""), 404, 0},
		"elsewhere":      {reply(307, "Location: http://192.0.2.9/", ""), 307, 0},
		"busy":           {reply(503, "Retry-After: 7", ""), 503, 7 * time.Second},
		"busy for ever":  {reply(503, "Retry-After: 99999999999", ""), 503, retryAfterMost},
		"a web page":     {reply(200, `Content-Type: text/html|ETag: "x"`, "<html>"), 200, 0},
		"no ETag":        {reply(200, "Content-Type: application/json", "{}"), 200, 0},
		"a weak ETag":    {reply(200, `Content-Type: application/json|ETag: W/"x"`, "{}"), 200, 0},
		"no JSON":        {reply(200, typed, "{"), 200, 0},
		"another schema": {reply(200, typed, `{"schema_version":2}`), 200, 0},
		"another answer": {reply(200, typed, `{"schema_version":1,"instance":"i","generation":4}`), 200, 0},
		"another state": {reply(200, typed,
			`{"schema_version":1,"instance":"i","generation":5,"routes":[{"subnet":"10.5.1.0/24","state":"maybe"}]}`),
			200, 0},
		"always another":    {reply(412, "", ""), 412, 0},
		"escapes, nonsense": {reply(400, "", "\x1b[31mred\xff"), 400, 0},
		"endless": {func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer+10))
			return true
		}, 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.answer = c.answer
			_, err := newTestClient(t, Options{URL: f.URL}).Put(t.Context(), view(5))
			var e *Error
			if !errors.As(err, &e) || e.Status != c.status || e.After != c.after ||
				!strings.Contains(err.Error(), f.URL) || strings.Contains(err.Error(), "\x1b") ||
				!utf8.ValidString(err.Error()) {
				t.Errorf("%v: status %d, after %v, want %d, %v", err, e.Status, e.After, c.status, c.after)
			}
		})
	}
	f := newFake(t)
	f.Close()
	if _, err := newTestClient(t, Options{URL: f.URL}).Put(t.Context(), view(1)); err == nil ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody there: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestFilesSayWhatIsWrong: a token or a certificate that cannot be used is named, and nothing is sent.
func TestFilesSayWhatIsWrong(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	for want, o := range map[string]Options{
		"/none":       {TokenFile: dir + "/none"},
		"visible":     {TokenFile: write("empty", "\nabc\n")},
		"empty2":      {TokenFile: write("empty2", "a b")},
		"authorities": {CAFile: dir + "/none"},
		"PEM":         {CAFile: write("ca", "hello")},
		"tls:":        {CertFile: write("cert", "hello"), KeyFile: write("key", "hello")},
	} {
		o.URL = f.URL
		if _, err := newTestClient(t, o).Put(t.Context(), view(1)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
		if err := o.CheckFiles(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: CheckFiles says %v, want %q", o, err, want)
		}
	}
	if err := (Options{TokenFile: write("token", "secret\n")}).CheckFiles(); err != nil {
		t.Error(err)
	}
	if got := f.requests(); got != "" {
		t.Errorf("asked %s", got)
	}
}

func TestOptionsCheck(t *testing.T) {
	for o, want := range map[Options]string{
		{}:                                                    "is missing",
		{URL: "routes.example"}:                               "want https://",
		{URL: "ftp://routes.example"}:                         "want https://",
		{URL: "https://"}:                                     "want https://",
		{URL: "https://routes.example?a"}:                     "want https://",
		{URL: "http://routes.example"}:                        "http:",
		{URL: "http://127.0.0.1:8480"}:                        "",
		{URL: "http://[::1]:8480/prod"}:                       "",
		{URL: "https://routes.example/x/"}:                    "",
		{URL: "https://me:secret@r.example"}:                  "password",
		{URL: "https://routes.example/?pw=secret&sig=secret"}: "want https",
		{URL: "https://routes.example/%zz?token=secret"}:      "is none",
		{URL: "https://me:secret@r.example/%zz"}:              "is none",
		{URL: "http://routes.example/#secret"}:                "want https",
		{URL: "ftp://routes.example/;sig=secret"}:             "want https",
		{URL: "https://routes.example", CertFile: "a.pem"}:    "key",
	} {
		err := o.Check()
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

func TestViewCheck(t *testing.T) {
	for want, change := range map[string]func(*View){
		"":                      func(*View) {},
		"schema_version is 2":   func(v *View) { v.SchemaVersion = 2 },
		"instance":              func(v *View) { v.Instance = "" },
		"lifetime_seconds is 0": func(v *View) { v.Lifetime = 0 },
		"10.5.1.7/24":           func(v *View) { v.Routes[0].Subnet = netip.MustParsePrefix("10.5.1.7/24") },
		"2001:db8::1":           func(v *View) { v.Routes[0].NextHop = netip.MustParseAddr("2001:db8::1") },
		"twice":                 func(v *View) { v.Routes = append(v.Routes, v.Routes[0]) },
		"10.0.0.0/8":            func(v *View) { v.Routes[0].Subnet = netip.MustParsePrefix("10.0.0.0/8") },
	} {
		v := view(1)
		change(&v)
		err := v.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
