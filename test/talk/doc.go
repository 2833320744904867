// Package talk is what processes without any privilege say to each other across an overlay, and how a test
// asks for it. The command test/cmd/talker does it; a Talker is a test's end of that command's standard input
// and output.
package talk
