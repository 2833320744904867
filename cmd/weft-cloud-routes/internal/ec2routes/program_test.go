package ec2routes

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
	"weft/test/cloudtest"
	"weft/test/ec2test"
)

// world is a cloud and the Programmer of its VPC.
type world struct {
	*testing.T
	server *ec2test.Server
	cloud  table.Programmer
	o      Options
	tabletest.Watch
}

func ours() map[string]string { return map[string]string{"weft-routes": "blue"} }

// newWorld has instances a, b and c at 10.0.0.1 and so on, and a table with a default route. Others have an
// instance, a table and another VPC.
func newWorld(t *testing.T, change func(*ec2test.Cloud, *Options)) *world {
	t.Helper()
	c := ec2test.Cloud{
		Limit: 100, Calls: cloudtest.Calls{Faults: map[string][]cloudtest.Fault{}},
		Tables: []*ec2test.Table{
			{ID: "rtb-1", VPC: "vpc-1", Tags: ours(),
				Routes: []ec2test.Route{{Dst: "10.0.0.0/16", Gateway: "local", Origin: "CreateRouteTable"},
					{Dst: "0.0.0.0/0", Gateway: "igw-1", Origin: "CreateRoute"}}},
			{ID: "rtb-others", VPC: "vpc-1"}, {ID: "rtb-elsewhere", VPC: "vpc-2", Tags: ours()},
		},
		Instances: []*ec2test.Instance{
			{ID: "i-others", NIC: "eni-others", VPC: "vpc-1", State: "running", Addrs: []string{"10.0.0.99"}},
			{ID: "i-elsewhere", NIC: "eni-elsewhere", VPC: "vpc-2", State: "running", Tags: ours(),
				Addrs: []string{"10.0.0.1"}},
		},
	}
	for i, n := range []string{"a", "b", "c"} {
		c.Instances = append(c.Instances, &ec2test.Instance{ID: "i-" + n, NIC: "eni-" + n, VPC: "vpc-1",
			State: "running", Tags: ours(),
			Addrs: []string{fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("2001:db8::%d", i+1)}, Check: n == "b"})
	}
	w := &world{T: t}
	o := Options{Region: "eu-west-1", VPC: "vpc-1", Tag: "weft-routes=blue"}
	if change != nil {
		change(&c, &o)
	}
	w.server = ec2test.New(c)
	t.Cleanup(w.server.Close)
	t.Setenv("AWS_ENDPOINT_URL_EC2", w.server.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
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

// has compares a table's routes to interfaces.
func (w *world) has(table string, routes ...string) {
	w.Helper()
	w.server.With(func(c *ec2test.Cloud) {
		if got := c.Table(table); !slices.Equal(got, routes) {
			w.Errorf("%s has %q, want %q", table, got, routes)
		}
	})
}

const (
	a4, b4, c4 = "10.5.1.0/24 10.0.0.1", "10.5.2.0/24 10.0.0.2", "10.5.3.0/24 10.0.0.3"
	inA, inB   = "10.5.1.0/24 eni-a", "10.5.2.0/24 eni-b"
)

// Routes of both families come, move and go; a second round changes nothing; the source check is off where
// packets of pods leave; and what is others' is as it was.
func TestRoutesComeMoveAndGo(t *testing.T) {
	w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
		c.Page = 1
		c.Tables = append(c.Tables, &ec2test.Table{ID: "rtb-2", VPC: "vpc-1", Tags: ours()})
	})
	const b6 = "fd00:5:0:2::/64 2001:db8::2"
	w.round(a4+", "+b4+", "+b6, true)
	for _, table := range []string{"rtb-1", "rtb-2"} {
		w.has(table, inA, inB, "fd00:5:0:2::/64 eni-b")
	}
	w.server.With(func(c *ec2test.Cloud) {
		if c.Instances[3].Check || c.Count("ModifyNetworkInterfaceAttribute") != 1 ||
			c.Count("DescribeInstances") != 3 {
			t.Errorf("check %v; %q", c.Instances[3].Check, c.Calls.Calls)
		}
		c.Calls.Calls = nil
	})
	w.round(a4+", "+b4+", "+b6, false)
	w.server.With(func(c *ec2test.Cloud) {
		if c.Count("DescribeInstances")+c.Count("DescribeRouteTables") != len(c.Calls.Calls) {
			t.Errorf("nothing changed, and the calls were %q", c.Calls.Calls)
		}
	})
	if w.Sizes["rtb-1 ipv4"] != 4 || w.Sizes["rtb-1 ipv6"] != 1 || w.Results["CreateRoute ok"] != 6 {
		t.Errorf("%v, %v", w.Sizes, w.Results)
	}
	w.round("10.5.1.0/24 10.0.0.3", true) // a is gone, and c has its subnet
	w.has("rtb-1", "10.5.1.0/24 eni-c", inB, "fd00:5:0:2::/64 eni-b")
	w.round("10.5.1.0/24 10.0.0.3", false)
	w.has("rtb-1", "10.5.1.0/24 eni-c")
	w.has("rtb-2", "10.5.1.0/24 eni-c")
	w.has("rtb-others")
	w.has("rtb-elsewhere")
	w.server.With(func(c *ec2test.Cloud) {
		if len(c.Tables[0].Routes) != 3 {
			t.Errorf("%+v", c.Tables[0].Routes)
		}
	})
}

