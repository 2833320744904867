package ec2test

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Fault is what happens to one call in place of its answer.
type Fault struct {
	// Code and Status are of the answer. With Code "" the connection is closed without one.
	Code   string
	Status int
	// Done says that the call does what it is to do all the same.
	Done bool
}

// Cloud is what there is. All its fields are guarded by With.
type Cloud struct {
	Instances []*Instance
	Tables    []*Table
	// Limit is how many routes of a family a table takes.
	Limit int
	// Page is how many items a page has at the most, Late for how many reads a new route is not shown.
	Page, Late int
	// Faults are those to come, by the call's name, and Calls the calls that there were.
	Faults map[string][]Fault
	Calls  []string
}

// Server serves a Cloud.
type Server struct {
	*httptest.Server
	mu    sync.Mutex
	cloud Cloud
}

// New begins a server. The caller closes it.
func New(c Cloud) *Server {
	s := &Server{cloud: c}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// With calls do with the cloud, and nobody else has it meanwhile.
func (s *Server) With(do func(*Cloud)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.cloud)
}

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

// Count returns how many calls of a name there were.
func (c *Cloud) Count(call string) (n int) {
	for _, x := range c.Calls {
		if x == call {
			n++
		}
	}
	return n
}

// apiError is one of EC2's.
type apiError struct {
	status     int
	code, text string
}

func (e *apiError) Error() string { return e.code }

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.ParseForm() != nil || r.Method != http.MethodPost || r.Form.Get("Version") != "2016-11-15" {
		http.Error(w, "no EC2 Query", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, call := &s.cloud, r.Form.Get("Action")
	c.Calls = append(c.Calls, call)
	var fault *Fault
	if f := c.Faults[call]; len(f) > 0 {
		fault, c.Faults[call] = &f[0], f[1:]
	}
	var out any
	var err *apiError
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=") {
		err = &apiError{http.StatusUnauthorized, "AuthFailure", "not signed"}
	} else if fault == nil || fault.Done {
		out, err = c.do(call, r.Form)
	}
	if fault != nil && fault.Code == "" {
		panic(http.ErrAbortHandler) // the connection is closed
	}
	if fault != nil {
		err = &apiError{fault.Status, fault.Code, "as the test wants"}
	}
	w.Header().Set("Content-Type", "text/xml;charset=UTF-8")
	if err != nil {
		w.WriteHeader(err.status)
		_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>1</RequestID></Response>", err.code, err.text) // who asked is gone
		return
	}
	_ = xml.NewEncoder(w).EncodeElement(out, xml.StartElement{Name: xml.Name{Local: call + "Response"}}) // the same
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
	if call != "DeleteRoute" && !slices.ContainsFunc(c.Instances, func(i *Instance) bool { return i.NIC == nic && i.State != "terminated" }) {
		return nil, &apiError{400, "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '" + nic + "' does not exist"}
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
		return nil, &apiError{400, "InvalidParameterValue", "There is no route defined for '" + dst + "' in the route table. Use CreateRoute instead."}
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
	from, _ = strconv.Atoi(q.Get("NextToken")) // "" is the first page
	size, _ := strconv.Atoi(q.Get("MaxResults"))
	if c.Page > 0 {
		size = min(size, c.Page)
	}
	if to = min(from+size, n); to < n {
		next = strconv.Itoa(to)
	}
	return min(from, n), to, next
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
