package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"weft/cmd/weft-cloud-routes/internal/ec2routes"
	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// awsFlags are those of Amazon's.
type awsFlags struct {
	region, vpc, tag string
	keep             bool
}

func (a *awsFlags) declare(fs *flag.FlagSet) {
	fs.StringVar(&a.region, "region", "", "`region`; without it that of AWS_REGION, of the AWS command's "+
		"files, or of the instance that this runs on")
	fs.StringVar(&a.vpc, "vpc", "", "`id` of the VPC; without it that of the instance that this runs on")
	fs.StringVar(&a.tag, "tag", "", "`KEY=VALUE`, the tag of the route tables to program and of the instances "+
		"that may be next hops")
	fs.BoolVar(&a.keep, "keep-source-check", false,
		"leave the source/destination check of instances as it is, and refuse routes to those that have it on")
}

func (a *awsFlags) check() error {
	key, value, ok := strings.Cut(a.tag, "=")
	switch {
	case a.tag == "":
		return errors.New("--tag is missing: by which tag are route tables and instances known?")
	case !ok || key == "":
		return fmt.Errorf("--tag %q: want KEY=VALUE", a.tag)
	case len(key) > 128 || len(value) > 256:
		return fmt.Errorf("--tag %q is longer than AWS takes: 128 characters for the key and 256 for the value",
			a.tag)
	case strings.ContainsAny(a.tag, "*?"):
		return fmt.Errorf("--tag %q: with * or ? AWS would take it for a pattern, and others' tables for ours",
			a.tag)
	case a.vpc != "" && !strings.HasPrefix(a.vpc, "vpc-"):
		return fmt.Errorf("--vpc %q: want an id, such as vpc-0123456789abcdef0", a.vpc)
	}
	return nil
}

func (a *awsFlags) open(ctx context.Context, o table.Options) (routecontrol.Programmer, error) {
	return ec2routes.Open(ctx, ec2routes.Options{
		Options: o, Region: a.region, VPC: a.vpc, Tag: a.tag, KeepSourceCheck: a.keep,
	})
}
