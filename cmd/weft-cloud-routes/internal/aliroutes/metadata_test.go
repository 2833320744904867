package aliroutes

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weft/cmd/weft-cloud-routes/internal/tabletest"
	"weft/test/alitest"
)

// alone leaves no credentials but those of an instance.
func alone(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET",
		"ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_CONFIG_FILE", "ALIBABA_CLOUD_CLI_PROFILE_DISABLED",
		"ALIBABA_CLOUD_IMDSV1_DISABLED", "NO_PROXY"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
}

// Region, VPC and credentials are those of the instance, by the metadata service with a session, and past any
// proxy.
func TestMetadataTellsWhereAndWho(t *testing.T) {
	w := newWorld(t, nil)
	alone(t)
	m := alitest.Metadata("vpc-1", time.Hour)
	t.Cleanup(m.Close)
	if tr, ok := newMetadata(m.URL).client.Transport.(*http.Transport); !ok || tr.Proxy != nil {
		// which Go itself passes by only on loopback
		t.Error("a proxy of the environment would be given credentials")
	}
	o := w.o
	o.Region, o.VPC, o.Metadata = "", "", m.URL
	var err error
	if w.cloud, err = o.Open(t.Context(), w.cloud.Options); err != nil {
		t.Fatal(err)
	}
	w.round(a4, false)
	w.has("vtb-1", inA)
	m.Close()
	w.round(a4, false) // the credentials are good for an hour
	for _, missing := range []func(*Options){func(o *Options) { o.Region = "" }, func(o *Options) { o.VPC = "" },
		func(*Options) {}} {
		o := w.o
		o.Metadata = m.URL
		missing(&o)
		want := map[bool]string{o.Region == "": "--region", o.VPC == "": "--vpc", o.Region != "" &&
			o.VPC != "": "RAM"}[true]
		if _, err := o.Open(t.Context(), w.cloud.Options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Credentials that are about to end are asked for anew, and serve on while the service does not answer.
func TestCredentialsOfARoleAreRenewed(t *testing.T) {
	m := alitest.Metadata("vpc-1", renewBefore/2)
	t.Cleanup(m.Close)
	r := &role{metadata: newMetadata(m.URL)}
	for range 2 {
		if c, err := r.GetCredentials(); err != nil || c.SecurityToken != alitest.SecurityToken {
			t.Fatal(c, err)
		}
		if time.Until(r.until) < renewBefore/4 {
			t.Errorf("what is good until %v was not asked for anew", r.until)
		}
		r.until = time.Now().Add(renewBefore / 8)
	}
	m.Close()
	if _, err := r.GetCredentials(); err != nil {
		t.Error(err)
	}
	r.until = time.Now()
	if c, err := r.GetCredentials(); err == nil {
		t.Errorf("%v is over, and was given", c)
	}
}

// Who has set something hears what is wrong with that.
func TestWhereCredentialsAreLookedFor(t *testing.T) {
	w := newWorld(t, nil)
	o := w.o
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file,
		[]byte(`{"current":"one","profiles":[{"name":"one","mode":"AK","access_key_id":"`+alitest.KeyID+
			`","access_key_secret":"`+alitest.Secret+`"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ variable, value, want string }{
		"environment": {"ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI", "ALIBABA_CLOUD_ACCESS_KEY_ID"},
		"token":       {"ALIBABA_CLOUD_OIDC_TOKEN_FILE", "/nowhere", "ALIBABA_CLOUD_OIDC_TOKEN_FILE"},
		"file":        {"ALIBABA_CLOUD_CONFIG_FILE", "/nowhere", "/nowhere"},
		"a good file": {"ALIBABA_CLOUD_CONFIG_FILE", file, ""},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t)
			t.Setenv(c.variable, c.value)
			cloud, err := o.Open(t.Context(), w.cloud.Options)
			switch {
			case c.want == "" && err == nil:
				if _, err := cloud.Program(t.Context(), nil, true); err != nil {
					t.Error(err)
				}
			case c.want == "" || err == nil || !strings.Contains(err.Error(), c.want):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A proxy of the environment sees no request for the credentials of the instance's role that the aliyun
// command's file names. It is asked in a process of its own, since Go reads the variables once.
func TestAProxySeesNoCredentials(t *testing.T) {
	const asChild = "WEFT_TEST_BEHIND_A_PROXY"
	if os.Getenv(asChild) != "" {
		known, from, err := credentialsFrom(newMetadata("http://127.0.0.1:1"))
		if err != nil || !strings.Contains(from, "config.json") {
			t.Fatal(from, err)
		}
		_, _ = known.GetCredential() // there is no such service here
		return
	}
	alone(t)
	var seen atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	t.Cleanup(proxy.Close)
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file,
		[]byte(`{"current":"one","profiles":[{"name":"one","mode":"EcsRamRole"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), asChild+"=1", "HTTP_PROXY="+proxy.URL, "no_proxy=example.org",
		"ALIBABA_CLOUD_PROFILE=", "ALIBABA_CLOUD_CONFIG_FILE="+file)
	if out, err := child.CombinedOutput(); err != nil || seen.Load() > 0 {
		t.Errorf("%d requests: %v\n%s", seen.Load(), err, out)
	}
}

// Without a home no file of the directory that the program runs in is read.
func TestWithoutAHome(t *testing.T) {
	alone(t)
	t.Setenv("HOME", "")
	t.Chdir(t.TempDir())
	if err := os.Mkdir(".aliyun", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(".aliyun", "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, from, err := credentialsFrom(newMetadata("http://127.0.0.1:1")); err != nil ||
		from != "the role of this instance (http://127.0.0.1:1)" {
		t.Errorf("%s, %v", from, err)
	}
}

// An answer that sends elsewhere is an error: what is signed goes nowhere but to the API.
func TestNoRedirectIsFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	from := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(from.Close)
	w := newWorld(t, nil)
	o := w.o
	o.ECSEndpoint = from.URL
	c, err := o.Open(t.Context(), w.cloud.Options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Program(t.Context(), tabletest.Routes(a4), false); !errors.Is(err, errRedirect) ||
		elsewhere.Load() != 0 {
		t.Errorf("%v; %d requests elsewhere", err, elsewhere.Load())
	}
}
