// Package minder is what a weftd becomes that another one has succeeded, where somebody waits for its process: a container's runtime for
// the first process, a service manager that does not follow MAINPID, a shell. A minder does nothing but wait: it passes signals on to the weftd
// that serves, and ends with its exit status. It stays when that one is succeeded again, so that there is never more than one.
package minder
