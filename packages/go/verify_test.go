package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

const secret = "whsec_bm90LWEtcmVhbC1zZWNyZXQtb25seS1mb3ItdGVzdHM"

var now = time.Unix(1_763_600_000, 0)

func signed(body string, secrets ...string) Input {
	header := fmt.Sprintf("t=%d", now.Unix())
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(mac, "%d.%s", now.Unix(), body)
		header += ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	return Input{Body: []byte(body), Header: []string{header}, Secrets: []string{secret}, Now: now}
}

func codeOf(err error) Code {
	var refused *VerificationError
	if !errors.As(err, &refused) {
		return ""
	}
	return refused.Code
}

func TestVectors(t *testing.T) {
	text, err := os.ReadFile("../../test/fixtures/signature-vectors.json")
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the vectors are in the service's repository, and this is a copy of the module alone")
	}
	var file struct {
		Cases []struct {
			Name, Verdict, Header string
			Body                  string `json:"body_base64"`
			Secrets               []string
			Now                   int64
			Tolerance             int64 `json:"tolerance_seconds"`
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) != 44 {
		t.Errorf("there are %d vectors", len(file.Cases))
	}
	for _, one := range file.Cases {
		body, err := base64.StdEncoding.DecodeString(one.Body)
		if err != nil {
			t.Fatal(err)
		}
		err = VerifySignature(Input{
			Body: body, Header: []string{one.Header}, Secrets: one.Secrets,
			Now: time.Unix(one.Now, 0), Tolerance: time.Duration(one.Tolerance) * time.Second,
		})
		verdict := "accept"
		if refused := (*VerificationError)(nil); errors.As(err, &refused) {
			verdict = map[bool]string{false: "reject", true: "error"}[refused.IsMisuse()]
		}
		if verdict != one.Verdict {
			t.Errorf("%s: %s, not %s (%v)", one.Name, verdict, one.Verdict, err)
		}
	}
}

const event = `{"id":"d-1","event":"analysis.failed","created_at":"2027-01-15T08:00:00.000Z",` +
	`"data":{"id":"an_1","status":"failed","n":1E400,"example":true}}`

func TestEvent(t *testing.T) {
	got, err := VerifyWebhook(signed(event, secret))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{
		ID: "d-1", Name: AnalysisFailed, CreatedAt: "2027-01-15T08:00:00.000Z", AnalysisID: "an_1", Example: true,
		Data: json.RawMessage(`{"id":"an_1","status":"failed","n":1E400,"example":true}`),
	}
	if fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%+v", *got)
	}
}

func TestWhatIsNoEvent(t *testing.T) {
	for _, body := range []string{
		"", "null", "[]", `"x"`, "{", event + "}", "\ufeff" + event, strings.Replace(event, "an_1", "\xff", 1),
		strings.Replace(event, `"id":"d-1"`, `"ID":"d-1"`, 1),
		strings.Replace(event, `"id":"d-1"`, `"id":1`, 1),
		strings.Replace(event, `"id":"d-1"`, `"id":""`, 1),
		strings.Replace(event, "created_at", "created", 1),
		strings.Replace(event, "analysis.failed", "analysis.new", 1),
		strings.Replace(event, `"status":"failed"`, `"status":"succeeded"`, 1),
		strings.Replace(event, `"an_1"`, "null", 1),
		event[:strings.Index(event, `"data"`)] + `"data":null}`,
		`{"type":"webhook.challenge","challenge":"a-1"}`,
	} {
		if got, err := VerifyWebhook(signed(body, secret)); codeOf(err) != BodyNotAnEvent || got != nil {
			t.Errorf("%q: %v, %v", body, got, err)
		}
		if err := VerifySignature(signed(body, secret)); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestChallenge(t *testing.T) {
	const challenge = `{"type":"webhook.challenge","challenge":"a-1"}`
	if text, err := ReadChallenge(signed(challenge, secret)); text != "a-1" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for _, body := range []string{event, challenge + "\n", "\ufeff" + challenge, `{"challenge":"a-1"}`} {
		if text, err := ReadChallenge(signed(body, secret)); text != "" || err != nil {
			t.Errorf("%q: %q, %v", body, text, err)
		}
	}
	if text, err := ReadChallenge(signed(challenge, "whsec_forged")); text != "" || codeOf(err) != NoSignatureMatches {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRotation(t *testing.T) {
	for _, input := range []Input{signed(event, "whsec_new", secret), signed(event, secret, "whsec_old")} {
		if err := VerifySignature(input); err != nil {
			t.Error(err)
		}
	}
	input := signed(event, secret)
	input.Secrets = []string{"whsec_new", secret}
	if err := VerifySignature(input); err != nil {
		t.Error(err)
	}
}

func TestEachCode(t *testing.T) {
	change := func(how func(*Input)) Input {
		input := signed(event, secret)
		how(&input)
		return input
	}
	wrong := map[Code][]Input{
		HeaderMissing: {
			change(func(in *Input) { in.Header = nil }),
			change(func(in *Input) { in.Header = []string{""} }),
		},
		HeaderMalformed: {
			change(func(in *Input) { in.Header = append(in.Header, in.Header...) }),
			change(func(in *Input) { in.Header[0] += strings.Repeat(",v1="+strings.Repeat("0", 64), 16) }),
		},
		TimestampTooOld: {change(func(in *Input) { in.Now = now.Add(ToleranceDefault) })},
		TimestampAhead: {
			change(func(in *Input) { in.Now = now.Add(-ToleranceDefault) }),
			// Further than a Duration reaches.
			change(func(in *Input) { in.Header[0] = strings.Replace(in.Header[0], "t=", "t=99999", 1) }),
		},
		NoSignatureMatches: {change(func(in *Input) { in.Body = append(in.Body, ' ') }), signed(event, "whsec_x")},
		BodyNotAnEvent:     {signed("{}", secret)},
		SecretMissing:      {change(func(in *Input) { in.Secrets = nil })},
		SecretEmpty: {
			change(func(in *Input) { in.Secrets = []string{secret, ""} }),
			change(func(in *Input) { in.Secrets = []string{" \x00\n"} }),
		},
		ToleranceInvalid: {change(func(in *Input) { in.Tolerance = -time.Second })},
		ClockInvalid: {
			change(func(in *Input) { in.Now = time.Unix(-1, 0) }),
			change(func(in *Input) { in.Now = time.Unix(now.Unix()*1_000, 0) }),
		},
	}
	for _, code := range Codes() {
		if len(wrong[code]) == 0 {
			t.Errorf("%s is not tried", code)
		}
		for at, input := range wrong[code] {
			_, err := VerifyWebhook(input)
			if codeOf(err) != code {
				t.Errorf("%s, %d: %v", code, at, err)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("%s tells the secret", code)
			}
		}
	}
}

func TestSystemClock(t *testing.T) {
	input := signed(event, secret)
	input.Now = time.Time{}
	if err := VerifySignature(input); codeOf(err) != TimestampTooOld {
		t.Error(err)
	}
}
