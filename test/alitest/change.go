package alitest

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// work lets what is under way in a table go on.
func (t *Table) work() {
	for _, r := range t.Routes {
		if r.working > 0 {
			r.working--
		}
	}
	t.Routes = slices.DeleteFunc(t.Routes, func(r *Route) bool { return r.ending && r.working == 0 })
}

// stable returns why a table takes no change now.
func (t *Table) stable() *apiError {
	if slices.ContainsFunc(t.Routes, func(r *Route) bool { return r.working > 0 }) {
		t.work()
		return &apiError{http.StatusBadRequest, "IncorrectRouteEntryStatus",
			"Some route entry status blocked this operation."}
	}
	return nil
}

// entry is that of a call that takes several, and its table, which takes a change.
func (c *Cloud) entry(q url.Values) (t *Table, entry func(key string) string, no *apiError) {
	if q.Has("RouteEntries.2.RouteTableId") {
		return nil, nil, &apiError{http.StatusBadRequest, "IllegalParam.RouteEntries", "this one takes one"}
	}
	entry = func(key string) string { return q.Get("RouteEntries.1." + key) }
	if t, no = c.table(entry("RouteTableId")); no == nil {
		no = t.stable()
	}
	return t, entry, no
}

// failed is the answer of a call of which the entry failed.
func failed(code, text string) (object, *apiError) {
	return object{"SuccessCount": 0, "FailedCount": 1,
		"FailedRouteEntries": []object{{"FailedCode": code, "FailedMessage": text}}}, nil
}

func (c *Cloud) create(q url.Values) (object, *apiError) {
	t, e, no := c.entry(q)
	if no != nil {
		return nil, no
	}
	r := &Route{Dst: e("DstCidrBlock"), Hop: e("NextHop"), HopType: e("NextHopType"), Name: e("Name"),
		Description: e("Description"), Type: "Custom", hidden: c.Late, working: c.Slow}
	if no := c.wrong(t, r, e("IpVersion")); no != nil {
		return failed(no.code, no.text)
	}
	c.name(r)
	t.Routes = append(t.Routes, r)
	return object{"RouteEntryIds": []string{r.ID}, "SuccessCount": 1, "FailedCount": 0}, nil
}

// wrong returns why a route cannot be made in a table.
func (c *Cloud) wrong(t *Table, r *Route, version string) *apiError {
	p, err := netip.ParsePrefix(r.Dst)
	switch {
	case err != nil || p != p.Masked() || (version == "4") != p.Addr().Is4() ||
		strings.HasPrefix(r.Name, "http") || len(r.Name) > 128 || r.Name == "" || len(r.Description) > 256:
		return &apiError{http.StatusBadRequest, "InvalidCidrBlock", "Specified CIDR block is not valid."}
	case slices.ContainsFunc(t.Routes, func(x *Route) bool { return x.Dst == r.Dst }):
		return &apiError{http.StatusBadRequest, "VPC_ROUTE_ENTRY_CIDR_BLOCK_DUPLICATE",
			"Specified CIDR block is already exists, entry.cidrBlock=" + r.Dst}
	case !c.hop(t, r):
		return &apiError{http.StatusBadRequest, "InvalidNextHopId.NotFound", "The specified next hop " + r.Hop +
			" does not exist."}
	case c.custom(t) >= c.Limit:
		return &apiError{http.StatusBadRequest, "QuotaExceeded", "Route entry quota exceeded in this route table."}
	}
	return nil
}

func (c *Cloud) custom(t *Table) (n int) {
	for _, r := range t.Routes {
		if r.Type == "Custom" {
			n++
		}
	}
	return n
}

// hop reports whether a route's next hop is an instance in the table's VPC.
func (c *Cloud) hop(t *Table, r *Route) bool {
	return r.HopType == "Instance" && slices.ContainsFunc(c.Instances, func(i *Instance) bool {
		return i.ID == r.Hop && i.VPC == t.VPC
	})
}

func (c *Cloud) delete(q url.Values) (object, *apiError) {
	t, e, no := c.entry(q)
	if no != nil {
		return nil, no
	}
	i := slices.IndexFunc(t.Routes, func(r *Route) bool {
		return r.ID == e("RouteEntryId") && r.Type == "Custom"
	})
	if i < 0 {
		return failed("VPC_ROUTER_ENTRY_NOT_EXIST", "vRouterEntry not exists")
	}
	t.Routes[i].ending, t.Routes[i].working = true, c.Slow
	if c.Slow == 0 {
		t.work()
	}
	return object{"SuccessCount": 1, "FailedCount": 0}, nil
}

func (c *Cloud) modify(q url.Values) (object, *apiError) {
	for _, t := range c.Tables {
		for _, r := range t.Routes {
			if r.ID == "" || r.ID != q.Get("RouteEntryId") {
				continue
			}
			if no := t.stable(); no != nil {
				return nil, no
			}
			with := &Route{Hop: q.Get("NewNextHopId"), HopType: q.Get("NewNextHopType")}
			if !c.hop(t, with) {
				return nil, &apiError{http.StatusBadRequest, "InvalidNextHopId.NotFound",
					"The specified next hop does not exist."}
			}
			r.Hop, r.HopType, r.working = with.Hop, with.HopType, c.Slow
			return object{}, nil
		}
	}
	return nil, &apiError{http.StatusNotFound, "InvalidRouteEntryId.NotFound",
		"Specified RouteEntryId does not exist."}
}
