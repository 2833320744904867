package gceroutes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// operation is one of the API's: a change that goes on after it was answered.
type operation struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  struct {
		Errors []struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	} `json:"error"`
	HTTPStatus int `json:"httpErrorStatusCode"`
}

// err is what became of an operation that is over.
func (o operation) err() error {
	if len(o.Error.Errors) == 0 {
		return nil
	}
	return &refusal{o.HTTPStatus, o.Error.Errors[0].Code, o.Error.Errors[0].Message}
}

// Change implements table.View. It begins all changes, and waits for them together.
func (f fleet) Change(ctx context.Context, t table.Table, p table.Plan) map[netip.Prefix]error {
	ch := &changer{f.cloud, map[netip.Prefix]operation{}}
	reasons := f.o.Apply(ctx, t, ch, p)
	ch.finish(ctx, reasons)
	return reasons
}

// changer begins changes.
type changer struct {
	*cloud
	begun map[netip.Prefix]operation
}

// newRoute is a Route of the API as it is created.
type newRoute struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Network     string `json:"network"`
	DestRange   string `json:"destRange"`
	Priority    uint32 `json:"priority"`
	Instance    string `json:"nextHopInstance"`
}

// Create implements table.Changer.
func (c *changer) Create(ctx context.Context, w table.Want) error {
	var op operation
	err := c.call(ctx, "compute.routes.create", http.MethodPost, "global/routes", nil, newRoute{
		Name: c.name(w), Description: c.description(), Network: "projects/" + c.Project + "/global/networks/" +
			c.Network,
		DestRange: w.Dst.String(), Priority: priority, Instance: "projects/" + w.Target,
	}, &op)
	var r *refusal
	switch {
	case errors.As(err, &r) && r.status == http.StatusConflict: // an answer was lost, or the read was of before
		return fmt.Errorf("the cloud says that it has the route, and shows it not yet: %w", routecontrol.ErrPending)
	case err != nil:
		return full(err)
	}
	c.begun[w.Dst] = op
	return nil
}

// Replace implements table.Changer: a route cannot be changed, only made anew under another name.
func (c *changer) Replace(ctx context.Context, r table.Replacement) error {
	return c.Create(ctx, r.Want)
}

// Delete implements table.Changer.
func (c *changer) Delete(ctx context.Context, x table.Route) error {
	var op operation
	err := c.call(ctx, "compute.routes.delete", http.MethodDelete, "global/routes/"+x.Name, nil, nil, &op)
	var r *refusal
	switch {
	case errors.As(err, &r) && r.status == http.StatusNotFound:
		return nil
	case err != nil:
		return err
	}
	c.begun[x.Dst] = op
	return nil
}

// finish waits for what was begun, and adds to reasons what did not work.
func (c *changer) finish(ctx context.Context, reasons map[netip.Prefix]error) {
	deadline := time.Now().Add(operationsAtAll)
	for dst, op := range c.begun {
		if err := c.over(ctx, op, deadline); err != nil {
			reasons[dst] = full(err)
		}
	}
}

// over waits for an operation and returns its error.
func (c *changer) over(ctx context.Context, op operation, deadline time.Time) error {
	for op.Status != "DONE" {
		if time.Now().After(deadline) {
			return fmt.Errorf("the cloud still works on it (operation %s): %w", op.Name, routecontrol.ErrPending)
		}
		if err := table.Sleep(ctx, cmp.Or(c.o.Backoff, pollEvery)); err != nil {
			return err
		}
		if err := c.call(ctx, "compute.globalOperations.get", http.MethodGet, "global/operations/"+op.Name,
			nil, nil, &op); err != nil {
			return fmt.Errorf("it is not known what became of it: %w: %w", err, routecontrol.ErrPending)
		}
	}
	return op.err()
}

// full marks an error that says that there is no room.
func full(err error) error {
	var r *refusal
	if errors.As(err, &r) && r.full() {
		return fmt.Errorf("%w: Google raises the quota when asked: %w", table.ErrFull, err)
	}
	return err
}
