package receiver

import (
	"net/http"
	"strings"
)

// A Code says why a delivery was not accepted. Codes are stable; a new one means a new minor version of the module.
type Code string

// The codes of a VerificationError.
const (
	HeaderMissing      Code = "header_missing"
	HeaderMalformed    Code = "header_malformed"
	TimestampTooOld    Code = "timestamp_too_old"
	TimestampAhead     Code = "timestamp_ahead"
	NoSignatureMatches Code = "no_signature_matches"
	BodyNotAnEvent     Code = "body_not_an_event"
	SecretMissing      Code = "secret_missing"
	SecretEmpty        Code = "secret_empty"
	ToleranceInvalid   Code = "tolerance_invalid"
	ClockInvalid       Code = "clock_invalid"
)

// Codes returns every code, for exhaustive handling.
func Codes() []Code {
	return []Code{
		HeaderMissing, HeaderMalformed, TimestampTooOld, TimestampAhead, NoSignatureMatches, BodyNotAnEvent,
		SecretMissing, SecretEmpty, ToleranceInvalid, ClockInvalid,
	}
}

// A VerificationError says why a delivery was not accepted, and how to fix it. It never holds a secret or a signature,
// so it is safe to log.
type VerificationError struct {
	Code    Code
	message string
}

func (e *VerificationError) Error() string { return e.message }

// IsMisuse reports whether the receiver's own code or configuration is wrong and nothing was verified. Otherwise the
// request is not a genuine, fresh event.
func (e *VerificationError) IsMisuse() bool {
	switch e.Code {
	case HeaderMissing, HeaderMalformed, TimestampTooOld, TimestampAhead, NoSignatureMatches, BodyNotAnEvent:
		return false
	default:
		return true
	}
}

// StatusCode is the status to answer with: 400, or 500 for misuse, so that the event is retried once the receiver is
// fixed.
func (e *VerificationError) StatusCode() int {
	if e.IsMisuse() {
		return http.StatusInternalServerError
	}
	return http.StatusBadRequest
}

func failure(code Code, message string) *VerificationError {
	return &VerificationError{Code: code, message: message}
}

// noSignatureMatches reveals nothing of the secret but whether it looks like one.
func noSignatureMatches(secrets []string) *VerificationError {
	end := ". If both are right, the request was not sent by the service."
	for _, secret := range secrets {
		if secret != strings.TrimSpace(secret) || !strings.HasPrefix(secret, "whsec_") {
			end = "; a secret passed here does not start with whsec_ or has whitespace around it."
		}
	}
	return failure(NoSignatureMatches, "no signature in the header matches this body and secret. Check that the body is "+
		"the raw bytes as received, and that the secret belongs to this account and environment and is complete, "+
		"whsec_ included"+end)
}
