package alitest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Keys of those who may call. SecretToken goes with the key of the instance's role, and with no other.
const (
	KeyID, Secret             = "LTAI-of-the-test", "secret-of-the-test"
	RoleKeyID, RoleSecret     = "STS.of-the-role", "secret-of-the-role"
	SecurityToken, Role       = "token-of-the-role", "weft-routes"
	authorization             = `^ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})$`
	oldest                    = 15 * time.Minute
	headerDate, headerContent = "X-Acs-Date", "X-Acs-Content-Sha256"
)

// unsigned returns what is wrong with a request's signature, or nil.
func (c *Cloud) unsigned(r *http.Request, body []byte) *apiError {
	m := regexp.MustCompile(authorization).FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil {
		return &apiError{http.StatusBadRequest, "IncompleteSignature",
			"The request signature does not conform to Aliyun standards."}
	}
	secret, known := map[string]string{KeyID: Secret, RoleKeyID: RoleSecret}[m[1]]
	if !known {
		return &apiError{http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found."}
	}
	if token := r.Header.Get("X-Acs-Security-Token"); (token == SecurityToken) != (m[1] == RoleKeyID) {
		return &apiError{http.StatusBadRequest, "InvalidSecurityToken.Malformed",
			"Specified SecurityToken is malformed."}
	}
	if at, err := time.Parse("2006-01-02T15:04:05Z", r.Header.Get(headerDate)); err != nil ||
		time.Since(at).Abs() > oldest {
		return &apiError{http.StatusBadRequest, "InvalidTimeStamp.Expired",
			"Specified time stamp or date value is expired."}
	}
	if nonce := r.Header.Get("X-Acs-Signature-Nonce"); nonce == "" || c.nonces[nonce] {
		return &apiError{http.StatusBadRequest, "SignatureNonceUsed", "Specified signature nonce was used already."}
	} else {
		c.nonces[nonce] = true
	}
	signed := strings.Split(m[2], ";")
	var headers strings.Builder
	for _, h := range signed {
		value := r.Header.Get(h)
		if h == "host" {
			value = r.Host
		}
		headers.WriteString(h + ":" + strings.TrimSpace(value) + "\n")
	}
	hash := hexHash(body)
	request := strings.Join([]string{r.Method, "/", query(r.URL.Query()), headers.String(), m[2], hash}, "\n")
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("ACS3-HMAC-SHA256\n" + hexHash([]byte(request))))
	want := hex.EncodeToString(h.Sum(nil))
	for _, h := range []string{"host", "x-acs-action", "x-acs-version", "x-acs-date", "x-acs-signature-nonce",
		"x-acs-content-sha256"} {
		if !slices.Contains(signed, h) {
			want = "" // it has to be signed
		}
	}
	if r.Header.Get(headerContent) != hash || !slices.IsSorted(signed) || want != m[3] {
		return &apiError{http.StatusBadRequest, "SignatureDoesNotMatch",
			"Specified signature does not match our calculation."}
	}
	return nil
}

func hexHash(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// query is the canonical form of parameters: sorted, and encoded as RFC 3986 says.
func query(q url.Values) string {
	var out []string
	for k, vs := range q {
		for _, v := range vs {
			out = append(out, escape(k)+"="+escape(v))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "&")
}

func escape(s string) string {
	return strings.NewReplacer("+", "%20", "*", "%2A", "%7E", "~").Replace(url.QueryEscape(s))
}
