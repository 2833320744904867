package computetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"weft/test/cloudtest"
)

// Project is the one there is, and Token what its callers show.
const (
	Project = "blue-project"
	Token   = "token-of-the-test"
)

// Instance is one with one interface.
type Instance struct {
	Name, Zone, Network, Status string
	Labels                      map[string]string
	V4, V6, External6           string
	Forwards                    bool
}

// link is an instance's place below projects/.
func (i *Instance) link() string {
	return Project + "/zones/" + i.Zone + "/instances/" + i.Name
}

// Route is one of a network.
type Route struct {
	Name, Description, Network, Dst string
	Priority                        int
	Instance, Gateway               string // one of them
	hidden                          int    // for how many reads it is not shown
}

// operation is a change that is not over yet.
type operation struct {
	name  string
	polls int
	do    func() (code, message string)
	over  bool
	code  string
	text  string
}

// Cloud is what there is. All its fields are guarded by Server.With.
type Cloud struct {
	// Calls are known by method and the path's last word but names, as "POST routes".
	cloudtest.Calls
	Instances []*Instance
	Routes    []*Route
	// Limit is how many routes there may be.
	Limit int
	// Late is for how many reads a new route is not shown, Slow how often an operation is looked at before it is
	// over.
	Late, Slow int

	operations map[string]*operation
	requests   map[string]*operation // by requestId
}

// Server serves a Cloud.
type Server = cloudtest.Server[Cloud]

// New begins a server. The caller closes it.
func New(c Cloud) *Server {
	c.operations, c.requests = map[string]*operation{}, map[string]*operation{}
	return cloudtest.New(c, (*Cloud).serve)
}

// Table is "DST INSTANCE" of each route to an instance.
func (c *Cloud) Table() (out []string) {
	for _, r := range c.Routes {
		if r.Instance != "" {
			out = append(out, r.Dst+" "+path.Base(r.Instance))
		}
	}
	slices.Sort(out)
	return out
}

// object is one of JSON.
type object map[string]any

