package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/routing/routehook"
	"weft/test/alitest"
	"weft/test/await"
	"weft/test/computetest"
	"weft/test/ec2test"
)

// output is what a program writes, safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// program is a weft-cloud-routes that runs.
type program struct {
	t   *testing.T
	out output
}

// begin runs it until the test ends, and stops it then.
func begin(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- run(ctx, args, &p.out, &p.out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(p.out.String())
		}
	})
	return p
}

// at returns the address that the program says that it serves something at.
func (p *program) at(what string) (address string) {
	p.t.Helper()
	find := regexp.MustCompile(`msg=` + what + ` address=(\S+)`)
	await.OK(p.t, what, func() error {
		m := find.FindStringSubmatch(p.out.String())
		if m == nil {
			return fmt.Errorf("its output is %q", p.out.String())
		}
		address = m[1]
		return nil
	})
	return address
}

// view gives that of one node, and returns the states of its routes.
func view(t *testing.T, c *routehook.Client, node string, routes ...routehook.Route) (out []string,
	err error) {
	t.Helper()
	a, err := c.Put(t.Context(), routehook.View{
		SchemaVersion: routehook.Schema, Node: node, Name: node, Instance: "1", Generation: 1, Lifetime: 900,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}, Routes: routes,
	})
	if err != nil {
		return nil, err
	}
	for _, r := range a.Routes {
		out = append(out, fmt.Sprint(r.Subnet, " ", r.State))
	}
	return out, nil
}

// scrape returns the lines of /metrics that begin with weft_.
func scrape(t *testing.T, address string) (out []string) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if strings.HasPrefix(line, "weft_") {
			out = append(out, line)
		}
	}
	return out
}

// A node's view is a route of the cloud's, the verdict says so, and the metrics count it.
func TestANodeAndAWS(t *testing.T) {
	cloud := ec2test.New(ec2test.Cloud{
		Limit: 10, Tables: []*ec2test.Table{{ID: "rtb-1", VPC: "vpc-1",
			Tags: map[string]string{"weft-routes": "blue"}}},
		Instances: []*ec2test.Instance{{ID: "i-a", NIC: "eni-a", VPC: "vpc-1", State: "running",
			Tags: map[string]string{"weft-routes": "blue"}, Addrs: []string{"10.0.0.1"}, Check: true}},
	})
	t.Cleanup(cloud.Close)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_EC2": cloud.URL, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE":           "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(name, value)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, "aws", "--networks=10.5.0.0/16", "--tag=weft-routes=blue", "--region=eu-west-1", "--vpc=vpc-1",
		"--token-file="+token, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0")
	c, err := routehook.NewClient(routehook.Options{URL: "http://" + p.at("serving"), TokenFile: token},
		"node-a")
	if err != nil {
		t.Fatal(err)
	}
	own := routehook.Route{Subnet: netip.MustParsePrefix("10.5.1.0/24"),
		NextHop: netip.MustParseAddr("10.0.0.1"), Node: "node-a", Own: true}
	stranger := routehook.Route{Subnet: netip.MustParsePrefix("10.5.2.0/24"),
		NextHop: netip.MustParseAddr("10.0.0.2"), Node: "node-b"}
	want := []string{"10.5.1.0/24 accepted", "10.5.2.0/24 refused"}
	await.OK(t, "verdicts", func() error {
		if got, err := view(t, c, "node-a", own, stranger); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})
	cloud.With(func(c *ec2test.Cloud) {
		if got := c.Table("rtb-1"); !slices.Equal(got, []string{"10.5.1.0/24 eni-a"}) || c.Instances[0].Check {
			t.Errorf("%q, check %v", got, c.Instances[0].Check)
		}
	})
	lines := scrape(t, p.at("metrics"))
	for _, line := range []string{
		`weft_cloud_routes{state="accepted"} 1`, `weft_cloud_routes{state="refused"} 1`,
		`weft_cloud_routes{state="pending"} 0`, "weft_cloud_views 1", "weft_cloud_failed_rounds_total 0",
		`weft_cloud_calls_total{call="CreateRoute",result="ok"} 1`,
		`weft_cloud_table_routes{family="ipv4",table="rtb-1"} 1`,
	} {
		if !slices.Contains(lines, line) {
			t.Errorf("no %s in\n%s", line, strings.Join(lines, "\n"))
		}
	}
	b, err := os.ReadFile("../../docs/clouds.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if name, _, _ := strings.Cut(strings.ReplaceAll(line, "{", " "), " "); !strings.Contains(string(b),
			"`"+name) {
			t.Errorf("docs/clouds.md does not have %s", name)
		}
	}
}

