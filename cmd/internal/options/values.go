package options

import (
	"errors"
	"flag"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"weft/lease/etcd"
	"weft/lease/redact"
)

// field is a flag.Value. A parse error is worded so that it reads well after "invalid value "x" for flag
// -name: ".
type field[T any] struct {
	of    *T
	parse func(string) (T, error)
	show  func(T) string
}

func (f field[T]) Set(s string) error {
	v, err := f.parse(s)
	if err == nil {
		*f.of = v
	}
	return err
}

func (f field[T]) String() string {
	if f.of == nil { // package flag asks for the zero value's
		return ""
	}
	return f.show(*f.of)
}

// parsed binds a flag whose value is read by parse, and shown as show has it.
func parsed[T any](of *T, parse func(string) (T, error), show func(T) string) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.Var(field[T]{of, parse, show}, name, usage) }
}

// urls is a comma list; setting it again replaces it, as flannel does. It shows no password.
func urls(p *[]string) binder {
	return parsed(p, func(s string) (out []string, _ error) {
		for e := range strings.SplitSeq(s, ",") {
			if e = strings.TrimSpace(e); e != "" {
				out = append(out, e)
			}
		}
		return out, nil
	}, func(all []string) string { return strings.Join(RedactAll(all), ",") })
}

// oneURL shows no password.
func oneURL(p *string) binder {
	return parsed(p, func(s string) (string, error) { return s, nil }, redact.URL)
}

// repeated collects one value each time the flag is given.
func repeated(p *[]string) binder {
	return parsed(p, func(s string) ([]string, error) {
		if s == "" {
			return nil, errors.New("is empty")
		}
		return append(*p, s), nil
	}, func(all []string) string { return strings.Join(all, ",") })
}

// addr is an address of one family (4 or 6), or of any (0).
func addr(p *netip.Addr, family int) binder {
	return parsed(p, func(s string) (netip.Addr, error) {
		a, err := netip.ParseAddr(s)
		a = a.Unmap()
		switch {
		case err != nil:
			return a, errors.New("is not an IP address")
		case family == 4 && !a.Is4():
			return a, errors.New("is not an IPv4 address")
		case family == 6 && !a.Is6():
			return a, errors.New("is not an IPv6 address")
		}
		return a, nil
	}, func(a netip.Addr) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	})
}

// units is a whole number of a unit of time, as flannel writes durations.
func units(p *time.Duration, unit time.Duration) binder {
	return parsed(p, func(s string) (time.Duration, error) {
		n, err := strconv.Atoi(s)
		switch {
		case err != nil:
			return 0, errors.New("is not a whole number")
		case n > int(365*24*time.Hour/unit) || n < 0:
			return 0, errors.New("is out of range")
		}
		return time.Duration(n) * unit, nil
	}, func(d time.Duration) string { return strconv.FormatInt(int64(d/unit), 10) })
}

// secret never shows what it holds, neither in errors nor as a default.
func secret(p *etcd.Secret) binder {
	return parsed(p, func(s string) (etcd.Secret, error) { return etcd.NewSecret(s), nil },
		func(s etcd.Secret) string {
			if s.Reveal() == "" {
				return ""
			}
			return "set"
		})
}

// RedactAll calls redact.URL for each of urls, and returns a new slice.
func RedactAll(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = redact.URL(u)
	}
	return out
}
