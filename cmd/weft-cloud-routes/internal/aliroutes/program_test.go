package aliroutes

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/cmd/weft-cloud-routes/internal/tabletest"
	"weft/routing/routecontrol"
	"weft/test/alitest"
	"weft/test/cloudtest"
)

// world is a cloud and the Programmer of its VPC.
type world struct {
	*testing.T
	server *alitest.Server
	cloud  table.Programmer
	o      Options
	tabletest.Watch
}

func ours() map[string]string { return map[string]string{"weft-routes": "blue"} }

const ourDescription = "made by weft-cloud-routes, tag weft-routes=blue"

// newWorld has instances a, b and c at 10.0.0.1 and so on, and a table with what the cloud puts there. Others
// have an instance, a table and another VPC.
func newWorld(t *testing.T, change func(*alitest.Cloud, *Options)) *world {
	t.Helper()
	c := alitest.Cloud{
		Limit: 100, Calls: cloudtest.Calls{Faults: map[string][]cloudtest.Fault{}},
		Tables: []*alitest.Table{
			{ID: "vtb-1", VPC: "vpc-1", Tags: ours(),
				Routes: []*alitest.Route{{Dst: "10.0.0.0/24", Hop: "vsw-1", HopType: "local", Type: "System"},
					{Dst: "100.64.0.0/10", HopType: "service", Type: "System"}}},
			{ID: "vtb-others", VPC: "vpc-1"}, {ID: "vtb-elsewhere", VPC: "vpc-2", Tags: ours()},
		},
		Instances: []*alitest.Instance{
			{ID: "i-others", VPC: "vpc-1", Status: "Running", Addrs: []string{"10.0.0.99"}},
			{ID: "i-elsewhere", VPC: "vpc-2", Status: "Running", Tags: ours(), Addrs: []string{"10.0.0.1"}},
		},
	}
	for i, n := range []string{"a", "b", "c"} {
		c.Instances = append(c.Instances, &alitest.Instance{ID: "i-" + n, VPC: "vpc-1", Status: "Running",
			Tags: ours(), Addrs: []string{fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("2001:db8::%d", i+1)}})
	}
	w := &world{T: t}
	o := Options{Region: alitest.Region, VPC: "vpc-1", Tag: "weft-routes=blue"}
	if change != nil {
		change(&c, &o)
	}
	w.server = alitest.New(c)
	t.Cleanup(w.server.Close)
	o.VPCEndpoint, o.ECSEndpoint = w.server.URL, w.server.URL
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", alitest.KeyID)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", alitest.Secret)
	t.Setenv("ALIBABA_CLOUD_SECURITY_TOKEN", "")
	var err error
	if w.cloud, err = o.Open(t.Context(), w.Watch.Options()); err != nil {
		t.Fatal(err)
	}
	w.o = o
	return w
}

func (w *world) round(routes string, keep bool, faults ...string) {
	w.Helper()
	tabletest.Round(w.T, w.cloud, routes, keep, faults...)
}

// has compares a table's custom routes.
func (w *world) has(table string, routes ...string) {
	w.Helper()
	w.server.With(func(c *alitest.Cloud) {
		if got := c.Table(table); !slices.Equal(got, routes) {
			w.Errorf("%s has %q, want %q", table, got, routes)
		}
	})
}

const (
	a4, b4, c4 = "10.5.1.0/24 10.0.0.1", "10.5.2.0/24 10.0.0.2", "10.5.3.0/24 10.0.0.3"
	inA, inB   = "10.5.1.0/24 i-a", "10.5.2.0/24 i-b"
)

