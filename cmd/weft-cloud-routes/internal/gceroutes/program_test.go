package gceroutes

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/cmd/weft-cloud-routes/internal/tabletest"
	"weft/routing/routecontrol"
	"weft/test/cloudtest"
	"weft/test/computetest"
)

// world is a cloud and the Programmer of its network.
type world struct {
	*testing.T
	server *computetest.Server
	cloud  table.Programmer
	o      Options
	tabletest.Watch
}

const ourDescription = "made by weft-cloud-routes, name blue"

// newWorld has instances a, b and c at 10.0.0.1 and so on, and a default route. Others have an instance.
func newWorld(t *testing.T, change func(*computetest.Cloud, *Options)) *world {
	t.Helper()
	c := computetest.Cloud{
		Limit: 100, Slow: 1, Calls: cloudtest.Calls{Faults: map[string][]cloudtest.Fault{}},
		Routes: []*computetest.Route{{Name: "default-route-1", Network: "net-1", Dst: "0.0.0.0/0", Priority: 1000,
			Gateway: "default-internet-gateway"}},
		Instances: []*computetest.Instance{
			{Name: "others", Zone: "z-1", Network: "net-1", Status: "RUNNING", V4: "10.0.0.99", Forwards: true},
			{Name: "elsewhere", Zone: "z-1", Network: "net-2", Status: "RUNNING", V4: "10.0.0.1", Forwards: true,
				Labels: map[string]string{"weft-routes": "blue"}},
		},
	}
	for i, n := range []string{"a", "b", "c"} {
		c.Instances = append(c.Instances, &computetest.Instance{Name: n, Zone: fmt.Sprintf("z-%d", i%2+1),
			Network: "net-1", Status: "RUNNING", Labels: map[string]string{"weft-routes": "blue"},
			V4: fmt.Sprintf("10.0.0.%d", i+1), V6: fmt.Sprintf("fd20::%d", i+1),
			External6: fmt.Sprintf("2001:db8:%d::", i+1), Forwards: true})
	}
	w := &world{T: t}
	o := Options{Project: computetest.Project, Network: "net-1", Name: "blue", Label: "weft-routes=blue"}
	if change != nil {
		change(&c, &o)
	}
	w.server = computetest.New(c)
	t.Cleanup(w.server.Close)
	o.Endpoint = w.server.URL + "/compute/v1/"
	m := computetest.Metadata("net-1")
	t.Cleanup(m.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(m.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir()) // without gcloud's files
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

// has compares the routes to instances.
func (w *world) has(routes ...string) {
	w.Helper()
	w.server.With(func(c *computetest.Cloud) {
		if got := c.Table(); !slices.Equal(got, routes) {
			w.Errorf("there is %q, want %q", got, routes)
		}
	})
}

const a4, b4 = "10.5.1.0/24 10.0.0.1", "10.5.2.0/24 10.0.0.2"

// Routes of both families come, move and go; a second round changes nothing; and what is others' is as it
// was.
func TestRoutesComeMoveAndGo(t *testing.T) {
	w := newWorld(t, func(c *computetest.Cloud, _ *Options) { c.Page = 2 })
	const a6, c6 = "fd00:5:0:1::/64 fd20::1", "fd00:5:0:3::/64 2001:db8:3::"
	w.round(a4+", "+b4+", "+a6+", "+c6, true)
	w.has("10.5.1.0/24 a", "10.5.2.0/24 b", "fd00:5:0:1::/64 a", "fd00:5:0:3::/64 c")
	if w.Sizes["net-1 ipv4"] != 3 || w.Sizes["net-1 ipv6"] != 2 || w.Results["compute.routes.create ok"] != 4 {
		t.Errorf("%v, %v", w.Sizes, w.Results)
	}
	w.server.With(func(c *computetest.Cloud) { c.Calls.Calls = nil })
	w.round(a4+", "+b4+", "+a6+", "+c6, false)
	w.server.With(func(c *computetest.Cloud) {
		if c.Count("GET instances")+c.Count("GET routes") != len(c.Calls.Calls) {
			t.Errorf("nothing changed, and the calls were %q", c.Calls.Calls)
		}
	})
	// a is gone, and c has its subnet: the new route was there before the old one went
	w.round("10.5.1.0/24 10.0.0.3", true)
	w.has("10.5.1.0/24 c", "10.5.2.0/24 b", "fd00:5:0:1::/64 a", "fd00:5:0:3::/64 c")
	w.round("10.5.1.0/24 10.0.0.3", false)
	w.has("10.5.1.0/24 c")
	w.server.With(func(c *computetest.Cloud) {
		if len(c.Routes) != 2 {
			t.Errorf("%+v", c.Routes)
		}
	})
}

// What is somebody else's is not touched, and is the reason; what may not forward is no next hop.
func TestOthersRoutesStay(t *testing.T) {
	instance := computetest.Project + "/zones/z-1/instances/a"
	w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
		c.Instances[4].Forwards = false
		c.Routes = append(c.Routes,
			&computetest.Route{Name: "weft-blue-mine", Description: "by hand", Network: "net-1", Dst: "10.5.1.0/24",
				Priority: 1000, Instance: instance},
			&computetest.Route{Name: "mine", Description: ourDescription, Network: "net-1", Dst: "10.5.6.0/24",
				Priority: 1000, Instance: instance},
			&computetest.Route{Name: "weft-red-1", Description: "made by weft-cloud-routes, name red",
				Network: "net-1", Dst: "10.5.7.0/24", Priority: 1000, Instance: instance},
			&computetest.Route{Name: "part", Network: "net-1", Dst: "10.5.2.128/25", Priority: 10, Gateway: "vpn"},
			&computetest.Route{Name: "fallback", Network: "net-1", Dst: "10.5.5.0/24", Priority: 2000, Gateway: "vpn"},
			&computetest.Route{Name: "weft-blue-2", Description: ourDescription, Network: "net-2", Dst: "10.5.8.0/24",
				Priority: 1000, Instance: instance},
			&computetest.Route{Name: "weft-blue-3", Description: ourDescription, Network: "net-1", Dst: "10.6.8.0/24",
				Priority: 1000, Instance: instance},
			&computetest.Route{Name: "weft-blue-4", Description: ourDescription, Network: "net-1", Dst: "10.5.9.0/24",
				Priority: 1000, Instance: computetest.Project + "/zones/z-1/instances/gone"})
	})
	w.round(a4+", "+b4+", 10.5.3.0/24 10.0.0.3, 10.5.4.0/24 10.0.0.99, 10.5.5.0/24 10.0.0.1", false,
		"10.5.1.0/24 by blue-project/zones/z-1/instances/a, is in the way",
		"10.5.2.0/24 to 10.5.2.128/25, by vpn, takes a part of it",
		"10.5.3.0/24 blue-project/zones/z-1/instances/c may not forward packets of others",
		"10.5.4.0/24 no instance of project blue-project with the label weft-routes=blue has the address 10.0.0.99")
	w.has("10.5.1.0/24 a", "10.5.2.0/24 b", "10.5.5.0/24 a", "10.5.6.0/24 a", "10.5.7.0/24 a", "10.5.8.0/24 a",
		"10.6.8.0/24 a")
}

