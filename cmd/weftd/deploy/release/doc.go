// Package release holds the script that builds a release (make release), the script that publishes it (make
// publish), and the tests of both and of the workflows that call them.
//
// The first is a shell script, so that anybody can read in its few lines what a release is: go build for each
// architecture, tar, sha256sum. No release tool is needed.
package release
