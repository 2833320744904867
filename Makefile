# What can be done in this repository. Each target does its own set-up, so none needs another to be run first.
#
#   make build   bin/weftd, bin/weft-etcd, bin/weft and bin/weft-cni
#   make run     a lab of nodes and pods on this machine, measured and cleaned up
#   make test    every test but those of the targets below and of a whole release; as root, since it makes network namespaces
#   make test-flannel  a real flanneld, built from its sources, takes a node over and gives it back
#   make test-more  emulated processors, and thousands of the simulator's seeds
#   make test-long  the short suite again and again under the race detector, and 100,000 seeds: some hours
#   make test-kube  weft in a real Kubernetes cluster, with its API server, controllers and etcd, beside a real flanneld. The
#                first build of those takes some nine minutes and 1.2 GB of Go's module cache
#   make test-matrix  every combination of backend, family, firewall and path, of which make test runs a choice
#   make test-kernel  labs under Debian's kernels, 6.1 and 6.12 (KERNELS='6.1' RUN='^path': fewer), which QEMU boots, and beside
#                a real flanneld for ipip and wireguard. Without /dev/kvm that takes some eight minutes a kernel
#   make test-hour  a healthy lab of each backend for an hour (CALM=20m: for 20 minutes): nothing may be said to be wrong
#   make test-faults  faults that last for seconds in make test, for a minute each
#   make bench   every benchmark, in benchstat's form; what is measured between pods, over weft and over the kernel,
#                also as bin/bench.html and bin/bench.json
#   make bench-once  every benchmark once and for a short time, to see that it runs; its figures mean nothing
#   make bench-guard  compares what hot functions cost with another commit (BASE), in turns, by benchstat
#   make lint    golangci-lint and staticcheck, as pinned in .ci/tools/go.mod
#   make vulnerabilities  govulncheck: known vulnerabilities that weft's code reaches
#   make check   lint and test
#   make release static archives for every architecture, those of weft-cloud-routes for two, checksums and lists of modules, in bin/release
#   make publish pushes images and chart of a release to REGISTRY and signs them; .github/workflows/release.yaml calls it
#   make deps    the Debian packages that the tests use
#   make clean   remove what the others built

GO      ?= go
VERSION ?= $(shell cmd/weftd/deploy/release/version)

# BENCH, COUNT and PKG choose what make bench runs: which benchmarks, how often, of which packages.
BENCH ?= .
COUNT ?= 6
PKG   ?= ./...

# CALM is how long make test-hour watches.
CALM ?= 1h

# BASE is the commit with which make bench-guard compares.
BASE ?= HEAD~1

# KERNELS are those of make test-kernel.
KERNELS ?= 6.1 6.12

# RUN chooses tests of make test-kube, and scenarios of make test-kernel; WEFT_LONG=1 makes an outage longer (test/kube).
RUN ?= .

TOOLS := .ci/tools/bin
CONTROLPLANE := test/kube/bin/controlplane

.PHONY: build run test test-flannel test-more test-long test-kube test-matrix test-kernel test-hour test-faults bench bench-once bench-guard lint vulnerabilities check release publish deps clean
.DEFAULT_GOAL := build

# Static binaries, so that they run on any Linux and in an empty container image. With grpcnotrace grpc leaves out its
# trace pages, which nothing here serves; they render templates, and with a template in a program the linker must keep
# every exported method of every package: 8 MB of weftd.
build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags grpcnotrace -ldflags '-X main.version=$(VERSION)' -o bin/ ./cmd/...

run: build
	bin/weft lab run

test: deps build
	GO='$(GO)' .ci/test

# test/kube is a module of its own.
test-kube: deps build $(CONTROLPLANE)
	GO='$(GO)' RUN='$(RUN)' .ci/test kubernetes

test-flannel: deps build
	GO='$(GO)' .ci/test flannel

test-more: deps build
	GO='$(GO)' .ci/test more

test-long: deps build
	GO='$(GO)' WEFT_LONG=1 .ci/test long

test-matrix: deps build
	WEFT_MATRIX=all $(GO) test -count=1 -v -timeout 60m -run '^TestMatrix$$' ./test

