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
	// What was signed before the body, exactly as in the header.
	signedPrefix string
	// Whether the key is what the secret's base64 stands for.
	isStandard bool
	timestamp  time.Time
	// At least one, each 32 bytes.
	signatures [][]byte
}

// parseSignatureHeader is strict: leniency helps forgers.
func parseSignatureHeader(values []string) (signatureHeader, error) {
	var parsed signatureHeader
	value, err := singleHeader(values, SignatureHeader)
	if err != nil {
		return parsed, err
	}
	for _, item := range strings.Split(value, ",") {
		parts := headerItem.FindStringSubmatch(item)
		if parts == nil {
			return parsed, malformed("an item is not name=value", SignatureHeader)
		}
		text := parts[2]
		switch parts[1] {
		case "t":
			// Never guess which one was signed.
			if parsed.signedPrefix != "" {
				return parsed, malformed("it has more than one t", SignatureHeader)
			}
			if !wholeSeconds.MatchString(text) {
				return parsed, malformed("t is not a whole number of seconds in decimal digits", SignatureHeader)
			}
			seconds, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return parsed, malformed("t is not a whole number of seconds in decimal digits", SignatureHeader)
			}
			parsed.signedPrefix, parsed.timestamp = text+".", time.Unix(seconds, 0)
		case "v1":
			if !hexSignature.MatchString(text) {
				return parsed, malformed("a v1 is not 64 lowercase hex digits", SignatureHeader)
			}
			signature, err := hex.DecodeString(text)
			if err != nil {
				return parsed, malformed("a v1 is not 64 lowercase hex digits", SignatureHeader)
			}
			parsed.signatures = append(parsed.signatures, signature)
			if len(parsed.signatures) > signaturesMax {
				return parsed, malformed(fmt.Sprintf("it has more than %d v1", signaturesMax), SignatureHeader)
			}
		default:
			// Other schemes are future ones beside v1: ignored.
		}
	}
	if parsed.signedPrefix == "" {
		return parsed, malformed("it has no t", SignatureHeader)
	}
	if len(parsed.signatures) == 0 {
		return parsed, malformed("it has no v1", SignatureHeader)
	}
	return parsed, nil
}

func singleHeader(values []string, name string) (string, error) {
	if len(values) > 1 {
		return "", malformed("it was sent more than once", name)
	}
	if len(values) == 0 || values[0] == "" {
		return "", failure(HeaderMissing, "the request has no "+strings.ToLower(name)+" header. Pass the header's values "+
			"as received, and check that no proxy in front of the receiver removes it. A request sent without it is not "+
			"from the service.")
	}
	if length := len(values[0]); length > headerBytesMax {
		return "", malformed(fmt.Sprintf("it is %d bytes long; the limit is %d", length, headerBytesMax), name)
	}
	return values[0], nil
}

func malformed(finding string, name string) *VerificationError {
	form := map[string]string{
		SignatureHeader:         "t=<seconds>,v1=<hex>",
		idHeader:                "a message's id",
		timestampHeader:         "Unix time in seconds",
		standardSignatureHeader: "v1,<base64>",
	}[name]
	return failure(HeaderMalformed, "the "+strings.ToLower(name)+" header is not "+form+": "+finding+
		". Pass the header's values unchanged. A request that arrived like this is not from the service.")
}
