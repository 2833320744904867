// Package release holds the script that makes what is published of a version (make release), and the tests of it.
//
// It is a script and not a program of Go, so that a release is what its few lines say: go build for each
// architecture, tar, sha256sum. No release tool is needed.
package release
