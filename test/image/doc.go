// Package image makes the root file systems that cmd/weftd/deploy/image/Dockerfile describes, and runs
// programs in them as a container would: without an engine, for tests.
//
// It reads the Dockerfile itself, so that what is tested is what it says. What a registry would give
// is taken from this host: a base image and its packages from the Debian packages installed here, and
// what the build stage makes from a folder of binaries.
package image
