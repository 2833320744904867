package alitest

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
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

// entries are those of a request.
func entries(q url.Values) (out []func(key string) string, no *apiError) {
	for n := 1; q.Has(fmt.Sprintf("RouteEntries.%d.RouteTableId", n)); n++ {
		out = append(out, func(key string) string { return q.Get("RouteEntries." + strconv.Itoa(n) + "." + key) })
	}
	if len(out) == 0 || len(out) > 50 || len(q.Encode()) > 8<<10 {
		return nil, &apiError{http.StatusBadRequest, "IllegalParam.RouteEntries", "1 to 50 of them, in 8 KB"}
	}
	return out, nil
}

// changed are the entries of a call, of one table, which takes a change.
func (c *Cloud) changed(q url.Values) (*Table, []func(string) string, *apiError) {
	all, no := entries(q)
	if no != nil {
		return nil, nil, no
	}
	t, no := c.table(all[0]("RouteTableId"))
	if no != nil {
		return nil, nil, no
	}
	return t, all, t.stable()
}

func (c *Cloud) create(q url.Values) (object, *apiError) {
	t, all, no := c.changed(q)
	if no != nil {
		return nil, no
	}
	var made []*Route
	failures := []object{}
	for _, e := range all {
		r := &Route{Dst: e("DstCidrBlock"), Hop: e("NextHop"), HopType: e("NextHopType"), Name: e("Name"),
			Description: e("Description"), Type: "Custom", hidden: c.Late, working: c.Slow}
		if no := c.wrong(t, r, e("IpVersion"), len(made)); no != nil {
			if c.Whole {
				return nil, no
			}
			failures = append(failures, object{"DstCidrBlock": r.Dst, "NextHop": r.Hop, "FailedCode": no.code,
				"FailedMessage": no.text})
			continue
		}
		c.name(r)
		made = append(made, r)
	}
	t.Routes = append(t.Routes, made...)
	ids := []string{}
	for _, r := range made {
		ids = append(ids, r.ID)
	}
	return object{"RouteEntryIds": ids, "SuccessCount": len(made), "FailedCount": len(failures),
		"FailedRouteEntries": failures}, nil
}

// wrong returns why a route cannot be made in a table in which more others are made with the same call.
func (c *Cloud) wrong(t *Table, r *Route, version string, more int) *apiError {
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
	case c.custom(t)+more >= c.Limit:
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
	t, all, no := c.changed(q)
	if no != nil {
		return nil, no
	}
	failures, done := []object{}, 0
	for _, e := range all {
		i := slices.IndexFunc(t.Routes, func(r *Route) bool {
			return r.ID == e("RouteEntryId") && r.Type == "Custom"
		})
		switch {
		case i < 0 && c.Whole:
			return nil, &apiError{http.StatusBadRequest, "InvalidRouteEntry.NotFound", "Route entry not exists."}
		case i < 0:
			failures = append(failures, object{"RouteEntryId": e("RouteEntryId"),
				"FailedCode": "VPC_ROUTER_ENTRY_NOT_EXIST", "FailedMessage": "vRouterEntry not exists"})
			continue
		}
		done++
		t.Routes[i].ending, t.Routes[i].working = true, c.Slow
	}
	if c.Slow == 0 {
		t.work()
	}
	return object{"SuccessCount": done, "FailedCount": len(failures), "FailedRouteEntries": failures}, nil
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
