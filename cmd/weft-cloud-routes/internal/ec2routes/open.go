package ec2routes

import (
	"context"
	"errors"
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
)

// Options are what a Cloud is made from.
type Options struct {
	table.Options
	// Region and VPC say where; "" for those of the instance that this runs on, which the metadata service
	// knows.
	Region, VPC string
	// Tag is "KEY=VALUE": that of our route tables and instances.
	Tag string
	// KeepSourceCheck says that the source/destination check of instances is not switched off: routes to those
	// that have it on are refused.
	KeepSourceCheck bool

	maxBackoff time.Duration // between tries of one call; 0 for the default
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

// Open finds region, VPC and credentials, and makes no call that needs rights. The environment and the files
// of the AWS command count (AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL_EC2 and so on), then the instance's
// metadata service.
func Open(ctx context.Context, o Options) (*Cloud, error) {
	key, value, ok := strings.Cut(o.Tag, "=")
	if !ok || key == "" {
		return nil, fmt.Errorf("--tag %q: want KEY=VALUE", o.Tag)
	}
	if o.maxBackoff == 0 {
		o.maxBackoff = backoffAtMost
	}
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
	m := metadata{imds.NewFromConfig(c)}
	if c.Region == "" {
		if c.Region, err = m.region(ctx); err != nil {
			return nil, fmt.Errorf("--region is missing, and the metadata service does not tell it: %w", err)
		}
	}
	if o.VPC == "" {
		if o.VPC, err = m.vpc(ctx); err != nil {
			return nil, fmt.Errorf("--vpc is missing, and the metadata service does not tell it: %w", err)
		}
	}
	o.Logger.Info("Amazon EC2", "region", c.Region, "vpc", o.VPC, "tag", o.Tag)
	return &Cloud{o: o, client: ec2.NewFromConfig(c), key: key, value: value}, nil
}

// metadata asks the instance's metadata service, with a session (IMDSv2).
type metadata struct{ c *imds.Client }

func (m metadata) region(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	out, err := m.c.GetRegion(ctx, &imds.GetRegionInput{})
	if err != nil {
		return "", err
	}
	return out.Region, nil
}

// vpc returns the VPC of the instance's first interface.
func (m metadata) vpc(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	mac, err := m.get(ctx, "mac")
	if err != nil {
		return "", err
	}
	return m.get(ctx, "network/interfaces/macs/"+mac+"/vpc-id")
}

func (m metadata) get(ctx context.Context, path string) (string, error) {
	out, err := m.c.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(out.Content, 1<<10))
	if err = errors.Join(err, out.Content.Close()); err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}
