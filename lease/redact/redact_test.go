package redact

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// planted is in every secret of these tests, at both ends where that matters.
const planted = "s3cr3t"

func TestURL(t *testing.T) {
	for in, want := range map[string]string{
		"https://192.0.2.1:2379":                    "https://192.0.2.1:2379",
		"unix:///run/etcd.sock":                     "unix:///run/etcd.sock",
		"[2001:db8::1]:2379":                        "[2001:db8::1]:2379",
		"https://u:s3cr3t@h:1/v1":                   "https://xxxxx@h:1/v1",
		"u:s3cr3t@h:1":                              "xxxxx@h:1",
		"s3cr3t@h":                                  "xxxxx@h",
		"https://u:s3cr3t/x@s3cr3t@h":               "https://xxxxx@h",
		"https://u:s3cr3t?s3cr3t@h/":                "https://xxxxx",
		"https://h/a?mail=a@b&sig=s3cr3t":           "https://xxxxx",
		"https://h/a?sig=s3cr3t":                    "https://h/a?xxxxx",
		"https://u:s3cr3t@h/a?pw=s3cr3t&%70w=s3cr3": "https://xxxxx@h/a?xxxxx",
		"https://h/a#access_token=s3cr3t":           "https://h/a#xxxxx",
		"https://h/a;jsessionid=s3cr3t":             "https://h/a;xxxxx",
		"https://h/%zz?token=s3cr3t":                "https://h/%zz?xxxxx",
		"h?s3cr3t":                                  "h?xxxxx",
		"://u:s3cr3t@h?x=s3cr3t":                    "://xxxxx@h?xxxxx",
		"":                                          "",
	} {
		if got := URL(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func names() []string {
	return []string{"pw", "PW", "db_pw", "dbPw", "pwd", "pass", "passwd", "password", "Paswrd", "etcd-password",
		"passphrase", "passcode", "sig", "X-Amz-Signature",
		"signature", "token", "accessToken", "tokens", "secret", "client_secret", "apiKey", "api-key", "API_KEY",
		"AccountKey", "signing_key", "credential", "creds",
		"auth", "authKey", "Authorization", "psk", "PreSharedKey", "pre-shared-key", "privateKey", "session_key",
		"cookie", "jwt", "sas", "otp", "bearer", "key-data"}
}

func TestName(t *testing.T) {
	for _, name := range append(names(), "paſſword", "toKen", "my pw", "pw2", "backend.pw") {
		if !Name(name) {
			t.Errorf("%s is none", name)
		}
	}
	for _, name := range []string{"", "Port", "PublicKey", "Network", "Backend", "path", "passed", "bypass",
		"compass", "signal", "assign", "author", "key", "hash", "node", "pwrite", "design", "Type",
		"spawn", "desk"} {
		if Name(name) {
			t.Errorf("%s is one", name)
		}
	}
}

// A value is struck whatever its name's spelling, its type, and the depth of the JSON; what stands beside it
// stays, and the JSON is one.
func TestJSON(t *testing.T) {
	r := New()
	spellings := names()
	spellings = append(spellings, `\u0070w`, `\u0050\u0057`, `p\u0061ssword`, `to\u212Aen`, "paſſword")
	values := []string{`"s3cr3t"`, `"a\"b,}s3cr3t"`, `"s3cr3t\\"`, `"\\\"s3cr3t"`, `"\u0022s3cr3t"`,
		`["a", "s3cr3t"]`, `{"x":{"y":"}s3cr3t"},"z":["s3cr3t"]}`, `53`}
	for i, name := range spellings {
		for j, value := range values {
			colon := []string{":", " :\n\t", ": "}[(i+j)%3]
			text := `{"a":"b\\","` + name + `"` + colon + value + `,"Port":8285,"none":null}`
			for depth := range 4 {
				got := string(r.Text([]byte(text)))
				inner := got
				for range depth {
					var s string
					if err := json.Unmarshal([]byte(inner), &s); err != nil {
						t.Fatalf("depth %d: %q became %q: %v", depth, text, got, err)
					}
					inner = s
				}
				var doc map[string]any
				if err := json.Unmarshal([]byte(inner), &doc); err != nil || doc["Port"] != 8285.0 || doc["a"] != `b\` ||
					len(doc) != 4 {
					t.Errorf("depth %d: %s became %s: %v", depth, text, got, err)
				}
				if strings.Contains(got, planted) || strings.Contains(got, "53") {
					t.Errorf("depth %d: %s: it is there: %s", depth, text, got)
				}
				b, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				text = string(b)
			}
		}
	}
	for _, same := range []string{`{"psk":"","token":null,"secret":false}`,
		`{"passwordFile":"/etc/weft/pw","a":["pw"]}`, `say "pw" and "x": 5" {`} {
		if got := string(r.Text([]byte(same))); got != same {
			t.Errorf("%s became %s", same, got)
		}
	}
}

// A text of a stranger's takes no longer than its length asks for.
func TestLongText(t *testing.T) {
	const n = 1 << 19
	for _, part := range []string{`{"a":`, `"a":"b",`, `\"a\":`, `\"a\":\\\"`, `"pw":[`, `"`, `\`, `"a":"`} {
		_ = JSON([]byte(strings.Repeat(part, n/len(part))), func(name, _ string) (string, bool) {
			return Struck, Name(name)
		})
	}
}

func TestText(t *testing.T) {
	r := New()
	for _, text := range []string{
		`{"pw":"s3cr3t`, `x "psk":"s3cr3t" y`, `5" disk {"pw":"s3cr3t"}`, `{'sig':'s3cr3t'}`,
		`config="{\"pw\":\"s3cr3t\"}" x=1`,
		`pw=s3cr3t`, `DB_PW=a s3cr3t`, `sig: s3cr3t`, `weftd --db-pw s3cr3t --x`, `--pw=s3cr3t`, `-sig 's3cr3t'`,
		"token = s3cr3t", `dbPw=s3cr3t`,
		`dial https://h/a?pw=s3cr3t: refused`, `url="https://u:s3cr3t@h/?a=1&sig=s3cr3t"`,
		`{"url":"https://h/?a=1\u0026sig=s3cr3t"}`, `https:\/\/u:s3cr3t@h\/?sig=s3cr3t`,
		`GET /v1/x?%73ig=s3cr3t HTTP/1.1`, `https://h/x?s3cr3t`, `https://h/#s3cr3t`,
		`https://h/?a=it's&sig=s3cr3t`, `https://u:it's-s3cr3t@h`, `<a href="/x?a=b&amp;sig=s3cr3t">`,
		`a&code=s3cr3t`,
	} {
		if got := string(r.Text([]byte(text))); strings.Contains(got, planted) {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// FuzzText: no value of a secret survives, in any of the places where one is written.
func FuzzText(f *testing.F) {
	f.Add("pw", "value", "noise", byte(0))
	f.Add("X-Sig", `a"b\`, `\"{[`, byte(1))
	f.Add("apiToken", "a\nb", "://", byte(2))
	f.Add("p.auth", "]}", "?x=", byte(3))
	r := New()
	f.Fuzz(func(t *testing.T, prefix, value, noise string, place byte) {
		prefix, noise = strings.ReplaceAll(prefix, planted, ""), strings.ReplaceAll(noise, planted, "")
		if strings.Contains(prefix+noise, planted) {
			return // what is no secret has the mark of one
		}
		all := names()
		name := all[int(place)%len(all)]
		if place&64 != 0 {
			name = strings.Trim(fmt.Sprintf("%q", prefix), `"`) + "_" + name
		}
		secret := planted + value + planted
		quoted := func(v any) string {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		u := url.URL{Scheme: "https", User: url.UserPassword("u", secret), Host: "h", Path: "/a",
			RawQuery: url.Values{prefix + name: {secret}, noise: {noise}}.Encode()}
		member := `{"x":` + quoted(noise) + `,` + quoted(name) + `:` + quoted(secret) + `,"y":[` +
			quoted(map[string]any{name: []any{noise, secret}}) + `]}`
		setting := strings.Map(func(r rune) rune {
			if strings.ContainsRune("\n\r", r) {
				return 'x'
			}
			return r
		}, secret)
		texts := []string{
			u.String(), `dial "` + u.String() + `": refused`, quoted(u.String()), quoted(quoted(u.String())),
			member, quoted(member), quoted(quoted(member)), quoted(quoted(quoted(member))), "log " + quoted(noise) +
				" config=" + quoted(member),
			all[int(place)%len(all)] + "=" + setting + "\n", "a\nexport DB_" + all[int(place)%len(all)] + "=" +
				setting + "\nb\n",
		}
		for _, text := range texts {
			if got := string(r.Text([]byte(text))); strings.Contains(got, planted) {
				t.Errorf("%q became %q", text, got)
			}
		}
		for _, text := range []string{u.String(), "u:" + secret + "@h", "https://h/" + noise + "?" + secret,
			"https://u:" + secret + "@" + "h"} {
			if got := URL(text); strings.Contains(got, planted) {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}
