package ec2routes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// changer changes one route table.
type changer struct {
	*Cloud
	t table.Table
}

// Create implements table.Changer.
func (c changer) Create(ctx context.Context, w table.Want) error {
	v4, v6 := blocks(w.Dst)
	_, err := c.client.CreateRoute(ctx, &ec2.CreateRouteInput{
		RouteTableId: aws.String(c.t.ID), DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6,
		NetworkInterfaceId: aws.String(w.Target),
	})
	switch err = c.called("CreateRoute", err); {
	case has(err, "RouteAlreadyExists"): // an answer was lost, or the read was of before
		return fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w", routecontrol.ErrPending)
	case has(err, "RouteLimitExceeded"):
		return fmt.Errorf("%w: it has %d routes of all kinds; AWS raises the quota when asked: %w", table.ErrFull,
			len(c.t.Have), err)
	case err == nil:
		c.o.Logger.Info("route created", "table", c.t.ID, "subnet", w.Dst, "interface", w.Target)
	}
	return err
}

// Replace implements table.Changer. A table has one route to a destination, so that the old one is gone with
// the call.
func (c changer) Replace(ctx context.Context, r table.Replacement) error {
	v4, v6 := blocks(r.Want.Dst)
	_, err := c.client.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
		RouteTableId: aws.String(c.t.ID), DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6,
		NetworkInterfaceId: aws.String(r.Want.Target),
	})
	switch err = c.called("ReplaceRoute", err); {
	case has(err, "InvalidParameterValue") && strings.Contains(err.Error(), "no route"):
		// it was deleted since it was read
		return fmt.Errorf("the route that it takes the place of is gone: %w", routecontrol.ErrPending)
	case err == nil:
		c.o.Logger.Info("route replaced", "table", c.t.ID, "subnet", r.Want.Dst, "interface", r.Want.Target,
			"before", r.Old[0].Target)
	}
	return err
}

// Delete implements table.Changer.
func (c changer) Delete(ctx context.Context, r table.Route) error {
	v4, v6 := blocks(r.Dst)
	_, err := c.client.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: aws.String(c.t.ID),
		DestinationCidrBlock: v4, DestinationIpv6CidrBlock: v6})
	switch err = c.called("DeleteRoute", err); {
	case has(err, "InvalidRoute.NotFound"):
		return nil
	case err == nil:
		c.o.Logger.Info("route deleted", "table", c.t.ID, "subnet", r.Dst, "interface", r.Target)
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

// has reports whether err is EC2's of one of these codes.
func has(err error, codes ...string) bool {
	var e smithy.APIError
	return errors.As(err, &e) && slices.Contains(codes, e.ErrorCode())
}

// called counts a call and says what its error means for people.
func (c *Cloud) called(call string, err error) error {
	var e smithy.APIError
	var answer *awshttp.ResponseError
	a := table.Failed
	switch {
	case err == nil:
		a = table.OK
	case throttled(err):
		a = table.Throttled
	case errors.As(err, &e) && has(err, "UnauthorizedOperation", "AuthFailure", "AccessDenied"):
		a, err = table.Forbidden, &refusal{e}
	case errors.As(err, &e) && errors.As(err, &answer) &&
		answer.HTTPStatusCode() < http.StatusInternalServerError:
		a, err = table.Refused, &refusal{e}
	}
	return c.o.Said(call, "ec2:"+call, a, err)
}

func throttled(err error) bool {
	var e smithy.APIError
	if !errors.As(err, &e) {
		return false
	}
	_, ok := retry.DefaultThrottleErrorCodes[e.ErrorCode()]
	return ok
}

// refusal is EC2's error in as many words as people need.
type refusal struct{ smithy.APIError }

func (r *refusal) Error() string { return r.ErrorCode() + ": " + r.ErrorMessage() }

func (r *refusal) Unwrap() error { return r.APIError }
