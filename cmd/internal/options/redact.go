package options

import "weft/lease/redact"

// RedactAll calls redact.URL for each of urls, and returns a new slice.
func RedactAll(urls []string) []string {
	out := make([]string, len(urls))
	for i, u := range urls {
		out[i] = redact.URL(u)
	}
	return out
}
