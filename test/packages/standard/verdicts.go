package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var sent struct {
			Secret  string
			Body    []byte
			Headers map[string]string
		}
		if err := json.Unmarshal(lines.Bytes(), &sent); err != nil {
			panic(err)
		}
		headers := http.Header{}
		for name, value := range sent.Headers {
			headers.Set(name, value)
		}
		webhook, err := standardwebhooks.NewWebhook(sent.Secret)
		if err != nil {
			panic(err)
		}
		if webhook.Verify(sent.Body, headers) == nil {
			fmt.Println("accept")
		} else {
			fmt.Println("reject")
		}
	}
}
