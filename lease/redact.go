package lease

import "strings"

// RedactURL takes user and password out of a URL, or of a host:port that begins with them, however
// malformed it is: what stands before the last @ is not for others.
func RedactURL(url string) string {
	at := strings.LastIndexByte(url, '@')
	if at < 0 {
		return url
	}
	scheme, _, found := strings.Cut(url[:at], "://")
	if !found || strings.ContainsAny(scheme, ":@/") {
		return "xxxxx" + url[at:]
	}
	return scheme + "://xxxxx" + url[at:]
}
