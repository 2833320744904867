package options

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"weft/lease/etcd"
	"weft/lease/redact"
)

// These are the types that implement flag.Value. A parse error is worded so that it
// reads well after "invalid value "x" for flag -name: ".

// listValue is a comma list; setting it again replaces it, as flannel does.
type listValue struct{ list *[]string }

func (v listValue) Set(s string) error {
	var out []string
	for _, e := range strings.Split(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	*v.list = out
	return nil
}

func (v listValue) String() string {
	if v.list == nil {
		return ""
	}
	return strings.Join(*v.list, ",")
}

// urlsValue is a listValue of URLs; it shows no password in them.
type urlsValue struct{ listValue }

func (v urlsValue) String() string {
	if v.list == nil {
		return ""
	}
	return strings.Join(RedactAll(*v.list), ",")
}

// urlValue is a URL, which shows no password in it.
type urlValue struct{ url *string }

func (v urlValue) Set(s string) error { *v.url = s; return nil }

func (v urlValue) String() string {
	if v.url == nil {
		return ""
	}
	return redact.URL(*v.url)
}

// repeatedValue collects one value each time the flag is given.
type repeatedValue struct{ list *[]string }

func (v repeatedValue) Set(s string) error {
	if s == "" {
		return fmt.Errorf("is empty")
	}
	*v.list = append(*v.list, s)
	return nil
}

func (v repeatedValue) String() string { return listValue(v).String() }

// addrValue is an address of one family (4 or 6), or of any (0).
type addrValue struct {
	addr   *netip.Addr
	family int
}

func (v addrValue) Set(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return fmt.Errorf("is not an IP address")
	}
	a = a.Unmap()
	if v.family == 4 && !a.Is4() {
		return fmt.Errorf("is not an IPv4 address")
	}
	if v.family == 6 && !a.Is6() {
		return fmt.Errorf("is not an IPv6 address")
	}
	*v.addr = a
	return nil
}

func (v addrValue) String() string {
	if v.addr == nil || !v.addr.IsValid() {
		return ""
	}
	return v.addr.String()
}

// unitValue is a whole number of a unit of time, as flannel writes durations.
type unitValue struct {
	d    *time.Duration
	unit time.Duration
}

func (v unitValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("is not a whole number")
	}
	if n > int(365*24*time.Hour/v.unit) || n < 0 {
		return fmt.Errorf("is out of range")
	}
	*v.d = time.Duration(n) * v.unit
	return nil
}

func (v unitValue) String() string {
	if v.d == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*v.d/v.unit), 10)
}

// secretValue never shows what it holds, neither in errors nor as a default.
type secretValue struct{ s *etcd.Secret }

func (v secretValue) Set(s string) error { *v.s = etcd.NewSecret(s); return nil }

func (v secretValue) String() string {
	if v.s == nil || v.s.Reveal() == "" {
		return ""
	}
	return "set"
}

// RedactAll calls redact.URL for each of urls, and returns a new slice.
func RedactAll(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = redact.URL(u)
	}
	return out
}