// A cloud that has its bad minutes.
func TestFaultsOfACloud(t *testing.T) {
	throttled := cloudtest.Fault{Code: "rateLimitExceeded", Status: http.StatusForbidden}
	for name, test := range map[string]func(*testing.T){
		"throttled for a while": func(t *testing.T) {
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
				c.Faults["POST routes"] = []cloudtest.Fault{throttled,
					{Code: "rateLimitExceeded", Status: http.StatusTooManyRequests}, {Code: "backendError", Status: 503}}
			})
			w.round(a4, false)
			w.has("10.5.1.0/24 a")
		},
		"an answer is lost": func(t *testing.T) {
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
				c.Faults["POST routes"] = []cloudtest.Fault{{Done: true}}
			})
			w.round(a4, false)
			w.has("10.5.1.0/24 a")
		},
		"an operation is lost sight of": func(t *testing.T) {
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
				c.Slow, c.Faults["GET operations"] = 2,
					slices.Repeat([]cloudtest.Fault{{Code: "backendError", Status: 500}}, table.Attempts)
			})
			w.round(a4, false, "10.5.1.0/24 not known what became of it pending")
		},
		"shown late": func(t *testing.T) {
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) { c.Late = 3 })
			w.round(a4, false, "10.5.1.0/24 the cloud took it and shows it not yet pending")
			w.round(a4, false, "10.5.1.0/24 says that it has the route, and shows it not yet pending")
			w.round(a4, false)
			w.has("10.5.1.0/24 a")
		},
		"there is no room": func(t *testing.T) {
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
				c.Limit = 3
				c.Routes = append(c.Routes, &computetest.Route{Name: "weft-blue-1", Description: ourDescription,
					Network: "net-1", Dst: "10.5.8.0/24", Priority: 1000, Instance: computetest.Project +
						"/zones/z-1/instances/a"})
			})
			w.round(a4, true)
			w.round(a4+", "+b4, true, "10.5.2.0/24 the table is full: Google raises the quota")
			w.round(a4+", "+b4, false) // what is not wanted makes room
			w.has("10.5.1.0/24 a", "10.5.2.0/24 b")
		},
		"an instance is stopped, and gone": func(t *testing.T) {
			w := newWorld(t, nil)
			w.round(a4, false)
			w.server.With(func(c *computetest.Cloud) { c.Instances[2].Status = "TERMINATED" })
			w.round(a4, false, "10.5.1.0/24 does blue-project/zones/z-1/instances/a run?")
			w.server.With(func(c *computetest.Cloud) { c.Instances = slices.Delete(c.Instances, 2, 3) })
			w.round(a4, false, "10.5.1.0/24 no instance of project")
			w.has("10.5.1.0/24 a") // while nodes want it, what there is stays
			w.round("", false)
			w.has()
		},
		"somebody else deletes it at the same time": func(t *testing.T) {
			w := newWorld(t, nil)
			w.round(a4, false)
			w.server.With(func(c *computetest.Cloud) {
				c.Slow, c.Faults["DELETE routes"] = 0,
					[]cloudtest.Fault{{Code: "notFound", Status: http.StatusNotFound, Done: true}}
			})
			w.round("", false)
			w.has()
		},
		"rights are missing": func(t *testing.T) {
			no := cloudtest.Fault{Code: "forbidden", Status: http.StatusForbidden}
			w := newWorld(t, func(c *computetest.Cloud, _ *Options) {
				c.Faults["POST routes"] = []cloudtest.Fault{no}
			})
			w.round(a4, false, "10.5.1.0/24 may not compute.routes.create: 403 forbidden")
			w.server.With(func(c *computetest.Cloud) { c.Faults["GET instances"] = []cloudtest.Fault{no} })
			if _, err := w.cloud.Program(t.Context(), nil, false); err == nil ||
				!strings.Contains(err.Error(), "may not compute.instances.list") ||
				errors.Is(err, routecontrol.ErrPending) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, test)
	}
}

// Project and network are those of the instance, by the metadata service.
func TestMetadataTellsWhere(t *testing.T) {
	w := newWorld(t, func(_ *computetest.Cloud, o *Options) { o.Project, o.Network = "", "" })
	w.round(a4, false)
	w.has("10.5.1.0/24 a")
}

// An answer that sends elsewhere is an error: the token goes nowhere but to the API, in whatever place the
// other one is.
func TestNoRedirectIsFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	from := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(from.Close)
	w := newWorld(t, nil)
	o := w.o
	o.Endpoint = from.URL
	c, err := o.Open(t.Context(), w.cloud.Options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Program(t.Context(), tabletest.Routes(a4), false); err == nil ||
		!strings.Contains(err.Error(), "307 Temporary Redirect") || elsewhere.Load() != 0 {
		t.Errorf("%v; %d requests elsewhere", err, elsewhere.Load())
	}
}
