package kube

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"weft/lease/internal/clientcert"
)

const (
	dialTimeout = 10 * time.Second
	// headerTimeout bounds the wait for the first byte of an answer: also a watch answers at once.
	headerTimeout = 30 * time.Second
	// pingAfter and pingTimeout find a connection of HTTP/2 that is black-holed, and the
	// keepalive one of HTTP/1.1, both in less than half a minute.
	pingAfter   = 10 * time.Second
	pingTimeout = 10 * time.Second
	// idleTimeout closes connections that carry nothing.
	idleTimeout = 90 * time.Second
	// qps and burst bound what a fault of ours could do to the API server; nothing reaches them.
	qps, burst = 20, 40
)

// newTransport returns a transport of our own instead of the library's, which keeps every one
// that it ever made, with a goroutine each, and finds a dead connection late. hangUp closes all of
// its connections: the next ones read the files with credentials again.
func newTransport(cfg *rest.Config) (rt http.RoundTripper, hangUp func(), err error) {
	tc, err := cfg.TransportConfig()
	if err != nil {
		return nil, nil, err
	}
	tlsConfig, err := transport.TLSConfigFor(tc)
	if err != nil {
		return nil, nil, err
	}
	if tlsConfig != nil {
		clientcert.Keep(tlsConfig)
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: pingAfter, Interval: pingTimeout / 3, Count: 3,
	}}
	base := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: tlsConfig,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: headerTimeout, IdleConnTimeout: idleTimeout,
		MaxIdleConnsPerHost: 4, DisableCompression: cfg.DisableCompression,
		ForceAttemptHTTP2: true,
		HTTP2:             &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if tc.Proxy != nil {
		base.Proxy = tc.Proxy
	}
	dial := dialer.DialContext
	if tc.DialHolder != nil {
		dial = tc.DialHolder.Dial
	}
	tracked := connrotation.NewDialer(dial)
	base.DialContext = tracked.DialContext
	wrapped, err := transport.HTTPWrappersForConfig(tc, base)
	return wrapped, tracked.CloseAll, err
}

// newREST returns a client that knows Nodes and Pods and nothing else: the clientset of
// client-go registers every API group when a program starts, some 10 MB of heap.
func newREST(cfg *rest.Config, log *slog.Logger) (client *rest.RESTClient, hangUp func(), err error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)

	cfg = rest.CopyConfig(cfg)
	version := corev1.SchemeGroupVersion
	cfg.GroupVersion, cfg.APIPath = &version, "/api"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	cfg.QPS, cfg.Burst = qps, burst
	cfg.UserAgent = userAgent()
	cfg.WarningHandlerWithContext = warnings{log}
	rt, hangUp, err := newTransport(cfg)
	if err != nil {
		return nil, nil, err
	}
	client, err = rest.RESTClientForConfigAndClient(cfg, &http.Client{Transport: rt})
	return client, hangUp, err
}

// userAgent shows in the API server's audit log and metrics.
func userAgent() string {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("weftd/%s kube-subnet-mgr", version)
}

// warnings logs what the API server warns of.
type warnings struct{ log *slog.Logger }

func (w warnings) HandleWarningHeaderWithContext(_ context.Context, code int, _ string, text string) {
	if code == 299 && text != "" { // the only code that is defined for warnings of an API server
		w.log.Debug("the API server warns", "text", text)
	}
}
