package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Source says where an image's parts come from.
type Source struct {
	Context  string // the folder from which COPY without --from copies: the repository
	Binaries string // the folder with the programs that the build stage makes in /out
}

// basePackages returns those packages of Debian's slim image that the scripts use.
func basePackages() []string {
	return []string{"dash", "coreutils", "sed", "grep"}
}

// folder is that of the Dockerfile and the scripts that it copies.
const folder = "cmd/weftd/deploy/image"

// Dockerfile reads the Dockerfile of the repository at context.
func Dockerfile(context string) (map[string]Stage, error) {
	b, err := os.ReadFile(filepath.Join(context, folder, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	return Parse(string(b))
}

// Assemble makes what the stage says in root, which is an empty folder. It has to run as root, for chroot.
func Assemble(s Stage, src Source, root string) error {
	if s.From != "scratch" {
		if err := addBase(root); err != nil {
			return fmt.Errorf("base image: %w", err)
		}
	}
	for _, step := range s.Steps {
		if err := src.apply(step, root); err != nil {
			return fmt.Errorf("%s %s: %w", step.Name, step.Args, err)
		}
	}
	return nil
}

func (src Source) apply(step Step, root string) error {
	switch step.Name {
	case "COPY":
		c, err := parseCopy(step.Args)
		if err != nil {
			return err
		}
		return src.copy(c, root)
	case "RUN":
		if names, ok := packages(step.Args); ok {
			return addPackages(root, names)
		}
		cmd := exec.Command("/bin/sh", "-ec", step.Args)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
		cmd.SysProcAttr = &unix.SysProcAttr{Chroot: root}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	case "ENV", "ENTRYPOINT", "ARG":
		return nil
	}
	return ErrDockerfile
}

// copy does what COPY says. It takes what the build stage makes in /out from the binaries, and its other files from this
// host.
func (src Source) copy(c copyStep, root string) error {
	for _, name := range c.src {
		path := filepath.Join(src.Context, name)
		if c.from != "" {
			path = name
			if made, ok := strings.CutPrefix(name, "/out/"); ok {
				path = filepath.Join(src.Binaries, made)
			}
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return err
		}
		if err := copyFile(real, filepath.Join(root, c.dst, filepath.Base(name))); err != nil {
			return err
		}
	}
	return nil
}

// copyFile copies a regular file with its mode.
func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, b, info.Mode().Perm()); err != nil {
		return err
	}
	return os.Chmod(to, info.Mode().Perm())
}
