package gceroutes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"weft/cmd/weft-cloud-routes/internal/table"
)

// Options are what a Cloud is made from.
type Options struct {
	table.Options
	// Project and Network say where; "" for those of the instance that this runs on, which the metadata service
	// knows.
	Project, Network string
	// Name is our mark: of the names and descriptions of our routes. Label is "KEY=VALUE", that of instances
	// that may be next hops.
	Name, Label string
	// Endpoint is the API's; "" for Endpoint.
	Endpoint string

	backoff, poll time.Duration // 0 for the defaults
}

// Endpoint is the API's, of which project and what is in it are below.
const Endpoint = "https://compute.googleapis.com/compute/v1/"

// How long is waited: before the second try of a call, between two looks at an operation, and for all
// operations of a round.
const (
	backoffFirst    = time.Second
	pollEvery       = time.Second
	operationsAtAll = 2 * time.Minute
	metadataWithin  = 5 * time.Second
)

// CheckName returns what is wrong with a name.
func CheckName(name string) error {
	if !regexp.MustCompile(`^[a-z]([-a-z0-9]{0,28}[a-z0-9])?$`).MatchString(name) {
		return fmt.Errorf("%q: want a small letter, then small letters, digits and hyphens, no more than 30 in "+
			"all: the names of routes begin with it", name)
	}
	return nil
}

// CheckLabel returns what is wrong with a label.
func CheckLabel(label string) error {
	if !regexp.MustCompile(`^[a-z][-_a-z0-9]{0,62}=[-_a-z0-9]{1,63}$`).MatchString(label) {
		return fmt.Errorf("%q: want KEY=VALUE of small letters, digits, hyphens and underscores", label)
	}
	return nil
}

// Cloud is the Programmer of a VPC network.
type Cloud struct {
	o   Options
	api api
}

// Open finds project, network and credentials: what the environment says (GOOGLE_APPLICATION_CREDENTIALS),
// the files of the gcloud command, then the instance's metadata service. It makes no call that needs rights.
func Open(ctx context.Context, o Options) (*Cloud, error) {
	if err := errors.Join(CheckName(o.Name), CheckLabel(o.Label)); err != nil {
		return nil, err
	}
	if o.Endpoint == "" {
		o.Endpoint = Endpoint
	}
	if o.backoff == 0 {
		o.backoff = backoffFirst
	}
	if o.poll == 0 {
		o.poll = pollEvery
	}
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
