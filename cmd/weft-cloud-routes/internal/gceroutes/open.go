package gceroutes

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// Options are what a Cloud is made from: the flags, and what all clouds have.
type Options struct {
	table.Options
	Project, Network, Name, Label, Endpoint string

	backoff, poll time.Duration // 0 for the defaults
}

// Declare declares the flags.
func (o *Options) Declare(fs *flag.FlagSet) {
	fs.StringVar(&o.Project, "project", "", "`id` of the project; without it that of the credentials, or of "+
		"the instance that this runs on")
	fs.StringVar(&o.Network, "network", "", "`name` of the VPC network; without it that of the instance that "+
		"this runs on")
	fs.StringVar(&o.Name, "name", "", "`name` with which routes are marked: they are called weft-NAME-…")
	fs.StringVar(&o.Label, "label", "", "`KEY=VALUE`, the label of the instances that may be next hops")
	fs.StringVar(&o.Endpoint, "endpoint", "https://compute.googleapis.com/compute/v1/",
		"`URL` of the API, where it is reached at a private one")
}

// Check says what is wrong with the flags.
func (o *Options) Check() error {
	var faults []error
	if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`).MatchString(o.Name) {
		faults = append(faults, fmt.Errorf("--name %q: want a small letter, then small letters, digits and "+
			"hyphens, no more than 30 in all: the names of routes begin with it", o.Name))
	}
	if !regexp.MustCompile(`^[a-z][-_a-z0-9]{0,62}=[-_a-z0-9]{1,63}$`).MatchString(o.Label) {
		faults = append(faults, fmt.Errorf("--label %q: want KEY=VALUE of small letters, digits, hyphens and "+
			"underscores", o.Label))
	}
	if u, err := url.Parse(o.Endpoint); err != nil || u.Host == "" || u.Scheme != "https" &&
		(u.Scheme != "http" || u.Hostname() != "127.0.0.1") {
		faults = append(faults, fmt.Errorf("--endpoint %q: want https://HOST/PATH", o.Endpoint))
	}
	return errors.Join(faults...)
}

// Open is Open with what all clouds have.
func (o *Options) Open(ctx context.Context, all table.Options) (routecontrol.Programmer, error) {
	o.Options = all
	return Open(ctx, *o)
}

// How long is waited: before the second try of a call, between two looks at an operation, and for all
// operations of a round.
const (
	backoffFirst    = time.Second
	pollEvery       = time.Second
	operationsAtAll = 2 * time.Minute
	metadataWithin  = 5 * time.Second
)

// Cloud is the Programmer of a VPC network.
type Cloud struct {
	o   Options
	api api
}

// Open finds project, network and credentials, by flags that passed Check: what the environment says
// (GOOGLE_APPLICATION_CREDENTIALS), the files of the gcloud command, then the instance's metadata service. It
// makes no call that needs rights.
func Open(ctx context.Context, o Options) (*Cloud, error) {
	o.backoff, o.poll = cmp.Or(o.backoff, backoffFirst), cmp.Or(o.poll, pollEvery)
	known, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/compute")
	if err != nil {
		return nil, fmt.Errorf("no credentials of Google Cloud: %w", err)
	}
	if o.Project == "" {
		o.Project = known.ProjectID
	}
	if o.Project == "" {
		return nil, errors.New("--project is missing, and neither the credentials nor a metadata service tell it")
	}
	if o.Network == "" {
		if o.Network, err = ownNetwork(ctx); err != nil {
			return nil, fmt.Errorf("--network is missing, and the metadata service does not tell it: %w", err)
		}
	}
	o.Logger.Info("Google Cloud", "project", o.Project, "network", o.Network, "name", o.Name, "label", o.Label)
	client := &http.Client{
		Timeout: answerWithin, Transport: &oauth2.Transport{Source: known.TokenSource},
		// The transport adds the token to whatever request comes, and so to one that an answer sends elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &Cloud{o: o, api: api{strings.TrimRight(o.Endpoint, "/") + "/projects/" + o.Project + "/", client,
		o.backoff, o.Options}}, nil
}

// ownNetwork is the network of the first interface of the instance that this runs on.
func ownNetwork(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	text, err := metadata.GetWithContext(ctx, "instance/network-interfaces/0/network")
	return path.Base(strings.TrimSpace(text)), err
}
