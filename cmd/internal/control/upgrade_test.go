package control

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// upgradeFake is the part of fake that gives way.
type upgradeFake struct {
	fake
	asked, upgraded, begun int
}

func (f *upgradeFake) LastUpgrade() Upgrade        { return Upgrade{} }
func (f *upgradeFake) MayYield(YieldRequest) error { f.asked++; return ErrRefused }
func (f *upgradeFake) Yield(func())                { panic("it was not allowed to") }

func (f *upgradeFake) Upgrade(context.Context, UpgradeRequest) (Upgrade, func(), error) {
	f.upgraded++
	return Upgrade{ID: "x"}, func() { f.begun++ }, nil
}

// TestStrangersChangeNothing: only root and weftd's own user have it execute a program, give way, take
// another key, give a subnet up or read its settings again, whatever the mode of the socket has become.
func TestStrangersChangeNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		caller any
		may    bool
	}{
		{"root", uint32(0), true}, {"the same user", uint32(os.Geteuid()), true},
		{"another user", uint32(os.Geteuid() + 1234), false},
		{"nobody", uint32(65534), false}, {"a caller without a name", nil, false},
	} {
		f := &upgradeFake{}
		h := serverOf(f).Handler()
		for path, body := range map[string]string{
			yieldPath: `{"state":"it is known"}`, upgradePath: `{"binary":"/bin/sh"}`, "/v1/rotate-key": "",
			"/v1/leases/release": `{"subnet":"10.0.0.0/24"}`, "/v1/reload": "",
		} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
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
		if f.asked != want || f.upgraded != want || f.begun != want {
			t.Errorf("%s: asked %d times to give way, %d times to execute a program, which it did %d times", c.name,
				f.asked, f.upgraded, f.begun)
		}
	}
}