func failure(status int, reason, message string) (int, object) {
	return status, object{"error": object{"code": status, "message": message,
		"errors": []object{{"reason": reason, "message": message, "domain": "global"}}}}
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/compute/v1/projects/"+Project+"/")
	kind := path.Base(rest)
	if strings.Count(rest, "/") > 1 { // of something with a name
		kind = path.Base(path.Dir(rest))
	}
	call := r.Method + " " + kind
	fault := c.Heard(call)
	var status int
	var body object
	switch {
	case !ok:
		status, body = failure(http.StatusNotFound, "notFound", r.URL.Path)
	case r.Header.Get("Authorization") != "Bearer "+Token:
		status, body = failure(http.StatusUnauthorized, "authError", "Invalid Credentials")
	case fault == nil || fault.Done:
		status, body = c.do(call, r)
	}
	fault.Answers()
	if fault != nil {
		status, body = failure(fault.Status, fault.Code, "as the test wants")
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // who asked is gone
}

func (c *Cloud) do(call string, r *http.Request) (int, object) {
	if id := r.URL.Query().Get("requestId"); id != "" && c.requests[id] != nil {
		return http.StatusOK, c.requests[id].json() // the request was heard before
	}
	switch call {
	case "GET instances":
		return c.listInstances(r)
	case "GET routes":
		return c.listRoutes(r)
	case "POST routes":
		return c.insert(r)
	case "DELETE routes":
		name := path.Base(r.URL.Path)
		if !slices.ContainsFunc(c.Routes, func(x *Route) bool { return x.Name == name }) {
			return failure(http.StatusNotFound, "notFound", "The resource 'routes/"+name+"' was not found")
		}
		return c.begin(r, func() (string, string) {
			c.Routes = slices.DeleteFunc(c.Routes, func(x *Route) bool { return x.Name == name })
			return "", ""
		})
	case "GET operations":
		if o := c.operations[path.Base(r.URL.Path)]; o != nil {
			o.look()
			return http.StatusOK, o.json()
		}
	}
	return failure(http.StatusNotFound, "notFound", call)
}

func (c *Cloud) insert(r *http.Request) (int, object) {
	var in struct {
		Name, Description, Network, DestRange, NextHopInstance string
		Priority                                               int
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return failure(http.StatusBadRequest, "parseError", err.Error())
	}
	dst, err := netip.ParsePrefix(in.DestRange)
	instance := strings.TrimPrefix(in.NextHopInstance, "projects/")
	at := slices.IndexFunc(c.Instances, func(i *Instance) bool { return i.link() == instance })
	switch {
	case err != nil || dst != dst.Masked() || len(in.Name) > 63:
		return failure(http.StatusBadRequest, "invalid", "Invalid value: "+in.DestRange+" "+in.Name)
	case slices.ContainsFunc(c.Routes, func(x *Route) bool { return x.Name == in.Name }):
		return failure(http.StatusConflict, "alreadyExists", "The resource '"+in.Name+"' already exists")
	case at < 0:
		return failure(http.StatusNotFound, "notFound", "The resource '"+instance+"' was not found")
	}
	return c.begin(r, func() (string, string) {
		if len(c.Routes) >= c.Limit {
			return "QUOTA_EXCEEDED", "Quota 'ROUTES' exceeded."
		}
		c.Routes = append(c.Routes, &Route{Name: in.Name, Description: in.Description,
			Network: path.Base(in.Network), Dst: in.DestRange, Priority: in.Priority, Instance: instance,
			hidden: c.Late})
		return "", ""
	})
}

// begin begins an operation.
func (c *Cloud) begin(r *http.Request, do func() (string, string)) (int, object) {
	o := &operation{name: "operation-" + strconv.Itoa(len(c.operations)+1), polls: c.Slow, do: do}
	c.operations[o.name] = o
	if id := r.URL.Query().Get("requestId"); id != "" {
		c.requests[id] = o
	}
	o.look()
	return http.StatusOK, o.json()
}

// look lets an operation come to its end.
func (o *operation) look() {
	if o.polls--; o.polls < 0 && !o.over {
		o.code, o.text = o.do()
		o.over = true
	}
}

func (o *operation) json() object {
	out := object{"kind": "compute#operation", "name": o.name, "status": "RUNNING"}
	if o.over {
		out["status"] = "DONE"
	}
	if o.code != "" {
		out["httpErrorStatusCode"], out["error"] = http.StatusForbidden,
			object{"errors": []object{{"code": o.code, "message": o.text}}}
	}
	return out
}

// page returns which of n items a request asks for, and the token of the next ones.
func (c *Cloud) page(r *http.Request, n int) (from, to int, next string) {
	q := r.URL.Query()
	return c.Span(q.Get("pageToken"), q.Get("maxResults"), n)
}

func (c *Cloud) listInstances(r *http.Request) (int, object) {
	key, value, ok := strings.Cut(strings.TrimPrefix(r.URL.Query().Get("filter"), "labels."), "=")
	if !ok {
		return failure(http.StatusBadRequest, "invalid", "no filter")
	}
	var found []*Instance
	for _, i := range c.Instances {
		if i.Labels[key] == value {
			found = append(found, i)
		}
	}
	from, to, next := c.page(r, len(found))
	zones := map[string][]object{}
	for _, i := range found[from:to] {
		nic := object{"network": "https://www.googleapis.com/compute/v1/projects/" + Project + "/global/networks/" +
			i.Network, "networkIP": i.V4}
		if i.V6 != "" {
			nic["ipv6Address"] = i.V6
		}
		if i.External6 != "" {
			nic["ipv6AccessConfigs"] = []object{{"externalIpv6": i.External6, "externalIpv6PrefixLength": 96}}
		}
		zones["zones/"+i.Zone] = append(zones["zones/"+i.Zone],
			object{"name": i.Name, "status": i.Status, "canIpForward": i.Forwards,
				"selfLink":          "https://www.googleapis.com/compute/v1/projects/" + i.link(),
				"networkInterfaces": []object{nic}})
	}
	items := object{"zones/empty": object{"warning": object{"code": "NO_RESULTS_ON_PAGE"}}}
	for z, is := range zones {
		items[z] = object{"instances": is}
	}
	return http.StatusOK, object{"kind": "compute#instanceAggregatedList", "items": items, "nextPageToken": next}
}

func (c *Cloud) listRoutes(r *http.Request) (int, object) {
	from, to, next := c.page(r, len(c.Routes))
	items := []object{}
	for _, x := range c.Routes[from:to] {
		if x.hidden > 0 {
			x.hidden--
			continue
		}
		o := object{"name": x.Name, "description": x.Description, "destRange": x.Dst, "priority": x.Priority,
			"network": "https://www.googleapis.com/compute/v1/projects/" + Project + "/global/networks/" + x.Network}
		if x.Instance == "" {
			o["nextHopGateway"] = "https://www.googleapis.com/compute/v1/projects/" + Project +
				"/global/gateways/" + x.Gateway
		} else {
			o["nextHopInstance"] = "https://www.googleapis.com/compute/v1/projects/" + x.Instance
			at := slices.IndexFunc(c.Instances, func(i *Instance) bool { return i.link() == x.Instance })
			switch {
			case at < 0:
				o["warnings"] = []object{{"code": "NEXT_HOP_INSTANCE_NOT_FOUND"}}
			case c.Instances[at].Status != "RUNNING":
				o["warnings"] = []object{{"code": "NEXT_HOP_NOT_RUNNING"}}
			}
		}
		items = append(items, o)
	}
	return http.StatusOK, object{"kind": "compute#routeList", "items": items, "nextPageToken": next}
}

// Metadata begins a metadata service of an instance. The caller closes it.
func Metadata(network string) *httptest.Server {
	mux := http.NewServeMux()
	for path, text := range map[string]string{
		"project/project-id":                    Project,
		"instance/network-interfaces/0/network": "projects/1234/networks/" + network,
		"instance/service-accounts/default/token": fmt.Sprintf(
			`{"access_token":%q,"expires_in":3600,"token_type":"Bearer"}`, Token),
	} {
		mux.HandleFunc("GET /computeMetadata/v1/"+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Metadata-Flavor", "Google")
			if r.Header.Get("Metadata-Flavor") != "Google" {
				http.Error(w, "no flavor", http.StatusForbidden)
				return
			}
			_, _ = fmt.Fprint(w, text) // who asked is gone
		})
	}
	return httptest.NewServer(mux)
}
