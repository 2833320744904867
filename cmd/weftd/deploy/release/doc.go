// Package release holds the scripts that make what is published of a version (make release) and publish it (make
// publish), and the tests of them and of the workflows that call them.
//
// The first is a script and not a program of Go, so that a release is what its few lines say: go build for each
// architecture, tar, sha256sum. No release tool is needed.
package release
