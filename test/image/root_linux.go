package image

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root is the root file system of an image, and what its programs are started with.
type Root struct {
	Dir    string
	Env    []string
	Mounts []Mount // the host's programs and libraries, in the place of Debian's packages
}

// New makes the files of a stage of the Dockerfile in the empty folder dir. It takes weft's programs from the
// folder bin, and all else from the repository and this host. TestDockerfile fails when the Dockerfile
// changes.
func New(stage, repository, bin, dir string) (Root, error) {
	r := Root{Dir: dir, Env: []string{"PATH=/opt/bin"}}
	files := map[string]string{
		"/etc/ssl/certs/ca-certificates.crt": "/etc/ssl/certs",
		filepath.Join(repository, "LICENSE"): "/usr/share/doc/weft",
	}
	for _, name := range []string{"weftd", "weft-etcd", "weft", "weft-cni"} {
		files[filepath.Join(bin, name)] = "/opt/bin"
	}
	links := map[string]string{}
	switch stage {
	case "minimal":
	case "default":
		for _, name := range []string{"install-conf", "mk-docker-opts.sh"} {
			files[filepath.Join(repository, "cmd/weftd/deploy/image", name)] = "/opt/bin"
		}
		delete(files, filepath.Join(repository, "LICENSE")) // its folder is the host's here
		links = map[string]string{
			"opt/bin/flanneld": "weftd", "flannel": "opt/bin/weft-cni",
			"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64",
		}
		r.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"}
		for _, name := range []string{"/usr", "/etc/alternatives"} {
			r.Mounts = append(r.Mounts, Mount{Source: name, Target: name, ReadOnly: true, Programs: true})
		}
	default:
		return r, fmt.Errorf("no stage %q", stage)
	}
	for from, to := range files {
		if err := copyFile(from, filepath.Join(dir, to, filepath.Base(from))); err != nil {
			return r, err
		}
	}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			return r, err
		}
	}
	for _, name := range []string{"run", "tmp", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return r, err
		}
	}
	return r, os.Chmod(dir, 0o755)
}

// copyFile copies a regular file with its mode.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, b, info.Mode().Perm())
}
