package options

import "weft/lease"

// RedactAll is lease.RedactURL for each of urls; the slice is new.
func RedactAll(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = lease.RedactURL(u)
	}
	return out
}