test-kernel: build
	@.ci/deps qemu-system-x86_64:qemu-system-x86
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./test/cmd/kernel
	CGO_ENABLED=0 $(GO) test -c -o bin/flannel.test ./test/flannel
	GO='$(GO)' test/flannel/build bin/flanneld
	@status=0; for k in $(KERNELS); do \
		echo "Linux $$k"; test/cmd/kernel/boot $$k $(CURDIR)/bin/kernel -run '$(RUN)' || status=1; \
		[ '$(RUN)' != . ] || test/cmd/kernel/boot $$k env WEFT_TEST=strict WEFT_BIN=$(CURDIR)/bin WEFT_FLANNELD=$(CURDIR)/bin/flanneld \
			$(CURDIR)/bin/flannel.test -test.v -test.parallel 1 -test.run 'ForAWhile/(ipip|wireguard)' || status=1; \
	done; exit $$status

test-hour: deps build
	WEFT_CALM=$(CALM) $(GO) test -count=1 -v -timeout 24h -run '^TestAHealthyLabIsCalm$$' ./test

test-faults: deps build
	WEFT_LONG=1 WEFT_BIN=$(CURDIR)/bin $(GO) test -count=1 -v -timeout 30m -run '^TestStoreOutage$$' ./test

# Between pods weft bench measures, in rounds of its own.
bench: build
	@$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -p 1 -timeout 60m $(PKG)
ifneq ($(filter ./... ./bench/... ./bench,$(PKG)),)
	bin/weft bench --full --benchstat - --html bin/bench.html --json bin/bench.json
endif

# This takes a minute after make test, which has built what it needs.
bench-once: export CGO_ENABLED = 0
bench-once: export GOFLAGS = -trimpath -tags=grpcnotrace
bench-once: deps build
	@$(GO) test -run '^$$' -bench . -benchtime 1x -p 1 -timeout 10m \
		$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n1 dirname | sort -u)
	bin/weft bench --quick --quiet

bench-guard:
	@GO=$(GO) .ci/bench-guard $(BASE)

lint: $(TOOLS)/golangci-lint
	$(TOOLS)/golangci-lint run ./...
	$(TOOLS)/staticcheck ./...
	cd cmd/weft-cloud-routes && $(CURDIR)/$(TOOLS)/golangci-lint run ./...

# govulncheck asks https://vuln.go.dev, and reports a vulnerability only if weft calls the function that has it.
vulnerabilities: $(TOOLS)/govulncheck
	$(TOOLS)/govulncheck ./...
	$(TOOLS)/govulncheck -C cmd/weft-cloud-routes ./...

check: lint test

release:
	@GO='$(GO)' cmd/weftd/deploy/release/release -v '$(VERSION)'

# REGISTRY is such as ghcr.io/owner. This needs docker with buildx, helm and cosign: see CONTRIBUTING.md.
REGISTRY ?=
publish:
	@cmd/weftd/deploy/release/publish -v '$(VERSION)' -r '$(REGISTRY)' images chart checksums

deps:
	@.ci/deps

clean:
	rm -rf bin $(TOOLS) $(dir $(CONTROLPLANE))
	$(GO) clean -testcache

# One build makes all tools. It takes a few minutes, and is repeated only when a version changes.
$(TOOLS)/golangci-lint $(TOOLS)/govulncheck &: .ci/tools/go.mod .ci/tools/go.sum
	$(GO) -C .ci/tools build -trimpath -o bin/ tool
	@touch $(TOOLS)/golangci-lint $(TOOLS)/govulncheck

# The control plane is one program. Without debug information (-s -w) it takes half the time and memory to link. helm
# reads Kubernetes' version from the variable that -X sets.
$(CONTROLPLANE): test/kube/go.mod test/kube/go.sum $(wildcard test/kube/cmd/controlplane/*.go)
	CGO_ENABLED=0 nice $(GO) -C test/kube build -trimpath -tags grpcnotrace -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$($(GO) -C test/kube list -m -f '{{.Version}}' k8s.io/kubernetes)" -o bin/ ./cmd/controlplane
	@touch $@
