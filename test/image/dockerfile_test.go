package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository and folder are the context of a build, and where the Dockerfile and its scripts lie in it.
const repository, folder = "../..", "cmd/weftd/deploy/image"

// stages are the instructions that New follows.
const stages = `FROM scratch AS minimal
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/weftd /out/weft-etcd /out/weft /out/weft-cni /opt/bin/
COPY LICENSE /usr/share/doc/weft/
ENV PATH=/opt/bin
ENTRYPOINT ["/opt/bin/weftd"]
FROM ${BASE_IMAGE} AS default
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates iproute2 iptables nftables && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/weftd /out/weft-etcd /out/weft /out/weft-cni /opt/bin/
COPY cmd/weftd/deploy/image/install-conf cmd/weftd/deploy/image/mk-docker-opts.sh /opt/bin/
COPY LICENSE /usr/share/doc/weft/
RUN ln -s weftd /opt/bin/flanneld && ln -s opt/bin/weft-cni /flannel
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin
ENTRYPOINT ["/opt/bin/weftd"]
`

// TestDockerfile wants the two stages that are published as New makes them.
func TestDockerfile(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, folder, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.HasPrefix(line, "FROM scratch"):
			got.Reset()
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			continue
		}
		got.WriteString(line)
	}
	if got.String() != stages {
		t.Errorf("the Dockerfile has\n%s\nwant what New makes:\n%s", &got, stages)
	}
}
