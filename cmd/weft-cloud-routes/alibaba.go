package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"weft/cmd/weft-cloud-routes/internal/aliroutes"
	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// alibabaFlags are those of Alibaba's.
type alibabaFlags struct {
	region, vpc, tag, vpcEndpoint, ecsEndpoint, metadata string
}

func (a *alibabaFlags) declare(fs *flag.FlagSet) {
	fs.StringVar(&a.region, "region", "", "`region`; without it that of the instance that this runs on")
	fs.StringVar(&a.vpc, "vpc", "", "`id` of the VPC; without it that of the instance that this runs on")
	fs.StringVar(&a.tag, "tag", "", "`KEY=VALUE`, the tag of the route tables to program and of the instances "+
		"that may be next hops; routes have it in their descriptions")
	fs.StringVar(&a.vpcEndpoint, "vpc-endpoint", "",
		"`URL` of the VPC's API, where it is reached at a private one, such as "+
			"https://vpc-vpc.REGION.aliyuncs.com; without it https://vpc.REGION.aliyuncs.com")
	fs.StringVar(&a.ecsEndpoint, "ecs-endpoint", "",
		"`URL` of the API of instances, such as https://ecs-vpc.REGION.aliyuncs.com; without it "+
			"https://ecs.REGION.aliyuncs.com")
	fs.StringVar(&a.metadata, "metadata-endpoint", aliroutes.Metadata,
		"`URL` of the instance's metadata service, if something on the host passes it on")
}

func (a *alibabaFlags) check() error {
	var faults []error
	switch err := aliroutes.CheckTag(a.tag); {
	case a.tag == "":
		faults = append(faults, errors.New("--tag is missing: by which tag are route tables and instances known?"))
	case err != nil:
		faults = append(faults, fmt.Errorf("--tag %w", err))
	}
	if a.vpc != "" && !strings.HasPrefix(a.vpc, "vpc-") {
		faults = append(faults, fmt.Errorf("--vpc %q: want an id, such as vpc-bp1qpo0kug3a20qqe", a.vpc))
	}
	for name, endpoint := range map[string]string{"--vpc-endpoint": a.vpcEndpoint,
		"--ecs-endpoint": a.ecsEndpoint} {
		if err := aliroutes.CheckEndpoint(endpoint); err != nil {
			faults = append(faults, fmt.Errorf("%s %w", name, err))
		}
	}
	if err := aliroutes.CheckMetadata(a.metadata); err != nil {
		faults = append(faults, fmt.Errorf("--metadata-endpoint %w", err))
	}
	return errors.Join(faults...)
}

func (a *alibabaFlags) open(ctx context.Context, o table.Options) (routecontrol.Programmer, error) {
	return aliroutes.Open(ctx, aliroutes.Options{
		Options: o, Region: a.region, VPC: a.vpc, Tag: a.tag, VPCEndpoint: a.vpcEndpoint,
		ECSEndpoint: a.ecsEndpoint, Metadata: a.metadata,
	})
}