// What is somebody else's is not touched, and is the reason.
func TestOthersRoutesStay(t *testing.T) {
	w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
		c.Tables[0].Routes = append(c.Tables[0].Routes,
			ec2test.Route{Dst: "10.5.1.0/24", NIC: "eni-others", Origin: "CreateRoute"},
			ec2test.Route{Dst: "10.5.2.128/25", Gateway: "tgw-1", Origin: "CreateRoute"},
			ec2test.Route{Dst: "10.5.7.0/24", NIC: "eni-a", Origin: "EnableVgwRoutePropagation"},
			ec2test.Route{Dst: "10.5.0.0/16", NIC: "eni-a", Origin: "CreateRoute"},
			ec2test.Route{Dst: "10.6.1.0/24", NIC: "eni-a", Origin: "CreateRoute"},
			ec2test.Route{Dst: "10.5.9.0/24", NIC: "eni-gone", Origin: "CreateRoute"})
	})
	w.round(a4+", "+b4+", 10.5.4.0/24 10.0.0.99", false,
		"10.5.1.0/24 rtb-1: somebody else's route to 10.5.1.0/24, by eni-others, is in the way",
		"10.5.2.0/24 to 10.5.2.128/25, by tgw-1, takes a part of it",
		"10.5.4.0/24 no instance of vpc-1 with the tag weft-routes=blue has the address 10.0.0.99")
	// 10.5.9.0/24 led to an interface that is gone
	w.has("rtb-1", "10.5.0.0/16 eni-a", "10.5.1.0/24 eni-others", inB, "10.5.7.0/24 eni-a", "10.6.1.0/24 eni-a")
}

