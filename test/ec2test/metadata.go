package ec2test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
)

// Metadata begins a metadata service of an instance that answers with sessions only (IMDSv2). The caller
// closes it.
func Metadata(region, vpc string) *httptest.Server {
	const token, mac = "session", "02:00:00:00:00:01"
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
			http.Error(w, "for how long?", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-aws-ec2-metadata-token-ttl-seconds", "21600")
		_, _ = fmt.Fprint(w, token) // who asked is gone
	})
	for path, text := range map[string]string{
		"/latest/dynamic/instance-identity/document":                   fmt.Sprintf(`{"region":%q}`, region),
		"/latest/meta-data/mac":                                        mac,
		"/latest/meta-data/network/interfaces/macs/" + mac + "/vpc-id": vpc,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-aws-ec2-metadata-token") != token {
				http.Error(w, "no session", http.StatusUnauthorized)
				return
			}
			_, _ = fmt.Fprint(w, text) // the same
		})
	}
	return httptest.NewServer(mux)
}
