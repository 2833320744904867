// Package rights passes descriptors between processes over Unix sockets (SCM_RIGHTS of unix(7)), and asks who
// is at the other end. The receiver owns the descriptors, also those that came beside an error.
package rights