// Routes of both families come, move and go; a second round changes nothing; and what is others' is as it
// was.
func TestRoutesComeMoveAndGo(t *testing.T) {
	w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
		c.Page = 1
		c.Tables = append(c.Tables, &alitest.Table{ID: "vtb-2", VPC: "vpc-1", Tags: ours()})
	})
	const b6 = "fd00:5:0:2::/64 2001:db8::2"
	w.round(a4+", "+b4+", "+b6, true)
	for _, table := range []string{"vtb-1", "vtb-2"} {
		w.has(table, inA, inB, "fd00:5:0:2::/64 i-b")
	}
	if w.Sizes["vtb-1 ipv4"] != 4 || w.Sizes["vtb-1 ipv6"] != 1 || w.Results["CreateRouteEntries ok"] != 6 {
		t.Errorf("%v, %v", w.Sizes, w.Results)
	}
	w.server.With(func(c *alitest.Cloud) { c.Calls.Calls = nil })
	w.round(a4+", "+b4+", "+b6, false)
	w.server.With(func(c *alitest.Cloud) {
		if c.Count("DescribeInstances")+c.Count("DescribeRouteTableList")+c.Count("DescribeRouteEntryList") !=
			len(c.Calls.Calls) {
			t.Errorf("nothing changed, and the calls were %q", c.Calls.Calls)
		}
	})
	w.round("10.5.1.0/24 10.0.0.3", true) // a is gone, and c has its subnet
	w.has("vtb-1", "10.5.1.0/24 i-c", inB, "fd00:5:0:2::/64 i-b")
	w.round("10.5.1.0/24 10.0.0.3", false)
	w.has("vtb-1", "10.5.1.0/24 i-c")
	w.has("vtb-2", "10.5.1.0/24 i-c")
	w.has("vtb-others")
	w.has("vtb-elsewhere")
}

// A route is pending while the cloud works on it, and until then the table takes no other change.
func TestAChangeTakesTime(t *testing.T) {
	w := newWorld(t, func(c *alitest.Cloud, _ *Options) { c.Slow = 2 })
	w.round(a4, false, "10.5.1.0/24 still at work on it pending")
	w.round(a4, false, "10.5.1.0/24 still at work on it pending")
	w.round(a4, false)
	w.server.With(func(c *alitest.Cloud) { c.Slow = 3 })
	w.round(a4+", "+b4, false, "10.5.2.0/24 still at work on it pending")
	// the call was refused while b's route was on its way, and taken then
	w.round("10.5.1.0/24 10.0.0.3, "+b4, false, "10.5.1.0/24 still at work on it pending")
	w.server.With(func(c *alitest.Cloud) {
		if c.Count("ModifyRouteEntry") < 2 {
			t.Errorf("%q", c.Calls.Calls)
		}
		c.Slow = 1
	})
	for range 3 {
		_, err := w.cloud.Program(t.Context(), tabletest.Routes("10.5.1.0/24 10.0.0.3"), false)
		if err != nil {
			t.Fatal(err)
		}
	}
	w.round("10.5.1.0/24 10.0.0.3", false)
	w.has("vtb-1", "10.5.1.0/24 i-c")
}

// What is somebody else's is not touched, and is the reason.
func TestOthersRoutesStay(t *testing.T) {
	w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
		for _, r := range []alitest.Route{
			{Dst: "10.5.1.0/24", Hop: "i-a", Description: "by hand"},
			{Dst: "10.5.2.128/25", Hop: "vpn-1", HopType: "VpnGateway", Description: ourDescription},
			{Dst: "10.5.6.0/24", Hop: "i-a", Description: "made by weft-cloud-routes, tag weft-routes=red"},
			{Dst: "10.6.8.0/24", Hop: "i-a", Description: ourDescription},
			{Dst: "10.5.9.0/24", Hop: "i-gone", Description: ourDescription},
		} {
			r.Type = "Custom"
			if r.HopType == "" {
				r.HopType = "Instance"
			}
			c.Tables[0].Routes = append(c.Tables[0].Routes, &r)
		}
	})
	w.round(a4+", "+b4+", 10.5.4.0/24 10.0.0.99", false,
		"10.5.1.0/24 vtb-1: somebody else's route to 10.5.1.0/24, by i-a, is in the way",
		"10.5.2.0/24 to 10.5.2.128/25, by vpn-1, takes a part of it",
		"10.5.4.0/24 no instance of vpc-1 with the tag weft-routes=blue has the address 10.0.0.99")
	// the one of ours that nobody wants is gone
	w.has("vtb-1", "10.5.1.0/24 i-a", "10.5.2.0/24 i-b", "10.5.2.128/25 vpn-1", "10.5.6.0/24 i-a",
		"10.6.8.0/24 i-a")
}

