package daemon

import "testing"

func TestImagePages(t *testing.T) {
	const exe = "/usr/bin/weftd"
	for line, want := range map[string]bool{
		"00400000-0118a000 r-xp 00000000 fe:00 99 /usr/bin/weftd":           true,
		"0118a000-0206e000 r--p 00d8a000 fe:00 99 /usr/bin/weftd":           true,
		"0206e000-0210a000 rw-p 01c6e000 fe:00 99 /usr/bin/weftd":           false,
		"00400000-0118a000 r-xp 00000000 fe:00 99 /usr/bin/weftd (deleted)": false,
		"00400000-0118a000 r-xp 00000000 fe:00 99 /usr/bin/other":           false,
		"7ffc1000-7ffc3000 r-xp 00000000 00:00 0 [vdso]":                    false,
		"0118a000-00400000 r-xp 00000000 fe:00 99 /usr/bin/weftd":           false,
		"x-y r-xp 00000000 fe:00 99 /usr/bin/weftd":                         false,
		"": false,
	} {
		from, to, ok := imagePages(line, exe)
		if ok != want || ok && from >= to {
			t.Errorf("%q: %x to %x, %v", line, from, to, ok)
		}
	}
}

// The program runs as before after its pages were released, since they come back.
func TestDropImage(t *testing.T) {
	if err := dropImage(); err != nil {
		t.Fatal(err)
	}
	TestImagePages(t)
}
