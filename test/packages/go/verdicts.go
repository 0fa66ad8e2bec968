package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"sealpost.example/receiver"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "|")
		input := receiver.Input{
			Header:    []string{string(decoded(fields[0]))},
			Body:      decoded(fields[1]),
			Now:       time.Unix(whole(fields[2]), 0),
			Tolerance: time.Duration(whole(fields[3])) * time.Second,
		}
		// All headers of the request, one a line.
		if len(fields) > 5 {
			input.Header, input.Headers = nil, http.Header{}
			for _, line := range strings.Split(string(decoded(fields[0])), "\n") {
				name, value, _ := strings.Cut(line, ": ")
				input.Headers.Add(name, value)
			}
		}
		for _, secret := range strings.Split(fields[4], ":")[1:] {
			input.Secrets = append(input.Secrets, string(decoded(secret)))
		}
		fmt.Println(verdict(input))
	}
}

func verdict(input receiver.Input) string {
	challenge, err := receiver.ReadChallenge(input)
	if same := receiver.VerifySignature(input); fmt.Sprint(same) != fmt.Sprint(err) {
		return fmt.Sprintf("both %v and %v", err, same)
	}
	var refused *receiver.VerificationError
	switch {
	case errors.As(err, &refused) && refused.IsMisuse():
		return "error"
	case err != nil:
		return "reject"
	case challenge != "":
		return "answer " + challenge
	default:
		return "accept"
	}
}

func decoded(text string) []byte {
	bytes, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return bytes
}

func whole(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}
