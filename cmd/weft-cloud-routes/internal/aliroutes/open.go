// Package aliroutes programs the route tables of one VPC of Alibaba Cloud. A route is ours if it is in a
// table with our tag, has our description, lies in one of the overlay's networks and leads to an instance.
// Instances that may be next hops have the tag too. Each table with the tag has every route.
//
// The API is spoken to by Alibaba's client for all of its APIs, which signs; what one of them answers is read
// here (call.go). Credentials are its providers', but for those of the instance's role, which come from the
// metadata service with a session and past any proxy (metadata.go). open.go finds region, VPC and
// credentials, read.go reads tables and instances, change.go changes routes.
package aliroutes

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/aliyun/credentials-go/credentials"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// Options are the flags.
type Options struct{ Region, VPC, Tag, VPCEndpoint, ECSEndpoint, Metadata string }

// Declare declares the flags.
func (o *Options) Declare(fs *flag.FlagSet) {
	fs.StringVar(&o.Region, "region", "", "`region`; without it that of the instance that this runs on")
	fs.StringVar(&o.VPC, "vpc", "", "`id` of the VPC; without it that of the instance that this runs on")
	fs.StringVar(&o.Tag, "tag", "", "`KEY=VALUE`, the tag of the route tables to program and of the instances "+
		"that may be next hops; routes have it in their descriptions")
	fs.StringVar(&o.VPCEndpoint, "vpc-endpoint", "",
		"`URL` of the VPC's API, where it is reached at a private one, such as "+
			"https://vpc-vpc.REGION.aliyuncs.com; without it https://vpc.REGION.aliyuncs.com")
	fs.StringVar(&o.ECSEndpoint, "ecs-endpoint", "",
		"`URL` of the API of instances, such as https://ecs-vpc.REGION.aliyuncs.com; without it "+
			"https://ecs.REGION.aliyuncs.com")
	fs.StringVar(&o.Metadata, "metadata-endpoint", metadataAt,
		"`URL` of the instance's metadata service, if something on the host passes it on")
}

const (
	metadataAt     = "http://100.100.100.200"
	metadataWithin = 5 * time.Second
)

// Check says what is wrong with the flags. The metadata service answers in plain text and hands out
// credentials: it is on the host's own link, or on the host itself.
func (o *Options) Check() error {
	faults := []error{checkTag(o.Tag)}
	if o.VPC != "" && !strings.HasPrefix(o.VPC, "vpc-") {
		faults = append(faults, fmt.Errorf("--vpc %q: want an id, such as vpc-bp1qpo0kug3a20qqe", o.VPC))
	}
	for name, endpoint := range map[string]string{"--vpc-endpoint": o.VPCEndpoint,
		"--ecs-endpoint": o.ECSEndpoint} {
		if u, err := url.Parse(endpoint); endpoint != "" && (err != nil || u.Host == "" ||
			strings.Trim(u.Path, "/") != "" || u.Scheme != "https" && !local(u)) {
			faults = append(faults, fmt.Errorf("%s %q: want https://HOST", name, endpoint))
		}
	}
	if u, err := url.Parse(o.Metadata); o.Metadata != metadataAt && (err != nil ||
		strings.Trim(u.Path, "/") != "" || !local(u)) {
		faults = append(faults, fmt.Errorf("--metadata-endpoint %q: want %s, or http:// and a loopback address",
			o.Metadata, metadataAt))
	}
	return errors.Join(faults...)
}

// tagAtMost bounds a tag, in characters: a description has it, and has 256 at the most.
const tagAtMost = 200

func checkTag(tag string) error {
	key, value, ok := strings.Cut(tag, "=")
	switch {
	case tag == "":
		return errors.New("--tag is missing: by which tag are route tables and instances known?")
	case !ok || key == "" || value == "":
		return fmt.Errorf("--tag %q: want KEY=VALUE", tag)
	case len(key) > 128 || len(value) > 128 || len(tag) > tagAtMost:
		return fmt.Errorf("--tag %q is longer than this program takes: 128 characters for key and value, and %d "+
			"together", tag, tagAtMost)
	case strings.HasPrefix(key, "aliyun") || strings.HasPrefix(key, "acs:") ||
		strings.Contains(tag, "http://") || strings.Contains(tag, "https://"):
		return fmt.Errorf("--tag %q: Alibaba Cloud takes no keys that begin with aliyun or acs:, and no http:// "+
			"or https://", tag)
	}
	return nil
}

func local(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && err == nil && a.IsLoopback()
}

// cloud is a VPC.
type cloud struct {
	Options
	o          table.Options
	key, value string // the tag
	vpc, ecs   product
}

// Open finds region, VPC and credentials by flags that passed Check, and makes no call that needs rights.
func (o *Options) Open(ctx context.Context, all table.Options) (table.Programmer, error) {
	c, err := o.open(ctx, all)
	return table.Programmer{Options: all, Look: func(ctx context.Context) (table.View, error) {
		return c.fleet(ctx)
	}}, err
}

func (o *Options) open(ctx context.Context, all table.Options) (*cloud, error) {
	c := &cloud{Options: *o, o: all}
	c.key, c.value, _ = strings.Cut(o.Tag, "=")
	m := newMetadata(o.Metadata)
	var err error
	if c.Region == "" {
		if c.Region, err = m.get(ctx, "region-id"); err != nil {
			return nil, fmt.Errorf("--region is missing, and the metadata service does not tell it: %w", err)
		}
	}
	if c.VPC == "" {
		if c.VPC, err = m.get(ctx, "vpc-id"); err != nil {
			return nil, fmt.Errorf("--vpc is missing, and the metadata service does not tell it: %w", err)
		}
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(c.Region) { // names of hosts are made with it
		return nil, fmt.Errorf("region %q: want one such as cn-hangzhou", c.Region)
	}
	known, from, err := credentialsFrom(m)
	if err != nil {
		return nil, err
	}
	if _, err := known.GetCredential(); err != nil {
		return nil, fmt.Errorf("no credentials of Alibaba Cloud, which were looked for in %s: %w", from, err)
	}
	c.vpc, err = openProduct("vpc", "2016-04-28", cmp.Or(o.VPCEndpoint, "https://vpc."+c.Region+".aliyuncs.com"),
		known)
	if err == nil {
		c.ecs, err = openProduct("ecs", "2014-05-26",
			cmp.Or(o.ECSEndpoint, "https://ecs."+c.Region+".aliyuncs.com"), known)
	}
	if err != nil {
		return nil, err
	}
	all.Logger.Info("Alibaba Cloud", "region", c.Region, "vpc", c.VPC, "tag", o.Tag, "credentials", from)
	return c, nil
}

func openProduct(name, version, endpoint string, known credentials.Credential) (product, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return product{}, fmt.Errorf("--%s-endpoint: %w", name, err)
	}
	client, err := openapi.NewClient(&openapi.Config{Credential: known, Endpoint: &u.Host,
		HttpClient: transport{http.Client{Timeout: answerWithin,
			CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}}})
	if err != nil {
		return product{}, fmt.Errorf("--%s-endpoint: %w", name, err)
	}
	return product{name, version, u.Scheme, client}, nil
}

var errRedirect = errors.New("redirects are not followed")

// transport sends the client's requests. By itself that would follow redirects with what is signed.
type transport struct{ http.Client }

// Call implements dara.HttpClient.
func (t transport) Call(req *http.Request, _ *http.Transport) (*http.Response, error) {
	return t.Do(req)
}

// description is our mark.
func (c *cloud) description() string { return "made by weft-cloud-routes, tag " + c.Tag }
