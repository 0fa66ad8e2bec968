package receiver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks, which an endpoint may ask for beside the service's own.
const (
	idHeader                = "Webhook-Id"
	timestampHeader         = "Webhook-Timestamp"
	standardSignatureHeader = "Webhook-Signature"
)

// Of a key, by the specification.
const (
	keyBytesMin = 24
	keyBytesMax = 64
)

var (
	standardSecret = regexp.MustCompile(`^(?:whsec_)?([A-Za-z0-9+/]+)={0,2}$`)
	// A full stop would let one text be read as two different messages.
	standardID        = regexp.MustCompile(`^[!-\-/-~]{1,256}$`)
	standardSignature = regexp.MustCompile(`^v1,([A-Za-z0-9+/]{43})=$`)
)

// standardKey is what the base64 after whsec_ stands for. nil: it is no secret of Standard Webhooks.
func standardKey(secret string) []byte {
	parts := standardSecret.FindStringSubmatch(secret)
	if parts == nil {
		return nil
	}
	key, err := base64.RawStdEncoding.DecodeString(parts[1])
	if err != nil || len(key) < keyBytesMin || len(key) > keyBytesMax {
		return nil
	}
	return key
}

// parseHeaders takes the service's own signature if there is one, else that of Standard Webhooks.
func parseHeaders(headers http.Header) (signatureHeader, error) {
	own, signature := headers.Values(SignatureHeader), headers.Values(standardSignatureHeader)
	if strings.Join(own, "") != "" || strings.Join(signature, "") == "" {
		return parseSignatureHeader(own)
	}
	parsed := signatureHeader{isStandard: true}
	id, err := singleHeader(headers.Values(idHeader), idHeader)
	if err != nil {
		return parsed, err
	}
	timestampText, err := singleHeader(headers.Values(timestampHeader), timestampHeader)
	if err != nil {
		return parsed, err
	}
	text, err := singleHeader(signature, standardSignatureHeader)
	if err != nil {
		return parsed, err
	}
	seconds, err := strconv.ParseInt(timestampText, 10, 64)
	if err != nil || !wholeSeconds.MatchString(timestampText) {
		return parsed, malformed("it is not in decimal digits", timestampHeader)
	}
	if !standardID.MatchString(id) {
		return parsed, malformed("it is not 1 to 256 visible characters without a full stop", idHeader)
	}
	parsed.signedPrefix, parsed.timestamp = id+"."+timestampText+".", time.Unix(seconds, 0)
	for _, item := range strings.Split(text, " ") {
		// Other versions are not this scheme's.
		if !strings.HasPrefix(item, "v1,") {
			continue
		}
		parts := standardSignature.FindStringSubmatch(item)
		if parts == nil {
			return parsed, malformed("a v1 is not the base64 of 32 bytes", standardSignatureHeader)
		}
		signature, err := base64.RawStdEncoding.DecodeString(parts[1])
		if err != nil {
			return parsed, malformed("a v1 is not the base64 of 32 bytes", standardSignatureHeader)
		}
		parsed.signatures = append(parsed.signatures, signature)
		if len(parsed.signatures) > signaturesMax {
			return parsed, malformed(fmt.Sprintf("it has more than %d v1", signaturesMax), standardSignatureHeader)
		}
	}
	if len(parsed.signatures) == 0 {
		return parsed, malformed("it has no v1", standardSignatureHeader)
	}
	return parsed, nil
}
