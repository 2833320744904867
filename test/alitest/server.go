package alitest

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"weft/test/cloudtest"
)

// Region is the only one there is.
const Region = "eu-test-1"

// Instance is one with one interface.
type Instance struct {
	ID, VPC, Status string
	Tags            map[string]string
	Addrs           []string // of both families
}

// Route is an entry of a table.
type Route struct {
	ID, Dst, Hop, HopType, Type, Name, Description string
	hidden                                         int // for how many reads it is not shown
	// how often it is asked for, or stands in the way, before it is Available
	working int
	ending  bool
}

// Table is a route table.
type Table struct {
	ID, VPC string
	Tags    map[string]string
	Routes  []*Route
}

// Cloud is what there is. All its fields are guarded by Server.With.
type Cloud struct {
	cloudtest.Calls
	Instances []*Instance
	Tables    []*Table
	// Limit is how many custom routes a table takes.
	Limit int
	// Late is for how many reads a new route is not shown, Slow how long a change takes: as many reads, or tries
	// to change something else meanwhile.
	Late, Slow int

	last int // of the ids
}

// Server serves a Cloud: both APIs.
type Server = cloudtest.Server[Cloud]

// New begins a server. The caller closes it.
func New(c Cloud) *Server {
	for _, t := range c.Tables {
		for _, r := range t.Routes {
			c.name(r)
		}
	}
	return cloudtest.New(c, (*Cloud).serve)
}

// name gives a route its id, which it has for good.
func (c *Cloud) name(r *Route) {
	if r.ID == "" {
		c.last++
		r.ID = "rte-" + strconv.Itoa(c.last)
	}
}

// Table is "DST HOP" of each custom route of a table.
func (c *Cloud) Table(id string) (out []string) {
	for _, t := range c.Tables {
		for _, r := range t.Routes {
			if t.ID == id && r.Type == "Custom" {
				out = append(out, r.Dst+" "+r.Hop)
			}
		}
	}
	slices.Sort(out)
	return out
}

type apiError struct {
	status     int
	code, text string
}

// object is one of JSON.
type object map[string]any

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	call := r.Header.Get("X-Acs-Action")
	fault := c.Heard(call)
	answer, no := object{}, unsigned(r)
	if no == nil && (fault == nil || fault.Done) {
		answer, no = c.do(call, r.Header.Get("X-Acs-Version"), r.URL.Query())
	}
	fault.Answers()
	if fault != nil {
		no = &apiError{fault.Status, fault.Code, "as the test wants"}
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	if no != nil {
		w.WriteHeader(no.status)
		answer = object{"Code": no.code, "Message": no.text, "HostId": r.Host}
	}
	answer["RequestId"] = "request-" + strconv.Itoa(len(c.Calls.Calls))
	_ = json.NewEncoder(w).Encode(answer) // who asked is gone
}

func (c *Cloud) do(call, version string, q url.Values) (object, *apiError) {
	of, known := map[string]struct {
		version string
		do      func(url.Values) (object, *apiError)
	}{
		"DescribeInstances":      {"2014-05-26", c.instances},
		"DescribeRouteTableList": {"2016-04-28", c.tables},
		"DescribeRouteEntryList": {"2016-04-28", c.routes},
		"CreateRouteEntries":     {"2016-04-28", c.create},
		"DeleteRouteEntries":     {"2016-04-28", c.delete},
		"ModifyRouteEntry":       {"2016-04-28", c.modify},
	}[call]
	switch {
	case !known || of.version != version:
		return nil, &apiError{http.StatusNotFound, "InvalidAction.NotFound", "Specified api is not found: " + call +
			" " + version}
	case q.Get("RegionId") != Region:
		return nil, &apiError{http.StatusNotFound, "InvalidRegionId.NotFound",
			"The specified RegionId does not exist."}
	}
	return of.do(q)
}

func tagged(q url.Values, tags map[string]string) bool {
	return !q.Has("Tag.1.Key") || tags[q.Get("Tag.1.Key")] == q.Get("Tag.1.Value")
}

func tagList(tags map[string]string, key, value string) object {
	out := []object{}
	for k, v := range tags {
		out = append(out, object{key: k, value: v})
	}
	return object{"Tag": out}
}

