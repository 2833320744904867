package rootless

import (
	"errors"
	"strings"
	"testing"
)

// What keeps an ordinary user from a namespace is said with what to do.
func TestWhyNoNamespace(t *testing.T) {
	t.Parallel()
	fresh, join := way{tool: "unshare"}, way{tool: "nsenter"}
	for _, tt := range []struct {
		name string
		w    way
		said string
		h    host
		want []string
	}{
		{"none allowed", fresh, "unshare: unshare failed: No space left on device", host{maxUser: "0"},
			[]string{"user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces="}},
		{"Debian's switch", fresh, "unshare: unshare failed: Operation not permitted",
			host{maxUser: "1", cloneUser: "0"}, []string{"sysctl -w kernel.unprivileged_userns_clone=1"}},
		{"AppArmor", fresh, "unshare: write failed /proc/self/uid_map: Operation not permitted",
			host{maxUser: "1", appArmor: "1"}, []string{"AppArmor", "apparmor_restrict"}},
		{"too many", fresh, "unshare: unshare failed: No space left on device", host{maxUser: "9"},
			[]string{"user.max_user_namespaces"}},
		{"a sandbox", fresh, "unshare: unshare failed: Operation not permitted", host{maxUser: "9"},
			[]string{"namespace", "Operation"}},
		{"somebody else's", join, "nsenter: reassociate to namespace 'ns/user' failed: Operation not permitted",
			host{}, []string{"another user's", "start"}},
		{"no device", join, "open /dev/net/tun: " + errNoAccess.Error(), host{maxUser: "0"},
			[]string{"chmod 0666 /dev/net/tun"}},
		{"not root there", join, errNotRoot.Error(), host{}, []string{"keep-id"}},
	} {
		err := tt.w.explain(tt.said, tt.h)
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q lacks %q", tt.name, err, want)
			}
		}
	}
}

// A word that names no namespace, or the one that weftd is in, is refused with what to name.
func TestNamespacesThatAreNone(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"1073741824":            "1073741824",
		"/nonexistent/netns":    "namespace",
		"/dev/null":             "namespace",
		"/proc/self/ns/user":    "namespace",
		"/proc/self/ns/net":     "namespace",
		"/proc/thread-self/net": "namespace",
	} {
		if _, err := find(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
	if _, err := joined("found"); err == nil || errors.Is(err, errNotRoot) {
		t.Errorf("a word that nobody hands on: %v", err)
	}
}

// A process that may change its own namespace is told what it takes to enter another one, and an ordinary
// user's what to name.
func TestWhyNotEntered(t *testing.T) {
	t.Parallel()
	for admin, want := range map[bool]string{true: "CAP_SYS_ADMIN", false: "unshare -Urn"} {
		if got := whyNotEntered(admin); !strings.Contains(got, want) {
			t.Errorf("%t: %q lacks %q", admin, got, want)
		}
	}
}
