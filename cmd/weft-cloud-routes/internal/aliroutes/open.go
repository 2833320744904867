package aliroutes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// Options are what a Cloud is made from.
type Options struct {
	table.Options
	// Region and VPC say where; "" for those of the instance that this runs on, which the metadata service
	// knows.
	Region, VPC string
	// Tag is "KEY=VALUE": that of our route tables and instances, and, in their descriptions, of our routes.
	Tag string
	// VPCEndpoint and ECSEndpoint are URLs of the APIs; "" for the region's public ones.
	VPCEndpoint, ECSEndpoint string
	// Metadata is the URL of the instance's metadata service; "" for Metadata.
	Metadata string

	backoff time.Duration // before the second try of a call; 0 for the default
}

// Metadata is where an instance finds its metadata service.
const Metadata = "http://100.100.100.200"

const (
	backoffFirst   = time.Second
	answerWithin   = 20 * time.Second
	metadataWithin = 5 * time.Second
	maxAnswer      = 64 << 20 // bytes
)

// tagAtMost bounds a tag, in characters: a description has it, and has 256 at the most.
const tagAtMost = 200

// CheckTag returns what is wrong with a tag.
func CheckTag(tag string) error {
	key, value, ok := strings.Cut(tag, "=")
	switch {
	case !ok || key == "" || value == "":
		return fmt.Errorf("%q: want KEY=VALUE", tag)
	case len(key) > 128 || len(value) > 128 || len(tag) > tagAtMost:
		return fmt.Errorf("%q is longer than this program takes: 128 characters for key and value, and %d together",
			tag, tagAtMost)
	case strings.HasPrefix(key, "aliyun") || strings.HasPrefix(key, "acs:") ||
		strings.Contains(tag, "http://") || strings.Contains(tag, "https://"):
		return fmt.Errorf("%q: Alibaba Cloud takes no keys that begin with aliyun or acs:, and no http:// or "+
			"https://", tag)
	}
	return nil
}

// CheckEndpoint returns what is wrong with the URL of an API; "" is the default's.
func CheckEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" ||
		u.Scheme != "https" && !local(u) {
		return fmt.Errorf("%q: want https://HOST", endpoint)
	}
	return nil
}

// CheckMetadata returns what is wrong with the URL of a metadata service, which answers in plain text and
// hands out credentials: it is on the host's own link, or on the host itself.
func CheckMetadata(endpoint string) error {
	if endpoint == Metadata {
		return nil
	}
	if u, err := url.Parse(endpoint); err != nil || strings.Trim(u.Path, "/") != "" || !local(u) {
		return fmt.Errorf("%q: want %s, or http:// and a loopback address", endpoint, Metadata)
	}
	return nil
}

func local(u *url.URL) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && err == nil && a.IsLoopback()
}

// Cloud is the Programmer of a VPC.
type Cloud struct {
	o          Options
	key, value string // the tag
	vpc, ecs   product
}

// Open finds region, VPC and credentials, and makes no call that needs rights.
func Open(ctx context.Context, o Options) (*Cloud, error) {
	if o.Metadata == "" {
		o.Metadata = Metadata
	}
	if err := errors.Join(CheckTag(o.Tag), CheckEndpoint(o.VPCEndpoint), CheckEndpoint(o.ECSEndpoint),
		CheckMetadata(o.Metadata)); err != nil {
		return nil, err
	}
	if o.backoff == 0 {
		o.backoff = backoffFirst
	}
	m := newMetadata(o.Metadata)
	var err error
	if o.Region == "" {
		if o.Region, err = m.get(ctx, "region-id"); err != nil {
			return nil, fmt.Errorf("--region is missing, and the metadata service does not tell it: %w", err)
		}
	}
	if o.VPC == "" {
		if o.VPC, err = m.get(ctx, "vpc-id"); err != nil {
			return nil, fmt.Errorf("--vpc is missing, and the metadata service does not tell it: %w", err)
		}
	}
	if !regexp.MustCompile(`^[a-z][a-z0-9-]*$`).MatchString(o.Region) { // names of hosts are made with it
		return nil, fmt.Errorf("region %q: want one such as cn-hangzhou", o.Region)
	}
	known, from, err := credentialsFrom(m)
	if err != nil {
		return nil, err
	}
	if _, err := known.GetCredential(); err != nil {
		return nil, fmt.Errorf("no credentials of Alibaba Cloud, which were looked for in %s: %w", from, err)
	}
	c := &Cloud{o: o}
	c.key, c.value, _ = strings.Cut(o.Tag, "=")
	for _, p := range []struct {
		to             *product
		name, version  string
		endpoint, flag string
	}{{&c.vpc, "vpc", "2016-04-28", o.VPCEndpoint, "--vpc-endpoint"},
		{&c.ecs, "ecs", "2014-05-26", o.ECSEndpoint, "--ecs-endpoint"}} {
		if p.endpoint == "" {
			p.endpoint = "https://" + p.name + "." + o.Region + ".aliyuncs.com"
		}
		u, err := url.Parse(p.endpoint)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.flag, err)
		}
		client, err := openapi.NewClient(&openapi.Config{Credential: known, Endpoint: &u.Host,
			HttpClient: newTransport()})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.flag, err)
		}
		*p.to = product{p.name, p.version, u.Scheme, client}
	}
	o.Logger.Info("Alibaba Cloud", "region", o.Region, "vpc", o.VPC, "tag", o.Tag, "credentials", from)
	return c, nil
}

// description is our mark.
func (c *Cloud) description() string { return "made by weft-cloud-routes, tag " + c.o.Tag }
