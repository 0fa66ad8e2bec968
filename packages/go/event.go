package receiver

import (
	"encoding/json"
	"regexp"
	"unicode/utf8"
)

// The names of events.
const (
	AnalysisSucceeded = "analysis.succeeded"
	AnalysisFailed    = "analysis.failed"
)

var statusOfEvent = map[string]string{AnalysisSucceeded: "succeeded", AnalysisFailed: "failed"}

// An Event tells that an analysis has finished.
type Event struct {
	// ID is the delivery's id, the same for every attempt and replay: use it to handle an event once.
	ID string
	// Name is AnalysisSucceeded or AnalysisFailed.
	Name string
	// CreatedAt is ISO 8601, UTC, with milliseconds.
	CreatedAt string
	// AnalysisID is the id in Data.
	AnalysisID string
	// Example is true in test events only: answer them like any other, and do not store them as results.
	Example bool
	// Data is the analysis as GET /v1/analyses/{id} returns it, byte for byte, with numbers that no Go type holds.
	Data json.RawMessage
}

// Its exact form, so that a receiver without a JSON parser recognizes it as surely.
var challengeBody = regexp.MustCompile(`^\{"type":"webhook\.challenge","challenge":"([0-9A-Za-z-]{1,128})"\}$`)

// parseChallenge returns the text to answer; "": the body is no challenge.
func parseChallenge(body []byte) string {
	parts := challengeBody.FindSubmatch(body)
	if parts == nil {
		return ""
	}
	return string(parts[1])
}

func parseEvent(body []byte) (*Event, error) {
	if parseChallenge(body) != "" {
		return nil, failure(BodyNotAnEvent, "the signature is valid, but the body is a challenge, which asks whether this "+
			"receiver wants webhooks. Pass the same input to ReadChallenge first, and answer 200 with the text that it "+
			"returns.")
	}
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, notAnEvent("it is not UTF-8 JSON")
	}
	members := membersOf(body)
	if members == nil {
		return nil, notAnEvent("it is not a JSON object")
	}
	event := &Event{
		ID:        textOf(members["id"]),
		Name:      textOf(members["event"]),
		CreatedAt: textOf(members["created_at"]),
		Data:      members["data"],
	}
	if event.ID == "" {
		return nil, notAnEvent("id is not a non-empty string")
	}
	if event.CreatedAt == "" {
		return nil, notAnEvent("created_at is not a non-empty string")
	}
	status, isKnown := statusOfEvent[event.Name]
	if !isKnown {
		return nil, notAnEvent("event is neither analysis.succeeded nor analysis.failed")
	}
	analysis := membersOf(event.Data)
	event.AnalysisID = textOf(analysis["id"])
	if event.AnalysisID == "" {
		return nil, notAnEvent("data is not an analysis with an id")
	}
	if textOf(analysis["status"]) != status {
		return nil, notAnEvent(`data.status is not "` + status + `", which its event requires`)
	}
	event.Example = string(analysis["example"]) == "true"
	return event, nil
}

// membersOf returns nil for what is no object. A map, not a struct, whose fields would take "ID" for "id".
func membersOf(text []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	return members
}

// textOf returns "" for what is no string.
func textOf(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

func notAnEvent(finding string) *VerificationError {
	return failure(BodyNotAnEvent, "the signature is valid, but the body is not an event known to this version of the "+
		"module: "+finding+". Update the module, or use VerifySignature to check the bytes alone.")
}
