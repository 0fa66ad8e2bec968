// Calls the API with the types that openapi-typescript has generated beside this file.
import createClient from "openapi-fetch";
import type { paths } from "./client.ts";

const [url = "", key, unknown = ""] = process.argv.slice(2);
const api = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${key}` } });
const { data: page } = await api.GET("/webhooks/deliveries", { params: { query: { limit: 1 } } });
const path = { delivery_id: unknown };
const { error: problem } = await api.GET("/webhooks/deliveries/{delivery_id}", { params: { path } });
const delivery = page?.items[0];
console.log(
  JSON.stringify([page?.total, delivery?.analysis_id, delivery?.status, problem?.status, problem?.code]),
);
