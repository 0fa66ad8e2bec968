package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"
)

var wholeSeconds = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)
var challenge = regexp.MustCompile(`^\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}$`)

// VerifyWebhook takes the raw request body, the value of the extract-signature header,
// and two times in seconds: a tolerance of 300, and time.Now().Unix().
func VerifyWebhook(body []byte, header string, secrets []string, tolerance, now int64) (bool, error) {
	if len(secrets) == 0 {
		return false, errors.New("no signing secret was given")
	}
	for _, secret := range secrets {
		if secret == "" {
			return false, errors.New("a signing secret is empty")
		}
	}
	if len(header) > 8192 {
		return false, nil
	}
	var times, signatures []string
	for _, item := range strings.Split(header, ",") {
		if strings.HasPrefix(item, "t=") {
			times = append(times, item[2:])
		} else if strings.HasPrefix(item, "v1=") {
			signatures = append(signatures, item[3:])
		}
	}
	if len(times) != 1 || !wholeSeconds.MatchString(times[0]) {
		return false, nil
	}
	signedAt, _ := strconv.ParseInt(times[0], 10, 64)
	if now-signedAt >= tolerance || signedAt-now >= tolerance {
		return false, nil
	}
	matches := 0
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(times[0] + "."))
		mac.Write(body)
		expected := []byte(hex.EncodeToString(mac.Sum(nil)))
		for _, signature := range signatures {
			if hmac.Equal(expected, []byte(signature)) {
				matches++
			}
		}
	}
	return matches > 0, nil
}

// ChallengeAnswer takes a body that VerifyWebhook accepted. It returns the text to answer with a 200
// if it is a challenge, else "".
func ChallengeAnswer(body []byte) string {
	if match := challenge.FindSubmatch(body); match != nil {
		return string(match[1])
	}
	return ""
}
