// Package receiver verifies Sealpost webhooks: the raw bytes and the signature header in, a typed event out.
//
// Handler is all that a receiver with net/http needs. With any other server, pass what it got to ReadChallenge and then
// to VerifyWebhook. Whatever is wrong is a *VerificationError, whose message says how to fix it.
package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// ToleranceDefault is how far a timestamp may be from now, either way.
const ToleranceDefault = 300 * time.Second

// The year 5138 in seconds: anything above is in milliseconds by mistake.
const nowSecondsMax = 100_000_000_000

// An Input is what a receiver got, and what it knows.
type Input struct {
	// Body is the raw request body, before any parser has touched it.
	Body []byte
	// Header has the header's values as they arrived: request.Header.Values(SignatureHeader).
	Header []string
	// Headers has all headers of the request, in place of Header: where they have no extract-signature, those of Standard
	// Webhooks count.
	Headers http.Header
	// Secrets has the signing secret or, during a rotation, the new and the old one. An empty one is refused.
	Secrets []string
	// Tolerance refuses timestamps this far or further from now. 0: ToleranceDefault.
	Tolerance time.Duration
	// Now is the time. Zero: the system's clock.
	Now time.Time
}

// VerifySignature returns nil if the bytes were signed with one of the secrets, less than the tolerance away from now;
// otherwise a *VerificationError with any code but BodyNotAnEvent.
func VerifySignature(input Input) error {
	// The receiver's own settings first, so that a mistake shows on the first request of any kind.
	if err := checkSecrets(input.Secrets); err != nil {
		return err
	}
	tolerance, now, err := clockOf(input)
	if err != nil {
		return err
	}
	header, err := headerOf(input)
	if err != nil {
		return err
	}
	if err := checkTimestamp(header.timestamp, tolerance, now); err != nil {
		return err
	}
	matches := 0
	for _, secret := range input.Secrets {
		key := []byte(secret)
		if header.isStandard {
			key = standardKey(secret)
		}
		if key == nil {
			continue
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(header.signedPrefix))
		mac.Write(input.Body)
		expected := mac.Sum(nil)
		// Compare every pair, so that timing reveals neither which one matched nor how closely.
		for _, signature := range header.signatures {
			if hmac.Equal(expected, signature) {
				matches++
			}
		}
	}
	if matches == 0 {
		return noSignatureMatches(input.Secrets)
	}
	return nil
}

func headerOf(input Input) (signatureHeader, error) {
	if input.Headers != nil {
		return parseHeaders(input.Headers)
	}
	return parseSignatureHeader(input.Header)
}

// VerifyWebhook verifies a delivery as VerifySignature does, and returns its event. The error is a *VerificationError:
// answer with its StatusCode.
func VerifyWebhook(input Input) (*Event, error) {
	if err := VerifySignature(input); err != nil {
		return nil, err
	}
	return parseEvent(input.Body)
}

// ReadChallenge verifies a request as VerifyWebhook does and, if it is a challenge, returns the text to answer with a
// 200: a service may ask whether a receiver wants webhooks before it sends the first. Without an error, "" means that
// it is no challenge, so call VerifyWebhook. The error is never BodyNotAnEvent.
func ReadChallenge(input Input) (string, error) {
	if err := VerifySignature(input); err != nil {
		return "", err
	}
	return parseChallenge(input.Body), nil
}

func checkSecrets(secrets []string) error {
	if len(secrets) == 0 {
		return failure(SecretMissing, "no signing secret was passed. Check that it is set in your configuration, and pass "+
			"it in Secrets: one, or two during a rotation.")
	}
	for _, secret := range secrets {
		// HMAC pads its key with zero bytes, so a key of zero bytes equals the empty key.
		if strings.TrimFunc(secret, isBlank) == "" {
			return failure(SecretEmpty, "a signing secret is empty, so anyone could sign with it. Check that the "+
				"configuration it comes from is set.")
		}
	}
	return nil
}

func isBlank(char rune) bool {
	return char == 0 || char == '\ufeff' || unicode.IsSpace(char)
}

func clockOf(input Input) (tolerance time.Duration, now time.Time, err error) {
	tolerance, now = input.Tolerance, input.Now
	if tolerance == 0 {
		tolerance = ToleranceDefault
	}
	if now.IsZero() {
		now = time.Unix(time.Now().Unix(), 0)
	}
	if tolerance < 0 {
		return 0, now, failure(ToleranceInvalid, "Tolerance must be positive. Leave it out for 300 seconds.")
	}
	if seconds := now.Unix(); seconds < 0 || seconds >= nowSecondsMax {
		return 0, now, failure(ClockInvalid, "Now is not a time at which webhooks are sent: was time.Unix given "+
			"milliseconds? Leave it out for the system's clock.")
	}
	return tolerance, now, nil
}

// checkTimestamp: the tolerance is already too far. Two differences, for the negative of the furthest is itself.
func checkTimestamp(timestamp time.Time, tolerance time.Duration, now time.Time) error {
	if age := now.Sub(timestamp); age >= tolerance {
		return failure(TimestampTooOld, fmt.Sprintf("the delivery was signed %.0f s ago; %v s or more is refused to "+
			"prevent replay attacks. If this happens to fresh deliveries, correct the receiver's clock (NTP), and "+
			"verify before the request waits in a queue.", age.Seconds(), tolerance.Seconds()))
	}
	if ahead := timestamp.Sub(now); ahead >= tolerance {
		return failure(TimestampAhead, fmt.Sprintf("the delivery's timestamp is %.0f s ahead of the receiver's clock; "+
			"%v s or more is refused. Correct the receiver's clock (NTP).", ahead.Seconds(), tolerance.Seconds()))
	}
	return nil
}
