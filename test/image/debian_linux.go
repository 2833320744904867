package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// alternatives is the folder of Debian's links that choose between flavours of a program.
const alternatives = "/etc/alternatives"

// addBase makes what the scripts need of Debian's slim image.
func addBase(root string) error {
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", dir), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"etc", "run", "tmp", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	return addPackages(root, basePackages())
}

// addPackages copies the files of packages that this host has, and the libraries that they load.
func addPackages(root string, names []string) error {
	for _, name := range names {
		if err := addPackage(root, name); err != nil {
			return fmt.Errorf("package %s: %w", name, err)
		}
	}
	return addAlternatives(root)
}

func addPackage(root, name string) error {
	out, err := exec.Command("dpkg-query", "--listfiles", name).Output()
	if err != nil {
		return fmt.Errorf("%w: its files are taken from this host: apt-get install %s", err, name)
	}
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if strings.HasPrefix(path, "/usr/share/") && name != "ca-certificates" || path == "/." {
			continue
		}
		if err := addPath(root, path); err != nil {
			return err
		}
	}
	if name == "ca-certificates" {
		return copyFile("/etc/ssl/certs/ca-certificates.crt", filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	}
	return nil
}

// addPath copies a file or link of this host to the same place, with the libraries of a program.
func addPath(root, path string) error {
	to := filepath.Join(root, path)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it was diverted, or whoever set this host up has removed it
	case err != nil:
		return err
	case info.IsDir():
		return nil // it is made with its first file
	case info.Mode().Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(target, to); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case !info.Mode().IsRegular():
		return nil
	}
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	if err := copyFile(path, to); err != nil {
		return err
	}
	return addLibraries(root, path)
}

// addLibraries copies what the file at path loads, if it is a program or a library.
func addLibraries(root, path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return nil // it is a script, or data
	}
	defer func() { _ = f.Close() }()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil // it is linked statically
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return err
		}
		if err := addLibrary(root, strings.TrimRight(string(b), "\x00")); err != nil {
			return err
		}
	}
	for _, name := range needed {
		found, err := filepath.Glob("/usr/lib/*-linux-gnu*/" + name)
		if err != nil || len(found) == 0 {
			found, err = filepath.Glob("/lib/*-linux-gnu*/" + name)
		}
		if err != nil || len(found) == 0 {
			return fmt.Errorf("%s needs %s, which is not on this host", path, name)
		}
		for _, lib := range found {
			if err := addLibrary(root, lib); err != nil {
				return err
			}
		}
	}
	return nil
}

// addLibrary copies a library under the name by which it is loaded.
func addLibrary(root, path string) error {
	to := filepath.Join(root, path)
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := copyFile(real, to); err != nil {
		return err
	}
	return addLibraries(root, real)
}

// addAlternatives makes the links for programs that are there, such as the one from iptables to iptables-nft.
func addAlternatives(root string) error {
	entries, err := os.ReadDir(alternatives)
	if err != nil {
		return err
	}
	for _, e := range entries {
		link := filepath.Join(alternatives, e.Name())
		target, err := os.Readlink(link)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(filepath.Join(root, target)); err != nil {
			continue
		}
		if err := addPath(root, link); err != nil {
			return err
		}
		for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
			public := filepath.Join(dir, e.Name())
			if to, err := os.Readlink(public); err == nil && to == link {
				if err := addPath(root, public); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
