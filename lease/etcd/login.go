package etcd

import (
	"context"
	"errors"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// login gives requests the token of a user. etcd's own client can do that, but its request for a new token
// carries the old one. etcd before 3.5 refuses such a request because of the old token, and the client
// repeats it until the deadline: a node would never get in again after a restart of its store (etcd's pull
// request 12165).
type login struct {
	user  string
	pass  Secret
	token atomic.Pointer[string] // nil before the first, and while the store has authentication off
}

const authenticate = "/etcdserverpb.Auth/Authenticate"

var _ credentials.PerRPCCredentials = (*login)(nil)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (l *login) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token := l.token.Load()
	if r, ok := credentials.RequestInfoFromContext(ctx); token == nil || ok && r.Method == authenticate {
		return nil, nil
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: *token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. Config.Check warns of a password in
// clear.
func (*login) RequireTransportSecurity() bool { return false }

// renew gets a new token.
func (l *login) renew(ctx context.Context, cc *grpc.ClientConn) error {
	r, err := pb.NewAuthClient(cc).Authenticate(ctx,
		&pb.AuthenticateRequest{Name: l.user, Password: l.pass.Reveal()})
	switch err = rpctypes.Error(err); {
	case errors.Is(err, rpctypes.ErrAuthNotEnabled):
		l.token.Store(nil)
		return nil
	case err != nil:
		return err
	}
	l.token.Store(&r.Token)
	return nil
}

// unary repeats a request, once, that was refused because of its token.
func (l *login) unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, cc, opts...)
	if method == authenticate || !stale(err) {
		return err
	}
	if err := l.renew(ctx, cc); err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// stream gets a new token first: a stream lives longer than most tokens, and its error comes too late to
// repeat it.
func (l *login) stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if err := l.renew(ctx, cc); err != nil {
		return nil, err
	}
	return open(ctx, desc, cc, method, opts...)
}

// stale reports whether a request was refused because of its token. A store that has just turned
// authentication on refuses requests without one.
func stale(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision) ||
		errors.Is(err, rpctypes.ErrUserEmpty)
}