// The same with Google, whose credentials and project are those of the instance that the program runs on.
func TestANodeAndGoogle(t *testing.T) {
	cloud := computetest.New(computetest.Cloud{
		Limit: 10, Slow: 1, Instances: []*computetest.Instance{{Name: "a", Zone: "z-1", Network: "net-1",
			Status: "RUNNING", Labels: map[string]string{"weft": "blue"}, V4: "10.0.0.1", Forwards: true}},
	})
	t.Cleanup(cloud.Close)
	m := computetest.Metadata("net-1")
	t.Cleanup(m.Close)
	for name, value := range map[string]string{"GCE_METADATA_HOST": strings.TrimPrefix(m.URL, "http://"),
		"GOOGLE_APPLICATION_CREDENTIALS": "", "HOME": t.TempDir()} {
		t.Setenv(name, value)
	}
	p := begin(t, "google", "--networks=10.5.0.0/16", "--name=blue", "--label=weft=blue", "--endpoint="+
		cloud.URL+"/compute/v1", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0")
	p.programs(func() (has []string) { cloud.With(func(c *computetest.Cloud) { has = c.Table() }); return has },
		"10.5.1.0/24 a",
		`weft_cloud_calls_total{call="compute.routes.create",result="ok"} 1`,
		`weft_cloud_table_routes{family="ipv4",table="net-1"} 1`)
}

// programs gives the view of a node, and looks for its route in the cloud's table and in the metrics.
func (p *program) programs(table func() []string, route string, metrics ...string) {
	p.t.Helper()
	c, err := routehook.NewClient(routehook.Options{URL: "http://" + p.at("serving")}, "node-a")
	if err != nil {
		p.t.Fatal(err)
	}
	own := routehook.Route{Subnet: netip.MustParsePrefix("10.5.1.0/24"),
		NextHop: netip.MustParseAddr("10.0.0.1"), Node: "node-a", Own: true}
	await.OK(p.t, "the verdict", func() error {
		got, err := view(p.t, c, "node-a", own)
		if err != nil || !slices.Equal(got, []string{"10.5.1.0/24 accepted"}) {
			return fmt.Errorf("%q, %w", got, err)
		}
		return nil
	})
	if got := table(); !slices.Equal(got, []string{route}) {
		p.t.Errorf("%q", got)
	}
	lines := scrape(p.t, p.at("metrics"))
	for _, line := range append(metrics, `weft_cloud_routes{state="accepted"} 1`) {
		if !slices.Contains(lines, line) {
			p.t.Errorf("no %s in\n%s", line, strings.Join(lines, "\n"))
		}
	}
}

// The same with Alibaba, whose credentials, region and VPC are those of the instance that the program runs
// on.
func TestANodeAndAlibaba(t *testing.T) {
	tags := map[string]string{"weft-routes": "blue"}
	cloud := alitest.New(alitest.Cloud{
		Limit: 10, Slow: 1, Tables: []*alitest.Table{{ID: "vtb-1", VPC: "vpc-1", Tags: tags}},
		Instances: []*alitest.Instance{{ID: "i-a", VPC: "vpc-1", Status: "Running", Tags: tags,
			Addrs: []string{"10.0.0.1"}}},
	})
	t.Cleanup(cloud.Close)
	m := alitest.Metadata("vpc-1", time.Hour)
	t.Cleanup(m.Close)
	for _, name := range []string{"ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_OIDC_TOKEN_FILE",
		"ALIBABA_CLOUD_CONFIG_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	p := begin(t, "alibaba", "--networks=10.5.0.0/16", "--tag=weft-routes=blue", "--vpc-endpoint="+cloud.URL,
		"--ecs-endpoint="+cloud.URL, "--metadata-endpoint="+m.URL,
		"--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0")
	p.programs(func() (has []string) {
		cloud.With(func(c *alitest.Cloud) { has = c.Table("vtb-1") })
		return has
	},
		"10.5.1.0/24 i-a",
		`weft_cloud_calls_total{call="CreateRouteEntries",result="ok"} 1`,
		`weft_cloud_table_routes{family="ipv4",table="vtb-1"} 1`)
}

// Flags that are wrong or missing are named before anything is asked of a cloud.
func TestBadFlags(t *testing.T) {
	const google = "google --networks=10.5.0.0/16 --project=p --network=n "
	const alibaba = "alibaba --networks=10.5.0.0/16 --region=eu-test-1 --vpc=vpc-1 "
	const aws = "aws --networks=10.5.0.0/16 --region=eu-west-1 --vpc=vpc-1 "
	for args, want := range map[string]string{
		"":                                      "which cloud?",
		"azure":                                 "azure",
		"aws --tag=a=b":                         "--networks",
		aws:                                     "--tag",
		aws + "--tag=a":                         "--tag",
		aws + "--tag==b":                        "--tag",
		aws + "--tag=kubernetes.io/cluster/*=b": "--tag",
		aws + "--tag=a=b --vpc=1":               "--vpc",
		aws + "--tag=a=b --interval=1s":         "--interval",
		aws + "--tag=a=b --metrics-listen=9090": "--metrics-listen",
		aws + "--tag=a=b --listen=[::]:8480":    "--client-ca",
		aws + "--tag=a=b --frobnicate":          "frobnicate",
		aws + "--tag=a=b now":                   `"now"`,
		google + "--label=a=b":                  `--name ""`,
		google + "--name=Blue --label=a=b":      `--name "Blue"`,
		google + "--name=blue":                  `--label ""`,
		google + "--name=blue --label=a=b:*":    `--label "a=b:*"`,
		google + "--name=blue --label=a=b --endpoint=http://compute.example": "--endpoint",
		google + "--name=blue --label=a=b --endpoint=ftp://127.0.0.1":        "--endpoint",
		alibaba:                       "--tag",
		alibaba + "--tag=a":           "--tag",
		alibaba + "--tag=acs:a=b":     "--tag",
		alibaba + "--tag=a=b --vpc=1": "--vpc",
		alibaba + "--tag=a=" + strings.Repeat("b", 129):             "--tag",
		alibaba + "--tag=a=b --vpc-endpoint=http://vpc.example":     `--vpc-endpoint "http://vpc.example"`,
		alibaba + "--tag=a=b --ecs-endpoint=https://ecs.example/v1": `--ecs-endpoint "https://ecs.example/v1"`,
		alibaba + "--tag=a=b --metadata-endpoint=http://192.0.2.1":  "--metadata-endpoint",
	} {
		var out output
		if err := run(t.Context(), strings.Fields(args), &out, &out); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
