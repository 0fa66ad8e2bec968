// A baseline: the least that an HTTP service must do to keep an analysis. No keys, no checks, no limits, no delivery.
import type { AddressInfo } from "node:net";
import fastify from "fastify";
import pg from "pg";
import { answerQuestions } from "./answering.ts";
import { plainInsert } from "./publish-calls.ts";

export type BareFastify = { readonly url: string };

const { databaseUrl } = JSON.parse(process.env.BENCH_INPUT ?? "") as { databaseUrl: string };
const pool = new pg.Pool({ connectionString: databaseUrl, application_name: "bare fastify" });
pool.on("error", () => undefined);

const app = fastify();
app.post<{ Body: { analysis: { id: string } } }>("/v1/analyses", async (request, reply) => {
  const { analysis } = request.body;
  await pool.query(plainInsert(analysis.id, JSON.stringify(analysis)));
  return reply.code(202).send({ analysis_id: analysis.id });
});
await app.listen({ host: "127.0.0.1", port: 0 });

answerQuestions({
  address: (): BareFastify => ({ url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}` }),
});
