package ec2test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"weft/test/cloudtest"
)

// Instance is one with one interface.
type Instance struct {
	ID, NIC, VPC, State string
	Tags                map[string]string
	Addrs               []string // of both families
	Check               bool     // the source/destination check
}

// Route is one of a table.
type Route struct {
	Dst, NIC, Gateway, Origin string
	hidden                    int // for how many reads it is not shown
}

// Table is a route table.
type Table struct {
	ID, VPC string
	Tags    map[string]string
	Routes  []Route
}

// Cloud is what there is. All its fields are guarded by Server.With.
type Cloud struct {
	cloudtest.Calls
	Instances []*Instance
	Tables    []*Table
	// Limit is how many routes of a family a table takes.
	Limit int
	// Late is for how many reads a new route is not shown.
	Late int
}

// Server serves a Cloud.
type Server = cloudtest.Server[Cloud]

// New begins a server. The caller closes it.
func New(c Cloud) *Server { return cloudtest.New(c, (*Cloud).serve) }

// Table is "DST TARGET" of each route of a table but those to gateways.
func (c *Cloud) Table(id string) (out []string) {
	for _, t := range c.Tables {
		for _, r := range t.Routes {
			if t.ID == id && r.NIC != "" {
				out = append(out, r.Dst+" "+r.NIC)
			}
		}
	}
	slices.Sort(out)
	return out
}

// apiError is one of EC2's.
type apiError struct {
	status     int
	code, text string
}

func (e *apiError) Error() string { return e.code }

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil || r.Method != http.MethodPost || r.Form.Get("Version") != "2016-11-15" {
		http.Error(w, "no EC2 Query", http.StatusBadRequest)
		return
	}
	call := r.Form.Get("Action")
	fault := c.Heard(call)
	var out any
	var err *apiError
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=") {
		err = &apiError{http.StatusUnauthorized, "AuthFailure", "not signed"}
	} else if fault == nil || fault.Done {
		out, err = c.do(call, r.Form)
	}
	fault.Answers()
	if fault != nil {
		err = &apiError{fault.Status, fault.Code, "as the test wants"}
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if err != nil {
		w.WriteHeader(err.status)
		// who asked is gone
		_, _ = fmt.Fprintf(w,
			"<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>1</RequestID></Response>", err.code, err.text)
		return
	}
	// the same
	_ = xml.NewEncoder(w).EncodeElement(out, xml.StartElement{Name: xml.Name{Local: call + "Response"}})
}

// done is the answer of calls that return nothing else.
type done struct {
	Return bool `xml:"return"`
}

func (c *Cloud) do(call string, q url.Values) (any, *apiError) {
	switch call {
	case "DescribeInstances":
		return c.describeInstances(q)
	case "DescribeRouteTables":
		return c.describeTables(q)
	case "DescribeNetworkInterfaces":
		return c.describeInterfaces(q)
	case "CreateRoute", "ReplaceRoute", "DeleteRoute":
		return c.change(call, q)
	case "ModifyNetworkInterfaceAttribute":
		for _, i := range c.Instances {
			if i.NIC == q.Get("NetworkInterfaceId") && i.State != "terminated" {
				i.Check = q.Get("SourceDestCheck.Value") != "false"
				return done{true}, nil
			}
		}
		return nil, &apiError{400, "InvalidNetworkInterfaceID.NotFound", "no such interface"}
	}
	return nil, &apiError{400, "InvalidAction", call}
}

func (c *Cloud) change(call string, q url.Values) (any, *apiError) {
	i := slices.IndexFunc(c.Tables, func(t *Table) bool { return t.ID == q.Get("RouteTableId") })
	if i < 0 {
		return nil, &apiError{400, "InvalidRouteTableID.NotFound", "no such table"}
	}
	t, dst := c.Tables[i], q.Get("DestinationCidrBlock")
	if dst == "" {
		dst = q.Get("DestinationIpv6CidrBlock")
	}
	p, err := netip.ParsePrefix(dst)
	if err != nil || p.Addr().Is4() != q.Has("DestinationCidrBlock") {
		return nil, &apiError{400, "InvalidParameterValue", "not a block of its family: " + dst}
	}
	at := slices.IndexFunc(t.Routes, func(r Route) bool { return r.Dst == dst })
	nic := q.Get("NetworkInterfaceId")
	if call != "DeleteRoute" && !slices.ContainsFunc(c.Instances, func(i *Instance) bool {
		return i.NIC == nic && i.State != "terminated"
	}) {
		return nil, &apiError{400, "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '" + nic +
			"' does not exist"}
	}
	switch {
	case call == "CreateRoute" && at >= 0:
		return nil, &apiError{400, "RouteAlreadyExists", "The route identified by " + dst + " already exists."}
	case call == "CreateRoute" && c.size(t, p) >= c.Limit:
		return nil, &apiError{400, "RouteLimitExceeded", "The maximum number of routes has been reached."}
	case call == "CreateRoute":
		t.Routes = append(t.Routes, Route{Dst: dst, NIC: nic, Origin: "CreateRoute", hidden: c.Late})
	case at < 0 && call == "DeleteRoute":
		return nil, &apiError{400, "InvalidRoute.NotFound", "no route with destination-cidr-block " + dst}
	case at < 0:
		return nil, &apiError{400, "InvalidParameterValue", "There is no route defined for '" + dst +
			"' in the route table. Use CreateRoute instead."}
	case call == "ReplaceRoute":
		t.Routes[at].NIC, t.Routes[at].Gateway = nic, ""
	default:
		t.Routes = slices.Delete(t.Routes, at, at+1)
	}
	return done{true}, nil
}

func (c *Cloud) size(t *Table, p netip.Prefix) (n int) {
	for _, r := range t.Routes {
		if netip.MustParsePrefix(r.Dst).Addr().Is4() == p.Addr().Is4() {
			n++
		}
	}
	return n
}

// page returns which of n items a request asks for, and the token of the next ones.
func (c *Cloud) page(q url.Values, n int) (from, to int, next string) {
	return c.Span(q.Get("NextToken"), q.Get("MaxResults"), n)
}

// matches reports whether all filters of a request let something through.
func matches(q url.Values, of func(name string) string) bool {
	for n := 1; q.Has(fmt.Sprintf("Filter.%d.Name", n)); n++ {
		ok, have := false, of(q.Get(fmt.Sprintf("Filter.%d.Name", n)))
		for v := 1; q.Has(fmt.Sprintf("Filter.%d.Value.%d", n, v)); v++ {
			ok = ok || have == q.Get(fmt.Sprintf("Filter.%d.Value.%d", n, v))
		}
		if !ok {
			return false
		}
	}
	return true
}
