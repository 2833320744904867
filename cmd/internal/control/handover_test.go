package control

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// handOverFake is the part of fake that gives way.
type handOverFake struct {
	fake
	asked, upgraded int
}

func (f *handOverFake) MayHandOver(HandOverRequest) error { f.asked++; return ErrRefused }
func (f *handOverFake) HandOver(HandOverRequest, Caller, *net.UnixConn) {
	panic("it was not allowed to")
}

func (f *handOverFake) Upgrade(context.Context, UpgradeRequest) (Upgraded, error) {
	f.upgraded++
	return Upgraded{PID: 7}, nil
}

// What weftd has open goes to its own user and root only, and only they name a program that it starts or give the node another
// key, give subnets up or have it read its settings again, whatever the mode of the socket has become.
func TestOthersAreHandedNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		caller any
		may    bool
	}{
		{"root", uint32(0), true}, {"the same user", uint32(os.Geteuid()), true}, {"another user", uint32(os.Geteuid() + 1234), false},
		{"nobody", uint32(65534), false}, {"a caller without a name", nil, false},
	} {
		f := &handOverFake{}
		h := serverOf(f).Handler()
		for path, body := range map[string]string{"/v1/handover": `{"protocol":1,"state":"it is known","of a later version":{}}`, upgradePath: `{"binary":"/bin/sh"}`, "/v1/rotate-key": "",
			"/v1/leases/release": `{"subnet":"10.0.0.0/24"}`, "/v1/reload": ""} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Upgrade", upgradeTo)
			if c.caller != nil {
				r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c.caller))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if c.may && strings.Contains(w.Body.String(), "root, or") {
				t.Errorf("%s at %s: %s", c.name, path, w.Body)
			}
			if !c.may && (w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "root, or")) {
				t.Errorf("%s at %s: %d %s", c.name, path, w.Code, w.Body)
			}
		}
		want := 0
		if c.may {
			want = 1
		}
		if released := f.request != (ReleaseRequest{}); released != c.may {
			t.Errorf("%s: released %v", c.name, released)
		}
		if f.asked != want || f.upgraded != want {
			t.Errorf("%s: asked %d times to give way, %d times to start a program", c.name, f.asked, f.upgraded)
		}
	}
}