func (c *Cloud) instances(q url.Values) (object, *apiError) {
	var found []*Instance
	for _, i := range c.Instances {
		if i.VPC == q.Get("VpcId") && tagged(q, i.Tags) {
			found = append(found, i)
		}
	}
	from, to, next := c.Span(q.Get("NextToken"), q.Get("MaxResults"), len(found))
	list := []object{}
	for _, i := range found[from:to] {
		v4, v6 := []string{}, []object{}
		for _, a := range i.Addrs {
			if netip.MustParseAddr(a).Is4() {
				v4 = append(v4, a)
			} else if q.Get("AdditionalAttributes.1") == "NETWORK_PRIMARY_ENI_IP" {
				v6 = append(v6, object{"Ipv6Address": a})
			}
		}
		list = append(list, object{"InstanceId": i.ID, "Status": i.Status,
			"Tags":          tagList(i.Tags, "TagKey", "TagValue"),
			"VpcAttributes": object{"VpcId": i.VPC, "PrivateIpAddress": object{"IpAddress": v4}},
			"NetworkInterfaces": object{"NetworkInterface": []object{
				{"Type": "Primary", "Ipv6Sets": object{"Ipv6Set": v6}}}}})
	}
	return object{"Instances": object{"Instance": list}, "NextToken": next}, nil
}

func (c *Cloud) tables(q url.Values) (object, *apiError) {
	var found []*Table
	for _, t := range c.Tables {
		if t.VPC == q.Get("VpcId") && tagged(q, t.Tags) {
			found = append(found, t)
		}
	}
	number, _ := strconv.Atoi(q.Get("PageNumber"))
	size, _ := strconv.Atoi(q.Get("PageSize"))
	if size < 1 || size > 50 || number < 1 {
		return nil, &apiError{http.StatusBadRequest, "IllegalParam.PageSize", "pages have 1 to 50 items"}
	}
	if c.Page > 0 {
		size = min(size, c.Page)
	}
	from := min((number-1)*size, len(found))
	list := []object{}
	for _, t := range found[from:min(from+size, len(found))] {
		list = append(list, object{"RouteTableId": t.ID, "VpcId": t.VPC, "Status": "Available",
			"Tags": tagList(t.Tags, "Key", "Value")})
	}
	return object{"RouterTableList": object{"RouterTableListType": list}, "TotalCount": len(found),
		"PageNumber": number, "PageSize": size}, nil
}

// table finds a table, or says that there is none.
func (c *Cloud) table(id string) (*Table, *apiError) {
	for _, t := range c.Tables {
		if t.ID == id {
			return t, nil
		}
	}
	return nil, &apiError{http.StatusNotFound, "InvalidRouteTableId.NotFound",
		"Specified route table does not exist."}
}

func (c *Cloud) routes(q url.Values) (object, *apiError) {
	t, no := c.table(q.Get("RouteTableId"))
	if no != nil {
		return nil, no
	}
	if n, _ := strconv.Atoi(q.Get("MaxResult")); n < 1 || n > 100 {
		return nil, &apiError{http.StatusBadRequest, "IllegalParam.MaxResult", "pages have 1 to 100 items"}
	}
	from, to, next := c.Span(q.Get("NextToken"), q.Get("MaxResult"), len(t.Routes))
	list := []object{}
	for _, r := range t.Routes[from:to] {
		if r.hidden > 0 {
			r.hidden--
			continue
		}
		c.name(r)
		status := "Available"
		if r.working > 0 {
			status = map[bool]string{false: "Pending", true: "Deleting"}[r.ending]
		}
		family := "ipv4"
		if strings.Contains(r.Dst, ":") {
			family = "ipv6"
		}
		list = append(list, object{"RouteTableId": t.ID, "RouteEntryId": r.ID, "RouteEntryName": r.Name,
			"Description": r.Description, "DestinationCidrBlock": r.Dst,
			"IpVersion": family, "Type": r.Type, "Status": status,
			"NextHops": object{"NextHop": []object{{"NextHopId": r.Hop, "NextHopType": r.HopType, "Enabled": 1}}}})
	}
	if next == "" {
		t.work()
	}
	return object{"RouteEntrys": object{"RouteEntry": list}, "NextToken": next}, nil
}