// A route that EC2 drops packets for is ours if it leads to one of our instances, which was stopped, or to an
// interface that is gone: not if somebody else's instance was stopped, of which nothing but its interface
// tells.
func TestOthersMayBeStopped(t *testing.T) {
	w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
		c.Page = 1
		c.Instances = append(c.Instances, &ec2test.Instance{ID: "i-others-2", NIC: "eni-others-2", VPC: "vpc-1",
			State: "stopped"})
		// others, a and b
		c.Instances[0].State, c.Instances[2].State, c.Instances[3].State = "stopped", "stopped", "terminated"
		for i, nic := range []string{"eni-a", "eni-b", "eni-others", "eni-gone", "eni-others-2"} {
			c.Tables[0].Routes = append(c.Tables[0].Routes,
				ec2test.Route{Dst: fmt.Sprintf("10.5.%d.0/24", i+1), NIC: nic, Origin: "CreateRoute"})
		}
	})
	w.round("10.5.3.0/24 10.0.0.3, 10.5.4.0/24 10.0.0.3", false,
		"10.5.3.0/24 somebody else's route to 10.5.3.0/24, by eni-others, is in the way")
	w.has("rtb-1", "10.5.3.0/24 eni-others", "10.5.4.0/24 eni-c", "10.5.5.0/24 eni-others-2")
	w.server.With(func(c *ec2test.Cloud) {
		if n := c.Count("DescribeNetworkInterfaces"); n != 2 { // pages, of one question in the whole round
			t.Errorf("%d calls for interfaces: %q", n, c.Calls.Calls)
		}
		c.Faults["DescribeNetworkInterfaces"] = []cloudtest.Fault{
			{Code: "UnauthorizedOperation", Status: http.StatusForbidden}}
	})
	if _, err := w.cloud.Program(t.Context(), nil, false); err == nil ||
		!strings.Contains(err.Error(), "ec2:DescribeNetworkInterfaces") {
		t.Error(err)
	}
	w.has("rtb-1", "10.5.3.0/24 eni-others", "10.5.4.0/24 eni-c", "10.5.5.0/24 eni-others-2")
}

// An instance that is being terminated has its interface for a while yet: its routes are ours, and it is no
// next hop.
func TestAnInstanceIsTerminated(t *testing.T) {
	w := newWorld(t, nil)
	w.round(a4+", "+b4, false)
	w.server.With(func(c *ec2test.Cloud) { c.Instances[2].State = "shutting-down" })
	w.round(a4+", "+b4, false, "10.5.1.0/24 no instance of vpc-1 with the tag weft-routes=blue has the "+
		"address 10.0.0.1")
	w.has("rtb-1", inA, inB)
	w.round("10.5.1.0/24 10.0.0.3, "+b4, false)
	w.has("rtb-1", "10.5.1.0/24 eni-c", inB)
}

