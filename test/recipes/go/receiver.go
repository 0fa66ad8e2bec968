package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"sealpost.example/receiver"
)

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "3000"
	}
	http.Handle("/webhooks", receiver.Handler{
		Secrets: []string{os.Getenv("SIGNING_SECRET")},
		// Store the event here, once for each ID. One with event.Example is nobody's result.
		Accept: func(_ context.Context, event *receiver.Event) error {
			fmt.Println("verified", event.ID, event.Name, event.AnalysisID)
			return nil
		},
		OnError: func(_ *http.Request, err error) { fmt.Println("refused", err) },
	})
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on http://localhost:" + port)
	log.Fatal(http.Serve(listener, nil))
}
