package kernel

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestSettingNotes(t *testing.T) {
	lost := func(name string) error { return &settingError{name, "1", fs.ErrPermission} }
	for _, tt := range []struct {
		name string
		err  error
		want []string // one in each note
	}{
		{"none", nil, nil},
		{"another fault", errors.New("x"), nil},
		{"ICMP", lost(acceptLocal), []string{"net.ipv4.conf.flannel3.accept_local=1"}},
		{"both, joined", errors.Join(lost(acceptLocal), lost(ignoreLinkDown)), []string{"ICMPv4", "default route"}},
		{"one that costs nothing", errors.Join(lost(acceptRA)), nil},
	} {
		got := SettingNotes("flannel3", tt.err)
		if !slices.EqualFunc(got, tt.want, strings.Contains) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
