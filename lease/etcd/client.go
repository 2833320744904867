package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// reconnectMax keeps a change after an outage of any length no further away than a
	// second; a connection attempt a second costs nothing.
	reconnectMax = 800 * time.Millisecond
	// connectTimeout is per attempt, which has three answers at a store that is 3 s away: TCP's, TLS's and
	// HTTP/2's. gRPC's 20 s would be spent on one SYN retransmission schedule while a black-holed route has long
	// healed.
	connectTimeout = 10 * time.Second
	// keepaliveEvery is the least that gRPC allows. That a watch fell silent is noticed
	// sooner, by Config.PingEvery; what ends the dead connection then is
	// keepaliveTimeout, which gRPC also makes the TCP_USER_TIMEOUT.
	keepaliveEvery   = 10 * time.Second
	keepaliveTimeout = 7 * time.Second
)

// conn returns the connected client. The client is made at first use, not in New, because with a password
// dial logs in and so needs an etcd that answers.
func (s *Store) conn(ctx context.Context) (*clientv3.Client, error) {
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s.mu.Lock()
	c, closed := s.cur, s.closed
	s.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if c != nil {
		return c, nil
	}
	c, err := dial(ctx, s.config())
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close()
		return nil, ErrClosed
	}
	s.cur = c
	return c, nil
}

// dial makes a client with r. It logs in, if r has a user.
func dial(ctx context.Context, r *resolved) (*clientv3.Client, error) {
	// The client lives longer than ctx, which only bounds the login.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	var more []grpc.DialOption
	// Interceptors come after the client's own and so win over its "fail fast": a request waits for the
	// connection instead of polling it.
	unary, stream := []grpc.UnaryClientInterceptor{waitUnary}, []grpc.StreamClientInterceptor{waitStream}
	var in *login
	if r.Username != "" {
		in = &login{user: r.Username, pass: r.Password}
		more = append(more, grpc.WithPerRPCCredentials(in))
		unary, stream = slices.Insert(unary, 0, in.unary), slices.Insert(stream, 0, in.stream)
	}
	c, err := clientv3.New(clientv3.Config{
		Context:              life,
		Endpoints:            r.Endpoints,
		TLS:                  r.tls,
		DialTimeout:          r.RequestTimeout,
		DialKeepAliveTime:    keepaliveEvery,
		DialKeepAliveTimeout: keepaliveTimeout,
		MaxCallRecvMsgSize:   maxMessage,
		Logger:               zapLogger(r.Logger),
		DialOptions: append(more,
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
					MaxDelay: reconnectMax},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithChainUnaryInterceptor(unary...),
			grpc.WithChainStreamInterceptor(stream...),
		),
	})
	if err == nil && in != nil {
		first, stop := context.WithTimeout(life, r.RequestTimeout)
		if err = in.renew(first, c.ActiveConnection()); err != nil {
			_ = c.Close()
		}
		stop()
	}
	if !stop() && err == nil {
		_ = c.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return c, nil
}

// connFault is where a request finds why it had no connection: etcd's client replaces
// gRPC's account of that by a bare "deadline exceeded".
type connFault struct{ text atomic.Pointer[string] }

type connFaultKey struct{}

func withConnFault(ctx context.Context) (context.Context, *connFault) {
	f := new(connFault)
	return context.WithValue(ctx, connFaultKey{}, f), f
}

// explain adds the fault to an err that does not show it.
func (f *connFault) explain(err error) error {
	if text := f.text.Load(); err != nil && text != nil && !strings.Contains(err.Error(), *text) {
		return fmt.Errorf("%w: %s", err, *text)
	}
	return err
}

func waitUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(true))...)
	if f, ok := ctx.Value(connFaultKey{}).(*connFault); ok && status.Code(err) == codes.DeadlineExceeded {
		text := status.Convert(err).Message()
		f.text.Store(&text)
	}
	return err
}

func waitStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return streamer(ctx, desc, cc, method, append(opts, grpc.WaitForReady(true))...)
}
