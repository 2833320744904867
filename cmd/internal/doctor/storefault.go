package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// explain says in one sentence why an endpoint does not answer, with what to do.
func (e Endpoint) explain(f *Facts) findings {
	host, port, err := net.SplitHostPort(e.Host)
	if err != nil {
		host, port = e.Host, e.Host
	}
	if len(e.Addrs) > 0 {
		host = e.Addrs[0].String()
	}
	var (
		dns       *net.DNSError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		name      x509.HostnameError
		plain     tls.RecordHeaderError
	)
	text := e.Err.Error()
	_, alert, refused := strings.Cut(text, "remote error: tls: ")
	switch err := e.Err; {
	case errors.Is(err, errTLS):
		return says(Fault, "it speaks TLS, and was asked without").because("its URL begins with http").
			do("write https:// in --etcd-endpoints, and name its CA with --etcd-cafile")
	case errors.Is(err, errNoTLS), errors.As(err, &plain),
		strings.Contains(text, "server gave HTTP response to HTTPS client"):
		return says(Fault, "it does not speak TLS, and was asked with TLS").because("its URL begins with https").
			do("write http:// in --etcd-endpoints, or give etcd a certificate")
	case errors.As(err, &authority):
		return says(Fault, "its certificate is signed by an authority that this node does not know%s",
			issuer(authority.Cert)).because("--etcd-cafile is missing, or has another CA").
			do("name the CA's file with --etcd-cafile; openssl s_client -connect %s -showcerts shows who signed",
				e.Host)
	case errors.As(err, &name):
		return says(Fault, "its certificate is not for this name: it is for %s", names(name.Certificate)).
			because("the endpoint is written otherwise than in the certificate").
			do("write it as the certificate has it, or make a certificate with this name")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil &&
		f.Now.Before(invalid.Cert.NotBefore):
		return says(Fault, "its certificate is valid only from %s on", date(invalid.Cert.NotBefore)).
			because("this host's clock is behind").do("timedatectl")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		x := says(Fault, "its certificate has expired")
		if invalid.Cert != nil {
			x = says(Fault, "its certificate has expired on %s", date(invalid.Cert.NotAfter))
		}
		return x.because("nobody renewed it, or this host's clock is ahead").
			do("renew it on that host; timedatectl; openssl s_client -connect %s </dev/null | openssl x509 -noout "+
				"-dates", e.Host)
	case errors.As(err, &invalid):
		return says(Fault, "its certificate is not good: %v", invalid).
			do("openssl s_client -connect %s -showcerts", e.Host)
	case refused:
		return e.alert(alert, f)
	case errors.As(err, &dns):
		return says(Fault, "its name does not resolve: %s", dns.Err).
			because("it is misspelt, or the name server does not answer").do("getent hosts %s", dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return says(Fault, "it refuses the connection: nothing listens there").
			because("etcd does not run there, or listens at another address or port").
			do("on that host: ss -lntp 'sport = :%s'", port)
	case errors.Is(err, syscall.ENOENT):
		return says(Fault, "there is no such socket").because("the store does not run on this host").
			do("systemctl status etcd")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return says(Fault, "there is no way to it: %v", bare(err)).
			because("a route is missing, the host is down, or something on the way refuses").
			do("ip route get %s; ping %s", host, host)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return says(Fault, "it does not answer in time").
			because("its host is down, or a firewall drops TCP port %s", port).
			do("ping %s; on that host: ss -lntp 'sport = :%s' and its firewall", host, port)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return says(Fault, "it closes the connection without an answer").
			because("what listens there is no etcd, or is overloaded").do("on that host: ss -lntp 'sport = :%s'", port)
	}
	return says(Fault, "it does not answer: %v", bare(e.Err))
}

// alert explains why the server broke TLS off: what stands after "remote error: tls: ".
func (e Endpoint) alert(alert string, f *Facts) findings {
	given := f.Settings.Store.CertFile
	switch {
	case given == "" && (strings.Contains(alert, "certificate required") ||
		strings.Contains(alert, "bad certificate") || strings.Contains(alert, "handshake failure")):
		return says(Fault, "it asks for a client certificate, and none is given").
			do("name ours with --etcd-certfile and --etcd-keyfile")
	case strings.Contains(alert, "expired certificate"):
		return says(Fault, "it refuses our client certificate as expired").about(given).
			do("openssl x509 -in %s -noout -dates; timedatectl, on both hosts", given)
	case strings.Contains(alert, "unknown certificate authority"), strings.Contains(alert, "bad certificate"),
		strings.Contains(alert, "certificate required"), strings.Contains(alert, "unknown certificate"):
		return says(Fault, "it refuses our client certificate %s", given).
			because("it has expired, another CA signed it than the one that etcd trusts (--trusted-ca-file), or it "+
				"is not for clients").do("openssl x509 -in %s -noout -dates -issuer -ext extendedKeyUsage", given)
	}
	return says(Fault, "it breaks TLS off: %s", alert).do("openssl s_client -connect %s", e.Host)
}

func issuer(c *x509.Certificate) string {
	if c == nil || c.Issuer.String() == "" {
		return ""
	}
	return " (" + c.Issuer.String() + ")"
}

func names(c *x509.Certificate) string {
	if c == nil {
		return "others"
	}
	out := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	if len(out) == 0 {
		return "no name at all"
	}
	return strings.Join(out, ", ")
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// bare is the error of the system or the network alone, without operation, path and addresses.
func bare(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	if op := new(net.OpError); errors.As(err, &op) {
		return op.Err
	}
	return err
}

// refused explains why a store that answers does not let us read.
func refused(err error, user string) findings {
	text := err.Error()
	switch {
	case strings.Contains(text, "authentication failed, invalid user ID or password"):
		return says(Fault, "the store refuses the login of %q: wrong user or password", user).
			do("etcdctl --user %s endpoint status asks for the password; etcdctl user passwd %s sets another", user,
				user)
	case strings.Contains(text, "user name is empty"), strings.Contains(text, "user name not found"):
		return says(Fault, "the store asks for a login, and none is given").
			do("--etcd-username with --etcd-password-file")
	case strings.Contains(text, "permission denied"):
		return says(Fault, "the store lets the user %q log in, and not read the prefix", user).
			because("its role lacks a permission").
			do("etcdctl role grant-permission ROLE readwrite --prefix=true PREFIX; etcdctl user get %s shows the "+
				"roles", user)
	case strings.Contains(text, "authentication is not enabled"):
		return says(Fault, "a login is given, and the store has none").
			do("leave out --etcd-username, or etcdctl auth enable")
	case isTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return says(Fault, "the store answers, and did not end the read of %s in time", etcdStore).
			because("it has no leader, is slow, or large packets from it are lost").
			do("etcdctl endpoint status --cluster -w table shows leader and time; ping -M do -s 1400 to it, " +
				"whether large packets pass")
	case strings.Contains(text, "no leader"), strings.Contains(text, "leader changed"):
		return says(Fault, "the store answers and cannot serve").
			because("it has no leader: more than half of its members have to be there").
			do("etcdctl endpoint status --cluster -w table")
	case strings.Contains(text, "NOSPACE"), strings.Contains(text, "database space exceeded"):
		return full()
	}
	return says(Fault, "the store cannot be read: %s", plain(text))
}

func full() findings {
	return says(Fault, "the store's database is full: it takes no writes, so that nodes lose their subnets "+
		"in time").
		do(`etcdctl compact $(etcdctl endpoint status -w json | grep -o '"revision":[0-9]*' | head -n1 | cut ` +
			"-d: -f2); etcdctl defrag --cluster; etcdctl alarm disarm")
}

// plain takes the wrapping of gRPC off a message.
func plain(text string) string {
	for _, mark := range []string{"desc = ", "etcdserver: "} {
		if i := strings.LastIndex(text, mark); i >= 0 {
			text = text[i+len(mark):]
		}
	}
	return strings.Trim(text, `"`)
}

// span is a duration with one unit that fits.
func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
