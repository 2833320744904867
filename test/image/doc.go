// Package image makes the root file systems that cmd/weftd/deploy/image/Dockerfile describes, and runs
// programs in them as in a container. Tests so need no container engine.
//
// It reads the Dockerfile itself, so that the tests test what the file says. It needs no registry: it takes the
// base image and its packages from the Debian packages that are installed on this host, and what
// the build stage makes from a folder of binaries.
package image