// A cloud that has its bad minutes.
func TestFaultsOfACloud(t *testing.T) {
	throttled := cloudtest.Fault{Code: "RequestLimitExceeded", Status: http.StatusServiceUnavailable}
	for name, test := range map[string]func(*testing.T){
		"throttled for a while": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Faults["CreateRoute"] = []cloudtest.Fault{throttled, throttled}
			})
			w.round(a4, false)
			w.has("rtb-1", inA)
		},
		"throttled for long": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Faults["CreateRoute"] = slices.Repeat([]cloudtest.Fault{throttled}, table.Attempts)
			})
			w.round(a4+", "+b4, false, "10.5.1.0/24 the cloud asks for patience pending",
				"10.5.2.0/24 the cloud asks for patience pending")
			w.server.With(func(c *ec2test.Cloud) {
				if c.Count("CreateRoute") != table.Attempts || w.Results["CreateRoute throttled"] != 1 {
					t.Errorf("%q, %v", c.Calls.Calls, w.Results)
				}
			})
			w.round(a4+", "+b4, false)
			w.has("rtb-1", inA, inB)
		},
		"throttled while it is read": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Faults["DescribeRouteTables"] = slices.Repeat([]cloudtest.Fault{throttled}, table.Attempts)
			})
			if _, err := w.cloud.Program(t.Context(), tabletest.Routes(a4), false); !errors.Is(err,
				routecontrol.ErrPending) {
				t.Error(err)
			}
		},
		"an answer is lost": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Faults["CreateRoute"] = []cloudtest.Fault{{Done: true}}
			})
			w.round(a4, false)
			w.has("rtb-1", inA)
		},
		"shown late": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) { c.Late = 3 })
			w.round(a4, false, "10.5.1.0/24 the cloud took it and shows it not yet pending")
			w.round(a4, false, "10.5.1.0/24 says that it has the route, and shows it not yet pending")
			w.round(a4, false)
			w.has("rtb-1", inA)
		},
		"the table is full": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Limit = 4
				c.Tables[0].Routes = append(c.Tables[0].Routes,
					ec2test.Route{Dst: "10.5.8.0/24", NIC: "eni-a", Origin: "CreateRoute"})
			})
			w.round(a4+", "+b4+", fd00:5:0:1::/64 2001:db8::1", true,
				"10.5.2.0/24 rtb-1: the table is full: it has 3 routes of all kinds; AWS raises the quota")
			w.has("rtb-1", inA, "10.5.8.0/24 eni-a", "fd00:5:0:1::/64 eni-a") // IPv6 has a limit of its own
			w.round(a4+", "+b4+", fd00:5:0:1::/64 2001:db8::1", false)        // what is not wanted makes room
			w.has("rtb-1", inA, inB, "fd00:5:0:1::/64 eni-a")
		},
		"an instance is stopped, and gone": func(t *testing.T) {
			w := newWorld(t, nil)
			w.round(a4, false)
			w.server.With(func(c *ec2test.Cloud) { c.Instances[2].State = "stopped" })
			w.round(a4, false, "10.5.1.0/24 does eni-a run?")
			w.server.With(func(c *ec2test.Cloud) { c.Instances[2].State = "terminated" })
			w.round(a4, false, "10.5.1.0/24 no instance of vpc-1")
			w.has("rtb-1", inA) // while nodes want it, what there is stays
			w.round("", false)
			w.has("rtb-1")
		},
		"rights are missing": func(t *testing.T) {
			no := cloudtest.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden}
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) {
				c.Faults["CreateRoute"], c.Faults["ModifyNetworkInterfaceAttribute"] = []cloudtest.Fault{no},
					[]cloudtest.Fault{no}
			})
			w.round(a4+", "+b4, false, "10.5.1.0/24 may not ec2:CreateRoute: UnauthorizedOperation",
				"10.5.2.0/24 the source/destination check of i-b (eni-b) is on, and stays: the credentials of this "+
					"program may not ec2:ModifyNetworkInterfaceAttribute")
			w.has("rtb-1")
			w.server.With(func(c *ec2test.Cloud) { c.Faults["DescribeInstances"] = []cloudtest.Fault{no} })
			if _, err := w.cloud.Program(t.Context(), nil, false); err == nil ||
				!strings.Contains(err.Error(), "ec2:DescribeInstances") || errors.Is(err, routecontrol.ErrPending) {
				t.Error(err)
			}
		},
		"the source check is not ours to change": func(t *testing.T) {
			w := newWorld(t, func(_ *ec2test.Cloud, o *Options) { o.KeepSourceCheck = true })
			w.round(a4+", "+b4, false, "10.5.2.0/24 --keep-source-check forbids")
			w.has("rtb-1", inA)
		},
		"no table has the tag": func(t *testing.T) {
			w := newWorld(t, func(c *ec2test.Cloud, _ *Options) { c.Tables = c.Tables[1:] })
			if _, err := w.cloud.Program(t.Context(), nil, false); err == nil ||
				!strings.Contains(err.Error(), "weft-routes=blue") {
				t.Error(err)
			}
		},
	} {
		t.Run(name, test)
	}
}

// Region and VPC are those of the instance, by the metadata service with a session.
func TestMetadataTellsWhere(t *testing.T) {
	m := ec2test.Metadata("eu-north-1", "vpc-1")
	t.Cleanup(m.Close)
	w := newWorld(t, nil)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", m.URL)
	t.Setenv("AWS_REGION", "")
	o := w.o
	o.Region, o.VPC = "", ""
	c, err := o.open(t.Context(), w.cloud.Options)
	if err != nil {
		t.Fatal(err)
	}
	if c.VPC != "vpc-1" || c.client.Options().Region != "eu-north-1" {
		t.Errorf("%q, %q", c.VPC, c.client.Options().Region)
	}
	m.Close()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err = o.open(t.Context(), w.cloud.Options)
	if err == nil || !strings.Contains(err.Error(), "--region is missing") {
		t.Error(err)
	}
	o.Region = "eu-north-1"
	_, err = o.open(t.Context(), w.cloud.Options)
	if err == nil || !strings.Contains(err.Error(), "--vpc is missing") {
		t.Error(err)
	}
}
