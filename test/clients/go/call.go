// Calls the API with the client that oapi-codegen has generated beside this file.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"

	"github.com/google/uuid"
)

func main() {
	url, key, unknown := os.Args[1], os.Args[2], uuid.MustParse(os.Args[3])
	authorize := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+key)
		return nil
	}
	client := must(NewClientWithResponses(url, WithRequestEditorFn(authorize)))
	limit := 1
	params := &WebhooksDeliveriesListParams{Limit: &limit}
	page := must(client.WebhooksDeliveriesListWithResponse(context.Background(), params)).JSON200
	refused := must(client.WebhooksDeliveriesGetWithResponse(context.Background(), unknown, nil))
	problem := refused.ApplicationproblemJSON404
	delivery := page.Items[0]
	told := []any{page.Total, delivery.AnalysisId, delivery.Status, problem.Status, problem.Code}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		log.Fatal(err)
	}
}

func must[Value any](value Value, err error) Value {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
