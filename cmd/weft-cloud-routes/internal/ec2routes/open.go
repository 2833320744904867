// Package ec2routes programs the route tables of one VPC of Amazon EC2. A tag on route tables and instances
// marks weft's own, since routes have no tags: a route is ours if it is in a table with the tag, lies in one
// of the overlay's networks, was made by CreateRoute, and leads to a network interface of an instance with
// the tag, or to one that is gone. Each table with the tag has every route.
//
// open.go finds region, VPC and credentials, read.go reads tables and instances, change.go makes calls, and
// says what their errors mean.
package ec2routes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// Options are the flags.
type Options struct {
	Region, VPC, Tag string
	KeepSourceCheck  bool
}

// Declare declares the flags.
func (o *Options) Declare(fs *flag.FlagSet) {
	fs.StringVar(&o.Region, "region", "", "`region`; without it that of AWS_REGION, of the AWS command's "+
		"files, or of the instance that this runs on")
	fs.StringVar(&o.VPC, "vpc", "", "`id` of the VPC; without it that of the instance that this runs on")
	fs.StringVar(&o.Tag, "tag", "", "`KEY=VALUE`, the tag of the route tables to program and of the instances "+
		"that may be next hops")
	fs.BoolVar(&o.KeepSourceCheck, "keep-source-check", false,
		"leave the source/destination check of instances as it is, and refuse routes to those that have it on")
}

// Check says what is wrong with the flags.
func (o *Options) Check() error {
	key, value, ok := strings.Cut(o.Tag, "=")
	switch {
	case o.Tag == "":
		return errors.New("--tag is missing: by which tag are route tables and instances known?")
	case !ok || key == "":
		return fmt.Errorf("--tag %q: want KEY=VALUE", o.Tag)
	case len(key) > 128 || len(value) > 256:
		return fmt.Errorf("--tag %q is longer than AWS takes: 128 characters for the key and 256 for the value",
			o.Tag)
	case strings.ContainsAny(o.Tag, "*?"):
		return fmt.Errorf("--tag %q: with * or ? AWS would take it for a pattern, and others' tables for ours",
			o.Tag)
	case o.VPC != "" && !strings.HasPrefix(o.VPC, "vpc-"):
		return fmt.Errorf("--vpc %q: want an id, such as vpc-0123456789abcdef0", o.VPC)
	}
	return nil
}

const (
	metadataWithin = 5 * time.Second
	answerWithin   = 20 * time.Second // of one try of a call
)

// cloud is a VPC.
type cloud struct {
	Options
	o          table.Options
	client     *ec2.Client
	key, value string // the tag
}

// Open finds region, VPC and credentials by flags that passed Check, and makes no call that needs rights. The
// environment and the files of the AWS command count (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_EC2 and so
// on), then the instance's metadata service.
func (o *Options) Open(ctx context.Context, all table.Options) (table.Programmer, error) {
	c, err := o.open(ctx, all)
	return table.Programmer{Options: all, Look: func(ctx context.Context) (table.View, error) {
		return c.fleet(ctx)
	}}, err
}

func (o *Options) open(ctx context.Context, all table.Options) (*cloud, error) {
	c := &cloud{Options: *o, o: all}
	c.key, c.value, _ = strings.Cut(o.Tag, "=")
	set := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(answerWithin))}
	if o.Region != "" {
		set = append(set, config.WithRegion(o.Region))
	}
	settings, err := config.LoadDefaultConfig(ctx, set...)
	if err != nil {
		return nil, fmt.Errorf("AWS settings: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	m := imds.NewFromConfig(settings)
	if settings.Region == "" {
		out, err := m.GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return nil, fmt.Errorf("--region is missing, and the metadata service does not tell it: %w", err)
		}
		settings.Region = out.Region
	}
	if c.VPC == "" { // that of the instance's first interface
		mac, err := fromMetadata(ctx, m, "mac")
		if err == nil {
			c.VPC, err = fromMetadata(ctx, m, "network/interfaces/macs/"+mac+"/vpc-id")
		}
		if err != nil {
			return nil, fmt.Errorf("--vpc is missing, and the metadata service does not tell it: %w", err)
		}
	}
	all.Logger.Info("Amazon EC2", "region", settings.Region, "vpc", c.VPC, "tag", o.Tag)
	// table.Options.Call tries again
	c.client = ec2.NewFromConfig(settings, func(e *ec2.Options) { e.Retryer = aws.NopRetryer{} })
	return c, nil
}

// fromMetadata asks the instance's metadata service, with a session (IMDSv2).
func fromMetadata(ctx context.Context, c *imds.Client, path string) (string, error) {
	out, err := c.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(out.Content, 1<<10))
	if err = errors.Join(err, out.Content.Close()); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}
