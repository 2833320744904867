package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"

	"weft/cmd/weft-cloud-routes/internal/gceroutes"
	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// googleFlags are those of Google's.
type googleFlags struct {
	project, network, name, label, endpoint string
}

func (g *googleFlags) declare(fs *flag.FlagSet) {
	fs.StringVar(&g.project, "project", "", "`id` of the project; without it that of the credentials, or of "+
		"the instance that this runs on")
	fs.StringVar(&g.network, "network", "", "`name` of the VPC network; without it that of the instance that "+
		"this runs on")
	fs.StringVar(&g.name, "name", "", "`name` with which routes are marked: they are called weft-NAME-…")
	fs.StringVar(&g.label, "label", "", "`KEY=VALUE`, the label of the instances that may be next hops")
	fs.StringVar(&g.endpoint, "endpoint", gceroutes.Endpoint,
		"`URL` of the API, where it is reached at a private one")
}

func (g *googleFlags) check() error {
	var faults []error
	if err := gceroutes.CheckName(g.name); err != nil {
		faults = append(faults, fmt.Errorf("--name %w", err))
	}
	if err := gceroutes.CheckLabel(g.label); err != nil {
		faults = append(faults, fmt.Errorf("--label %w", err))
	}
	if u, err := url.Parse(g.endpoint); err != nil || u.Host == "" || u.Scheme != "https" &&
		(u.Scheme != "http" || u.Hostname() != "127.0.0.1") {
		faults = append(faults, fmt.Errorf("--endpoint %q: want https://HOST/PATH", g.endpoint))
	}
	return errors.Join(faults...)
}

func (g *googleFlags) open(ctx context.Context, o table.Options) (routecontrol.Programmer, error) {
	return gceroutes.Open(ctx, gceroutes.Options{
		Options: o, Project: g.project, Network: g.network, Name: g.name, Label: g.label, Endpoint: g.endpoint,
	})
}
