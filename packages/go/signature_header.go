package receiver

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader is the request header that carries t=<Unix seconds>,v1=<hex>[,v1=<hex>].
const SignatureHeader = "Extract-Signature"

const (
	// Two signatures take 150 characters; the rest is room for future schemes.
	headerBytesMax = 8_192
	// A rotation needs two.
	signaturesMax = 16
)

var (
	headerItem = regexp.MustCompile(`^([a-z0-9_]+)=([!-+\--~]*)$`)
	// One spelling per number: no sign, no leading zeros, nothing beyond 2^53.
	wholeSeconds = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)
	hexSignature = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

type signatureHeader struct {
	// Exactly as in the header, because this text was signed.
	timestampText string
	timestamp     time.Time
	// At least one, each 32 bytes.
	signatures [][]byte
}

// parseSignatureHeader is strict: leniency helps forgers.
func parseSignatureHeader(values []string) (signatureHeader, error) {
	var parsed signatureHeader
	if len(values) > 1 {
		return parsed, malformed("it was sent more than once")
	}
	if len(values) == 0 || values[0] == "" {
		return parsed, failure(HeaderMissing, "the request has no extract-signature header. Pass the header's values as "+
			"received, and check that no proxy in front of the receiver removes it. A request sent without it is not "+
			"from the service.")
	}
	if length := len(values[0]); length > headerBytesMax {
		return parsed, malformed(fmt.Sprintf("it is %d bytes long; the limit is %d", length, headerBytesMax))
	}
	for _, item := range strings.Split(values[0], ",") {
		parts := headerItem.FindStringSubmatch(item)
		if parts == nil {
			return parsed, malformed("an item is not name=value")
		}
		text := parts[2]
		switch parts[1] {
		case "t":
			// Never guess which one was signed.
			if parsed.timestampText != "" {
				return parsed, malformed("it has more than one t")
			}
			if !wholeSeconds.MatchString(text) {
				return parsed, malformed("t is not a whole number of seconds in decimal digits")
			}
			seconds, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return parsed, malformed("t is not a whole number of seconds in decimal digits")
			}
			parsed.timestampText, parsed.timestamp = text, time.Unix(seconds, 0)
		case "v1":
			if !hexSignature.MatchString(text) {
				return parsed, malformed("a v1 is not 64 lowercase hex digits")
			}
			signature, err := hex.DecodeString(text)
			if err != nil {
				return parsed, malformed("a v1 is not 64 lowercase hex digits")
			}
			parsed.signatures = append(parsed.signatures, signature)
			if len(parsed.signatures) > signaturesMax {
				return parsed, malformed(fmt.Sprintf("it has more than %d v1", signaturesMax))
			}
		default:
			// Other schemes are future ones beside v1: ignored.
		}
	}
	if parsed.timestampText == "" {
		return parsed, malformed("it has no t")
	}
	if len(parsed.signatures) == 0 {
		return parsed, malformed("it has no v1")
	}
	return parsed, nil
}

func malformed(finding string) *VerificationError {
	return failure(HeaderMalformed, "the extract-signature header is not t=<seconds>,v1=<hex>: "+finding+
		". Pass the header's values unchanged. A request that arrived like this is not from the service.")
}
