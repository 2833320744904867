// Package cloudtest is what the clouds of tests have in common: a server with one owner at a time, calls that
// are noted, faults, and pages.
package cloudtest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
)

// Fault is what happens to one call in place of its answer.
type Fault struct {
	// Code and Status are of the answer. With Code "" the connection is closed without one.
	Code   string
	Status int
	// Done says that the call does what it is to do all the same.
	Done bool
}

// Calls are those of a cloud.
type Calls struct {
	// Calls are those that there were, by name, and Faults those to come.
	Calls  []string
	Faults map[string][]Fault
	// Page is how many items a page has at the most; 0 for as many as are asked for.
	Page int
}

// Count returns how many calls of a name there were.
func (c *Calls) Count(call string) (n int) {
	for _, x := range c.Calls {
		if x == call {
			n++
		}
	}
	return n
}

// Heard notes a call, and returns the fault that it has, or nil.
func (c *Calls) Heard(call string) *Fault {
	c.Calls = append(c.Calls, call)
	f := c.Faults[call]
	if len(f) == 0 {
		return nil
	}
	c.Faults[call] = f[1:]
	return &f[0]
}

// Answers ends a call that has a fault without an answer by closing its connection; it does not return then.
func (f *Fault) Answers() {
	if f != nil && f.Code == "" {
		panic(http.ErrAbortHandler)
	}
}

// Span returns which of n items the page of a token has, and the token of the next one. Both are numbers; ""
// is the first page, and follows the last.
func (c *Calls) Span(token, size string, n int) (from, to int, next string) {
	from, _ = strconv.Atoi(token)
	most, _ := strconv.Atoi(size)
	if c.Page > 0 {
		most = min(most, c.Page)
	}
	if to = min(from+most, n); to < n {
		next = strconv.Itoa(to)
	}
	return min(from, n), to, next
}

// Server serves a cloud, to one at a time.
type Server[C any] struct {
	*httptest.Server
	mu    sync.Mutex
	cloud C
}

// New begins a server, which the caller closes. serve has the cloud to itself.
func New[C any](cloud C, serve func(*C, http.ResponseWriter, *http.Request)) *Server[C] {
	s := &Server[C]{cloud: cloud}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		serve(&s.cloud, w, r)
	}))
	return s
}

// With calls do with the cloud, and nobody else has it meanwhile.
func (s *Server[C]) With(do func(*C)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.cloud)
}
