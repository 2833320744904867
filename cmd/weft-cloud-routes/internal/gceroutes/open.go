// Package gceroutes programs the routes of one VPC network of Google Cloud. A route is ours if its name
// begins with our prefix, its description is ours, it lies in one of the overlay's networks and leads to an
// instance. Instances that may be next hops have a label.
//
// The API is spoken to by hand (call.go): it is five calls of JSON over HTTP, and Google's client for them is
// more than half a gigabyte of source. Credentials are golang.org/x/oauth2's to find. Changes are operations
// that take seconds, so all of them are begun, and then waited for (change.go).
package gceroutes

import (
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
)

// Options are the flags.
type Options struct{ Project, Network, Name, Label, Endpoint string }

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

// How long is waited: between two looks at an operation, for all operations of a round, and for the metadata
// service.
const (
	pollEvery       = time.Second
	operationsAtAll = 2 * time.Minute
	metadataWithin  = 5 * time.Second
)

// cloud is a VPC network.
type cloud struct {
	Options
	o      table.Options
	base   string // of the API's URLs, with a slash at its end
	client *http.Client
}

// Open finds project, network and credentials, by flags that passed Check: what the environment says
// (GOOGLE_APPLICATION_CREDENTIALS), the files of the gcloud command, then the instance's metadata service. It
// makes no call that needs rights.
func (o *Options) Open(ctx context.Context, all table.Options) (table.Programmer, error) {
	c, err := o.open(ctx, all)
	return table.Programmer{Options: all, Look: func(ctx context.Context) (table.View, error) {
		return c.fleet(ctx)
	}}, err
}

func (o *Options) open(ctx context.Context, all table.Options) (*cloud, error) {
	c := &cloud{Options: *o, o: all}
	known, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/compute")
	if err != nil {
		return nil, fmt.Errorf("no credentials of Google Cloud: %w", err)
	}
	if c.Project == "" {
		c.Project = known.ProjectID
	}
	if c.Project == "" {
		return nil, errors.New("--project is missing, and neither the credentials nor a metadata service tell it")
	}
	if c.Network == "" {
		if c.Network, err = ownNetwork(ctx); err != nil {
			return nil, fmt.Errorf("--network is missing, and the metadata service does not tell it: %w", err)
		}
	}
	all.Logger.Info("Google Cloud", "project", c.Project, "network", c.Network, "name", o.Name, "label", o.Label)
	c.client = &http.Client{
		Timeout: answerWithin, Transport: &oauth2.Transport{Source: known.TokenSource},
		// The transport adds the token to whatever request comes, and so to one that an answer sends elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.base = strings.TrimRight(o.Endpoint, "/") + "/projects/" + c.Project + "/"
	return c, nil
}

// ownNetwork is the network of the first interface of the instance that this runs on.
func ownNetwork(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataWithin)
	defer cancel()
	text, err := metadata.GetWithContext(ctx, "instance/network-interfaces/0/network")
	return path.Base(strings.TrimSpace(text)), err
}
