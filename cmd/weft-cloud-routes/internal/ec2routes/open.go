package ec2routes

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"weft/cmd/weft-cloud-routes/internal/again"
	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// Options are what a Cloud is made from: the flags, and what all clouds have.
type Options struct {
	table.Options
	Region, VPC, Tag string
	KeepSourceCheck  bool

	maxBackoff time.Duration // between tries of one call; 0 for the default
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

// Open is Open with what all clouds have.
func (o *Options) Open(ctx context.Context, all table.Options) (routecontrol.Programmer, error) {
	o.Options = all
	return Open(ctx, *o)
}

// Calls are tried again.Attempts times, with waits of up to backoffAtMost in between; one try may take
// answerWithin.
const (
	backoffAtMost  = 10 * time.Second
	metadataWithin = 5 * time.Second
	answerWithin   = 20 * time.Second
)

// Cloud is the Programmer of a VPC.
type Cloud struct {
	o          Options
	client     *ec2.Client
	key, value string // the tag
}

// Open finds region, VPC and credentials by flags that passed Check, and makes no call that needs rights. The
// environment and the files of the AWS command count (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_EC2 and so
// on), then the instance's metadata service.
func Open(ctx context.Context, o Options) (*Cloud, error) {
	key, value, _ := strings.Cut(o.Tag, "=")
	o.maxBackoff = cmp.Or(o.maxBackoff, backoffAtMost)
	set := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(answerWithin)),
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(s *retry.StandardOptions) {
				s.MaxAttempts, s.MaxBackoff = again.Attempts, o.maxBackoff
			})
		})}
	if o.Region != "" {
		set = append(set, config.WithRegion(o.Region))
	}
	c, err := config.LoadDefaultConfig(ctx, set...)
	if err != nil {
		return nil, fmt.Errorf("AWS settings: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	m := imds.NewFromConfig(c)
	if c.Region == "" {
		out, err := m.GetRegion(ctx, &imds.GetRegionInput{})
		if err != nil {
			return nil, fmt.Errorf("--region is missing, and the metadata service does not tell it: %w", err)
		}
		c.Region = out.Region
	}
	if o.VPC == "" { // that of the instance's first interface
		mac, err := fromMetadata(ctx, m, "mac")
		if err == nil {
			o.VPC, err = fromMetadata(ctx, m, "network/interfaces/macs/"+mac+"/vpc-id")
		}
		if err != nil {
			return nil, fmt.Errorf("--vpc is missing, and the metadata service does not tell it: %w", err)
		}
	}
	o.Logger.Info("Amazon EC2", "region", c.Region, "vpc", o.VPC, "tag", o.Tag)
	return &Cloud{o: o, client: ec2.NewFromConfig(c), key: key, value: value}, nil
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
