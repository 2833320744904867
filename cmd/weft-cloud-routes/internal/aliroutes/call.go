package aliroutes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/darabonba-openapi/v2/models"
	"github.com/alibabacloud-go/tea/dara"
	"github.com/alibabacloud-go/tea/tea"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// product is one of Alibaba's APIs.
type product struct {
	name, version, scheme string
	client                *openapi.Client
}

// refusal is an answer that is an error.
type refusal struct {
	status        int // of HTTP; 0 for one route of several
	code, message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

// plain is a code without what its several forms differ in: TaskConflict, VPC_TASK_CONFLICT.
func (r *refusal) plain() string {
	return strings.Map(func(c rune) rune {
		if unicode.IsLetter(c) {
			return unicode.ToLower(c)
		}
		return -1
	}, r.code)
}

func (r *refusal) has(parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(r.plain(), p) {
			return true
		}
	}
	return false
}

// throttled: too many calls, by this user or at all.
func (r *refusal) throttled() bool {
	return r.status == http.StatusTooManyRequests || r.has("throttling", "flowcontrol")
}

// busy: the table, or its VPC, is being changed, and takes no further change meanwhile.
func (r *refusal) busy() bool {
	return r.has("taskconflict", "operationconflict", "lasttokenprocessing", "systembusy", "routeentrystatus",
		"statusrouteentry", "incorrectstatus", "incorrectvpcstatus", "routetablestatus",
		"distributelock", "distibutelock") // the second is how the API writes it
}

func (r *refusal) full() bool { return r.has("quota") }

func (r *refusal) exists() bool { return r.has("duplicate", "alreadyexist") }

func (r *refusal) gone() bool { return r.has("notfound", "notexist") }

// forbidden: it is the credentials' fault.
func (r *refusal) forbidden() bool {
	return r.status == http.StatusUnauthorized || r.status == http.StatusForbidden ||
		r.has("forbidden", "nopermission", "accesskey", "signature", "securitytoken")
}

// answer is what kind of an answer it is.
func (r *refusal) answer() table.Answer {
	switch {
	case r.throttled(), r.busy():
		return table.Throttled
	case r.forbidden():
		return table.Forbidden
	case r.status < http.StatusInternalServerError:
		return table.Refused
	}
	return table.Failed
}

// call makes a call, several times if need be, and decodes its answer into out. All calls may be made twice:
// what is created once is a duplicate then.
func (c *cloud) call(ctx context.Context, p product, action string, query map[string]string, out any) error {
	in := map[string]*string{"RegionId": &c.Region}
	for k, v := range query {
		in[k] = &v
	}
	return c.o.Call(ctx, action, p.name+":"+action, func() (table.Answer, error) {
		err := p.try(ctx, action, in, out)
		if e, ok := out.(*entries); ok && err == nil {
			err = e.fault()
		}
		var r *refusal
		switch {
		case err == nil:
			return table.OK, nil
		case errors.As(err, &r):
			return r.answer(), err
		}
		return table.Failed, err
	})
}

// entries is the answer to a call that takes several routes, each of which may fail by itself. There is one.
type entries struct {
	FailedRouteEntries []struct{ FailedCode, FailedMessage string }
}

// fault is what became of the route. It is forgotten, as another try may have another answer.
func (e *entries) fault() error {
	failed := e.FailedRouteEntries
	e.FailedRouteEntries = nil
	if len(failed) == 0 {
		return nil
	}
	return &refusal{code: failed[0].FailedCode, message: failed[0].FailedMessage}
}

// answerWithin is how long an answer may take.
const answerWithin = 20 * time.Second

// try makes a call once.
func (p product) try(ctx context.Context, action string, query map[string]*string, out any) error {
	answer, err := p.client.CallApiWithCtx(ctx, &openapi.Params{
		Action: &action, Version: &p.version, Protocol: &p.scheme, Pathname: dara.String("/"),
		Method: dara.String(http.MethodPost), AuthType: dara.String("AK"),
		Style: dara.String("RPC"), ReqBodyType: dara.String("formData"), BodyType: dara.String("string"),
	}, &models.OpenApiRequest{Query: query}, &dara.RuntimeOptions{})
	var e *tea.SDKError
	switch {
	case errors.As(err, &e):
		return &refusal{tea.IntValue(e.StatusCode), tea.StringValue(e.Code), unwrapped(tea.StringValue(e.Message))}
	case err != nil:
		return err
	}
	text, ok := answer["body"].(string)
	if !ok {
		return fmt.Errorf("its answer is %T", answer["body"])
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return fmt.Errorf("its answer is not the JSON that it should be: %w", err)
	}
	return nil
}

// unwrapped is the message of an API without what the client puts around it: the id of the request is another
// one each time, and what is said of a route would be, too.
func unwrapped(message string) string {
	return regexp.MustCompile(`^code: \d+, |,? request id: \S*$`).ReplaceAllString(message, "")
}
