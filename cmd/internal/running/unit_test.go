package running

import "testing"

func TestMentions(t *testing.T) {
	t.Parallel()
	for of, want := range map[string]bool{"WEFTD_IFACE=x": true, "FLANNELD_IFACE=x": true,
		"WEFTD_CONTROL_SOCKET=x": false, "PATH=x": false} {
		if Mentions([]string{of}) != want {
			t.Errorf("%s: not %t", of, want)
		}
	}
}
