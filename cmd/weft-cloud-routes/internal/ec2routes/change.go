package ec2routes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// Change implements table.View.
func (f fleet) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	return f.o.Apply(ctx, t, changer{f.cloud, t}, p)
}

// changer changes one route table.
type changer struct {
	*cloud
	t table.Table
}

// Create implements table.Changer.
func (c changer) Create(ctx context.Context, w table.Want) error {
	v4, v6 := blocks(w.Dst)
	err := c.call(ctx, "CreateRoute", func() error {
		_, err := c.client.CreateRoute(ctx, &ec2.CreateRouteInput{
			RouteTableId: aws.String(c.t.ID), DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6,
			NetworkInterfaceId: aws.String(w.Target),
		})
		return err
	})
	switch {
	case has(err, "RouteAlreadyExists"): // an answer was lost, or the read was of before
		return fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w", routecontrol.ErrPending)
	case has(err, "RouteLimitExceeded"):
		return fmt.Errorf("%w: it has %d routes of all kinds; AWS raises the quota when asked: %w", table.ErrFull,
			len(c.t.Have), err)
	}
	return err
}

// Replace implements table.Changer. A table has one route to a destination, so that the old one is gone with
// the call.
func (c changer) Replace(ctx context.Context, r table.Replacement) error {
	v4, v6 := blocks(r.Want.Dst)
	return c.call(ctx, "ReplaceRoute", func() error {
		_, err := c.client.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
			RouteTableId: aws.String(c.t.ID), DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6,
			NetworkInterfaceId: aws.String(r.Want.Target),
		})
		return err
	})
}

// Delete implements table.Changer.
func (c changer) Delete(ctx context.Context, r table.Route) error {
	v4, v6 := blocks(r.Dst)
	err := c.call(ctx, "DeleteRoute", func() error {
		_, err := c.client.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: aws.String(c.t.ID),
			DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6})
		return err
	})
	if has(err, "InvalidRoute.NotFound") {
		return nil
	}
	return err
}

// blocks is a destination as the API has it, in a parameter for each family.
func blocks(p netip.Prefix) (v4, v6 *string) {
	if p.Addr().Is4() {
		return aws.String(p.String()), nil
	}
	return nil, aws.String(p.String())
}

// call makes a call of EC2, several times if need be.
func (c *cloud) call(ctx context.Context, name string, try func() error) error {
	return c.o.Call(ctx, name, "ec2:"+name, func() (table.Answer, error) {
		err := try()
		var e smithy.APIError
		var answer *awshttp.ResponseError
		switch {
		case err == nil:
			return table.OK, nil
		case !errors.As(err, &e):
			return table.Failed, err
		}
		refused := &refusal{e}
		if _, throttled := retry.DefaultThrottleErrorCodes[e.ErrorCode()]; throttled {
			return table.Throttled, refused
		}
		if has(err, "UnauthorizedOperation", "AuthFailure", "AccessDenied") {
			return table.Forbidden, refused
		}
		if errors.As(err, &answer) && answer.HTTPStatusCode() < http.StatusInternalServerError {
			return table.Refused, refused
		}
		return table.Failed, refused
	})
}

// has reports whether err is EC2's of one of these codes.
func has(err error, codes ...string) bool {
	var e smithy.APIError
	return errors.As(err, &e) && slices.Contains(codes, e.ErrorCode())
}

// refusal is EC2's error in as many words as people need. The id of the request, another one each time, is
// not among them.
type refusal struct{ smithy.APIError }

func (r *refusal) Error() string { return r.ErrorCode() + ": " + r.ErrorMessage() }
