import { expect, test } from "vitest";
import { CONNECTION_LIMITS } from "../../src/http/limits.ts";
import { createTestDatabase } from "../support/database.ts";
import { openRaw, rawHead } from "../support/raw-http.ts";
import { startProcess } from "../support/sealpost-process.ts";

test("an API that has refused bodies before they came ends at once when it is asked to", async () => {
  const database = await createTestDatabase();
  const serve = await startProcess("serve", { DATABASE_URL: database.url });
  const port = Number(new URL(serve.url).port);
  for (const line of ["PUT /v1/documents//content", "PUT /nowhere", "POST /v1/analyses"]) {
    const { socket, ended } = await openRaw(port);
    socket.write(rawHead(line, { expect: "100-continue", "content-length": 50_000 }));
    expect(await ended).toMatch(/^HTTP\/1\.1 40[14] /);
  }
  const startedAt = performance.now();
  expect(await serve.stop()).toBe(0);
  expect(performance.now() - startedAt).toBeLessThan(CONNECTION_LIMITS.receiveWithinMs / 2);
  await database.drop();
});
