package options

import "weft/lease"

// RedactAll calls lease.RedactURL for each of urls, and returns a new slice.
func RedactAll(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = lease.RedactURL(u)
	}
	return out
}