// A cloud that has its bad minutes.
func TestFaultsOfACloud(t *testing.T) {
	throttled := cloudtest.Fault{Code: "Throttling.User", Status: http.StatusBadRequest}
	for name, test := range map[string]func(*testing.T){
		"throttled for a while": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Faults["CreateRouteEntries"] = []cloudtest.Fault{throttled, {Code: "TaskConflict", Status: 400},
					{Code: "ServiceUnavailable", Status: 503}}
			})
			w.round(a4, false)
			w.has("vtb-1", inA)
		},
		"somebody else changes the table for long": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Faults["CreateRouteEntries"] = slices.Repeat([]cloudtest.Fault{{Code: "TaskConflict", Status: 400}},
					table.Attempts)
			})
			w.round(a4, false, "10.5.1.0/24 TaskConflict: as the test wants: the cloud asks for patience pending")
			w.round(a4, false)
		},
		"an answer is lost": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Faults["CreateRouteEntries"] = []cloudtest.Fault{{Done: true}}
			})
			w.round(a4, false)
			w.has("vtb-1", inA)
		},
		"shown late": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) { c.Late = 3 })
			w.round(a4, false, "10.5.1.0/24 the cloud took it and shows it not yet pending")
			w.round(a4, false, "10.5.1.0/24 says that it has the route, and shows it not yet pending")
			w.round(a4, false)
			w.has("vtb-1", inA)
		},
		"the table is full": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Limit = 2
				c.Tables[0].Routes = append(c.Tables[0].Routes,
					&alitest.Route{Dst: "10.5.8.0/24", Hop: "i-a", HopType: "Instance", Type: "Custom",
						Description: ourDescription})
			})
			w.round(a4+", "+b4, true, "10.5.2.0/24 vtb-1: the table is full: it has 3 routes of all kinds; Alibaba "+
				"Cloud raises the quota")
			w.has("vtb-1", inA, "10.5.8.0/24 i-a")
			w.round(a4+", "+b4, false) // what is not wanted makes room
			w.has("vtb-1", inA, inB)
		},
		"it does not answer for long": func(t *testing.T) {
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Faults["CreateRouteEntries"] = slices.Repeat([]cloudtest.Fault{{Code: "InternalError", Status: 500}},
					table.Attempts)
			})
			w.round(a4, false, "10.5.1.0/24 InternalError pending")
			w.round(a4, false)
		},
		"the same refusal is said in the same words": func(t *testing.T) {
			const want = "the route is not to be had."
			for _, message := range []string{"code: 400, " + want + " request id: 0C2EE7A8-74D4", "code: 400, " +
				want + " request id: ", want} {
				if got := unwrapped(message); got != want {
					t.Errorf("%q of %q", got, message)
				}
			}
		},
		"an instance is stopped, and gone": func(t *testing.T) {
			w := newWorld(t, nil)
			w.round(a4, false)
			w.server.With(func(c *alitest.Cloud) { c.Instances[2].Status = "Stopped" })
			w.round(a4, false, "10.5.1.0/24 does i-a run?")
			w.server.With(func(c *alitest.Cloud) { c.Instances = slices.Delete(c.Instances, 2, 3) })
			w.round(a4, false, "10.5.1.0/24 no instance of vpc-1")
			w.has("vtb-1", inA) // while nodes want it, what there is stays
			w.round("", false)
			w.has("vtb-1")
		},
		"somebody else deletes it at the same time": func(t *testing.T) {
			w := newWorld(t, nil)
			w.round(a4, false)
			w.server.With(func(c *alitest.Cloud) {
				c.Faults["DeleteRouteEntries"] = []cloudtest.Fault{
					{Code: "InvalidRouteEntry.NotFound", Status: http.StatusBadRequest, Done: true}}
			})
			w.round("", false)
			w.has("vtb-1")
		},
		"rights are missing": func(t *testing.T) {
			no := cloudtest.Fault{Code: "Forbidden.RAM", Status: http.StatusForbidden}
			w := newWorld(t, func(c *alitest.Cloud, _ *Options) {
				c.Faults["CreateRouteEntries"] = []cloudtest.Fault{no}
			})
			w.round(a4, false, "10.5.1.0/24 may not vpc:CreateRouteEntries: Forbidden.RAM: as the test wants")
			no.Code, no.Status = "SignatureDoesNotMatch", http.StatusBadRequest // the secret is wrong
			w.server.With(func(c *alitest.Cloud) { c.Faults["DescribeInstances"] = []cloudtest.Fault{no} })
			if _, err := w.cloud.Program(t.Context(), nil, false); err == nil ||
				!strings.Contains(err.Error(), "ecs:DescribeInstances") || errors.Is(err, routecontrol.ErrPending) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, test)
	}
}
