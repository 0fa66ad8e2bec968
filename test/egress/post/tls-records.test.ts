import { afterEach, expect, test } from "vitest";
import type { Poster } from "../../../src/egress/post/post.ts";
import { sharedAuthority } from "../../support/certificates.ts";
import { createTestPoster, postRequest } from "../../support/poster.ts";
import { patience } from "../../support/time-limits.ts";
import {
  APPLICATION_DATA,
  HANDSHAKE,
  KEY_UPDATE,
  type RecordsServer,
  type Sealing,
  startRecordsServer,
} from "../../support/tls-records.ts";

let server: RecordsServer;
let poster: Poster;
afterEach(async () => {
  await poster.close();
  await server.close();
});

const AT_ONCE = 200;
const LINE_END = Buffer.from("\n");

function keyUpdate({ record, updateKeys }: Sealing): Buffer {
  const sealed = record(HANDSHAKE, KEY_UPDATE);
  updateKeys();
  return sealed;
}

test.each<[string, (sealing: Sealing, n: number) => Buffer]>([
  ["key updates", keyUpdate],
  [
    "key updates with some data between them",
    (sealing, n) => (n % 20 === 0 ? sealing.record(APPLICATION_DATA, LINE_END) : keyUpdate(sealing)),
  ],
  ["records of one byte", (sealing) => sealing.record(APPLICATION_DATA, LINE_END)],
  ["empty records", (sealing) => sealing.record(APPLICATION_DATA, Buffer.alloc(0))],
])("%s without end are cut off by the transport's bytes, long before the deadline", async (what, make) => {
  const authority = await sharedAuthority();
  const { keyPem: key, certPem: cert } = await authority.issue({ names: ["localhost"] });
  server = await startRecordsServer({
    key,
    cert,
    makeRecords: (sealing) => Buffer.concat(Array.from({ length: AT_ONCE }, (_, n) => make(sealing, n))),
  });
  poster = createTestPoster({ ports: [server.port], caPem: authority.caPem });
  const deadlineMs = patience(20_000);
  const url = new URL(`https://localhost:${server.port}/`);
  const { errorCode, durationMs } = await poster.post({ ...postRequest(url), deadlineMs });
  // Of 32 empty records in one read OpenSSL makes an error itself.
  const code =
    what === "empty records" && errorCode === "tls_protocol" ? errorCode : "response_head_too_large";
  expect(errorCode).toBe(code);
  expect(durationMs).toBeLessThan(deadlineMs / 2);
});
