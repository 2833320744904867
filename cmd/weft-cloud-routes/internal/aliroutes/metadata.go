package aliroutes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/credentials-go/credentials"
	"github.com/aliyun/credentials-go/credentials/providers"
)

// metadata asks an instance's metadata service, each time with a session of its own ("security hardening
// mode"), and past any proxy of the environment: it answers in plain text, and hands out credentials.
type metadata struct {
	base   string
	client *http.Client
}

func newMetadata(base string) metadata {
	return metadata{strings.TrimRight(base, "/"), &http.Client{
		Timeout: metadataWithin, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

const (
	headerToken    = "X-aliyun-ecs-metadata-token"
	headerTokenTTL = "X-aliyun-ecs-metadata-token-ttl-seconds"
)

// get returns an item below /latest/meta-data/.
func (m metadata) get(ctx context.Context, item string) (string, error) {
	token, err := m.do(ctx, http.MethodPut, "/latest/api/token", headerTokenTTL, "60")
	if err != nil {
		return "", err
	}
	return m.do(ctx, http.MethodGet, "/latest/meta-data/"+item, headerToken, token)
}

func (m metadata) do(ctx context.Context, method, path, header, value string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, m.base+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set(header, value)
	resp, err := m.client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost with it
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(b))
	if resp.StatusCode != http.StatusOK || text == "" {
		return "", fmt.Errorf("%s %s%s: %s", method, m.base, path, resp.Status)
	}
	return text, nil
}

// credentialsFrom chooses where credentials come from by what there is, and names it: whoever has set
// something hears what is wrong with that, and not that there was nothing elsewhere either.
func credentialsFrom(m metadata) (known credentials.Credential, from string, err error) {
	var p providers.CredentialsProvider
	file := os.Getenv("ALIBABA_CLOUD_CONFIG_FILE")
	if home, _ := os.UserHomeDir(); file == "" && home != "" {
		// else it would be one of the directory that this runs in
		file = filepath.Join(home, ".aliyun", "config.json")
	}
	_, missing := os.Stat(file)
	disabled := strings.EqualFold(os.Getenv("ALIBABA_CLOUD_CLI_PROFILE_DISABLED"), "true")
	switch {
	case os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID") != "":
		from = "the environment (ALIBABA_CLOUD_ACCESS_KEY_ID)"
		p, err = providers.NewEnvironmentVariableCredentialsProviderBuilder().Build()
	case os.Getenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE") != "":
		from = "the token of a service account (ALIBABA_CLOUD_OIDC_TOKEN_FILE)"
		p, err = providers.NewOIDCCredentialsProviderBuilder().Build()
	case os.Getenv("ALIBABA_CLOUD_CONFIG_FILE") != "" || missing == nil && !disabled:
		from = "the file of the aliyun command (" + file + ")"
		if err = guardLibrary(); err == nil {
			p, err = providers.NewCLIProfileCredentialsProviderBuilder().WithProfileFile(file).Build()
		}
	default:
		from = "the role of this instance (" + m.base + ")"
		p = &role{metadata: m}
	}
	if err != nil {
		return nil, from, fmt.Errorf("no credentials of Alibaba Cloud, which were looked for in %s: %w", from, err)
	}
	return credentials.FromCredentialsProvider("sts", p), from, nil
}

// guardLibrary has the library's provider for a profile of the instance's role ask as we do: with a session
// only, and past any proxy. Go reads the variables of proxies once, at the first request that may take one.
func guardLibrary() error {
	past := strings.TrimPrefix(metadataAt, "http://")
	if others := cmp.Or(os.Getenv("NO_PROXY"), os.Getenv("no_proxy")); others != "" {
		past = others + "," + past
	}
	return errors.Join(os.Setenv("ALIBABA_CLOUD_IMDSV1_DISABLED", "true"), os.Setenv("NO_PROXY", past))
}

// role has the credentials of the RAM role that the instance has. It is safe for concurrent use.
type role struct {
	metadata metadata

	mu    sync.Mutex
	have  *providers.Credentials
	until time.Time
}

// renewBefore is how long before their end credentials are asked for anew. The service has new ones half an
// hour before.
const renewBefore = 10 * time.Minute

// GetProviderName implements providers.CredentialsProvider.
func (r *role) GetProviderName() string { return "ecs_ram_role" }

// GetCredentials implements providers.CredentialsProvider. While the service does not answer, those that it
// gave last serve on until their end.
func (r *role) GetCredentials() (*providers.Credentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.have != nil && time.Until(r.until) > renewBefore {
		return r.have, nil
	}
	have, until, err := r.ask()
	switch {
	case err == nil:
		r.have, r.until = have, until
	case r.have == nil || time.Until(r.until) <= 0:
		return nil, err
	}
	return r.have, nil
}

func (r *role) ask() (*providers.Credentials, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.Background(), metadataWithin)
	defer cancel()
	const at = "ram/security-credentials/"
	name, err := r.metadata.get(ctx, at)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("has this instance a RAM role? %w", err)
	}
	text, err := r.metadata.get(ctx, at+name)
	if err != nil {
		return nil, time.Time{}, err
	}
	var a struct {
		Code, AccessKeyID, AccessKeySecret, SecurityToken string
		Expiration                                        time.Time
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil || a.AccessKeyID == "" || a.AccessKeySecret == "" ||
		a.SecurityToken == "" {
		return nil, time.Time{}, fmt.Errorf("what the metadata service answers for role %s is no credentials "+
			"(code %q)", name, a.Code)
	}
	return &providers.Credentials{AccessKeyId: a.AccessKeyID, AccessKeySecret: a.AccessKeySecret,
		SecurityToken: a.SecurityToken, ProviderName: r.GetProviderName()}, a.Expiration, nil
}
