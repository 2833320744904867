package aliroutes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/darabonba-openapi/v2/models"
	"github.com/alibabacloud-go/tea/dara"
	"github.com/alibabacloud-go/tea/tea"

	"weft/cmd/weft-cloud-routes/internal/again"
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

// call makes a call, several times if need be, and decodes its answer into out. All calls may be made twice:
// what is created once is a duplicate then.
func (c *Cloud) call(ctx context.Context, p product, action string, query map[string]string, out any) error {
	in := map[string]*string{"RegionId": &c.o.Region}
	for k, v := range query {
		in[k] = &v
	}
	err := again.Do(ctx, c.o.backoff, func() (bool, error) {
		err := p.try(ctx, action, in, out)
		var r *refusal
		if errors.As(err, &r) {
			return r.throttled() || r.busy() || r.status >= http.StatusInternalServerError, err
		}
		return err != nil && ctx.Err() == nil, err
	})
	right := p.name + ":" + action
	var r *refusal
	answer := table.Failed
	switch {
	case err == nil:
		answer = table.OK
	case !errors.As(err, &r):
	case r.throttled():
		answer = table.Throttled
	case r.busy():
		answer, right = table.Throttled, right+" is not taken while something else is being changed ("+r.code+")"
	case r.forbidden():
		answer = table.Forbidden
	case r.status < http.StatusInternalServerError:
		answer = table.Refused
	}
	return c.o.Said(action, right, answer, err)
}

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

// transport sends requests of the client. Its own follows redirects, and reads answers of any size.
type transport struct{ client *http.Client }

func newTransport() transport {
	return transport{&http.Client{Timeout: answerWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Call implements dara.HttpClient.
func (t transport) Call(req *http.Request, _ *http.Transport) (*http.Response, error) {
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 3 {
		_ = resp.Body.Close() // it is of no interest
		return nil, fmt.Errorf("it answers %s: redirects are not followed", resp.Status)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	return resp, nil
}
