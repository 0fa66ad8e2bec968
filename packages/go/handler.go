package receiver

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
)

// An analysis can be 1 MiB, and the event is slightly larger.
const bodyBytesMax = 2 << 20

// A Handler receives webhooks. It answers challenges, gives every event that verifies to Accept, and answers 204 once
// that has returned nil, 500 if it returned an error (the event is sent again), and 400 to what does not verify.
type Handler struct {
	// Secrets has the signing secret or, during a rotation, the new and the old one.
	Secrets []string
	// Accept stores the event, each ID once, for delivery is at least once, and leaves the work for later: an answer
	// that takes 15 seconds comes too late.
	Accept func(context.Context, *Event) error
	// OnError is told why a request gets no 2xx. Nil: the standard logger is, of what is answered with 500.
	OnError func(*http.Request, error)
}

func (h Handler) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	challenge, err := h.receive(response, request)
	status := statusOf(err)
	if err != nil && h.OnError != nil {
		h.OnError(request, err)
	} else if status == http.StatusInternalServerError {
		log.Printf("webhook answered with 500: %v", err)
	}
	if challenge == "" {
		response.WriteHeader(status)
		return
	}
	response.Header().Set("Content-Type", "text/plain")
	// A sender that is gone asks again.
	_, _ = io.WriteString(response, challenge)
}

// receive returns the text to answer a challenge with; "": it was none.
func (h Handler) receive(response http.ResponseWriter, request *http.Request) (string, error) {
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bodyBytesMax))
	if err != nil {
		return "", err
	}
	err = VerifySignature(Input{Body: body, Headers: request.Header, Secrets: h.Secrets})
	if err != nil {
		return "", err
	}
	if challenge := parseChallenge(body); challenge != "" {
		return challenge, nil
	}
	event, err := parseEvent(body)
	if err != nil {
		return "", err
	}
	return "", h.Accept(request.Context(), event)
}

func statusOf(err error) int {
	var refused *VerificationError
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return http.StatusNoContent
	case errors.As(err, &refused):
		return refused.StatusCode()
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge
	default:
		return http.StatusInternalServerError
	}
}
