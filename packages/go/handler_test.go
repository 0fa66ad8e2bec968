package receiver

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// posted returns the answer to a body that was signed just now.
func posted(handler Handler, body string, secrets ...string) *httptest.ResponseRecorder {
	defer func(before time.Time) { now = before }(now)
	now = time.Now()
	request := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(body))
	request.Header.Set(SignatureHeader, signed(body, secrets...).Header[0])
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer
}

func TestHandler(t *testing.T) {
	var accepted []string
	var told []error
	handler := Handler{
		Secrets: []string{secret},
		Accept: func(_ context.Context, event *Event) error {
			accepted = append(accepted, event.ID)
			if len(accepted) > 1 {
				return errors.New("the disk is full")
			}
			return nil
		},
		OnError: func(_ *http.Request, err error) { told = append(told, err) },
	}
	answer := posted(handler, `{"type":"webhook.challenge","challenge":"a-1"}`, secret)
	if answer.Code != http.StatusOK || answer.Body.String() != "a-1" {
		t.Errorf("challenge: %d %q", answer.Code, answer.Body)
	}
	for _, one := range []struct {
		what, body, secret string
		status             int
	}{
		{"forged", event, "whsec_forged", http.StatusBadRequest},
		{"no event", "{}", secret, http.StatusBadRequest},
		{"too large", strings.Repeat(" ", bodyBytesMax+1), secret, http.StatusRequestEntityTooLarge},
		{"genuine", event, secret, http.StatusNoContent},
		{"not stored", event, secret, http.StatusInternalServerError},
	} {
		if answer := posted(handler, one.body, one.secret); answer.Code != one.status || answer.Body.Len() > 0 {
			t.Errorf("%s: %d %q", one.what, answer.Code, answer.Body)
		}
	}
	if len(accepted) != 2 || len(told) != 4 {
		t.Errorf("accepted %v, told %v", accepted, told)
	}
}

func TestHandlerLogsMisuseAlone(t *testing.T) {
	var logged bytes.Buffer
	log.SetOutput(&logged)
	defer log.SetOutput(os.Stderr)
	if answer := posted(Handler{}, event, secret); answer.Code != http.StatusInternalServerError {
		t.Error(answer.Code)
	}
	posted(Handler{Secrets: []string{"whsec_other"}}, event, secret)
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "no signing secret") {
		t.Error(text)
	}
}
