package alitest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"time"
)

// Metadata begins a metadata service of an instance that answers with sessions only. The caller closes it.
// The instance has a role unless lasting is 0: for how long its credentials are good.
func Metadata(vpc string, lasting time.Duration) *httptest.Server {
	const token = "session"
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-aliyun-ecs-metadata-token-ttl-seconds") == "" {
			http.Error(w, "for how long?", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(token)) // who asked is gone
	})
	items := map[string]func() string{
		"region-id": func() string { return Region },
		"vpc-id":    func() string { return vpc },
	}
	if lasting > 0 {
		items["ram/security-credentials/{$}"] = func() string { return Role }
		items["ram/security-credentials/"+Role] = func() string {
			b, err := json.Marshal(object{"Code": "Success", "AccessKeyId": RoleKeyID, "AccessKeySecret": RoleSecret,
				"SecurityToken": SecurityToken,
				"Expiration":    time.Now().Add(lasting).UTC().Format("2006-01-02T15:04:05Z")})
			if err != nil {
				return err.Error()
			}
			return string(b)
		}
	}
	for path, text := range items {
		mux.HandleFunc("GET /latest/meta-data/"+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-aliyun-ecs-metadata-token") != token {
				http.Error(w, "no session", http.StatusForbidden)
				return
			}
			_, _ = w.Write([]byte(text())) // the same
		})
	}
	return httptest.NewServer(mux)
}
