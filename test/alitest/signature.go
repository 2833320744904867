package alitest

import (
	"net/http"
	"regexp"
)

// Keys of those who may call. SecurityToken goes with the key of the instance's role, and with no other.
const (
	KeyID, Secret         = "LTAI-of-the-test", "secret-of-the-test"
	RoleKeyID, RoleSecret = "STS.of-the-role", "secret-of-the-role"
	SecurityToken, Role   = "token-of-the-role", "weft-routes"
)

var authorization = regexp.MustCompile(
	`^ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=[^,]+,Signature=[0-9a-f]{64}$`)

// unsigned returns what is wrong with a request's key, or nil. The signature is Alibaba's client's own.
func unsigned(r *http.Request) *apiError {
	m := authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if m == nil || m[1] != KeyID && m[1] != RoleKeyID {
		return &apiError{http.StatusNotFound, "InvalidAccessKeyId.NotFound", "Specified access key is not found."}
	}
	if token := r.Header.Get("X-Acs-Security-Token"); (token == SecurityToken) != (m[1] == RoleKeyID) {
		return &apiError{http.StatusBadRequest, "InvalidSecurityToken.Malformed",
			"Specified SecurityToken is malformed."}
	}
	return nil
}
