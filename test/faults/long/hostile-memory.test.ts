import { afterAll, beforeAll, expect, it } from "vitest";
import type { Poster } from "../../../src/dispatch/post.ts";
import type { HostileBehaviour } from "../../support/hostile-receiver.ts";
import { type HostileReceivers, startHostileReceivers } from "../../support/hostile-receivers.ts";
import { createTestPoster, postRequest } from "../../support/poster.ts";

const AT_ONCE = 1_000;
const DEADLINE_MS = 15_000;
// Measured: a thousand silent TLS connections take 100 to 190 MB by themselves, floods on all of them 50 to 130 MB more,
// half of it garbage that V8 lets lie. Reading on until the deadline would take gigabytes.
const FLOOD_BYTES_MAX = 250_000_000;
/** What a second flood may take beyond the first: nothing of it stays, but the measure is a rough one. */
const REPEAT_BYTES_MAX = 60_000_000;

let receivers: HostileReceivers;
let poster: Poster;

beforeAll(async () => {
  receivers = await startHostileReceivers();
  poster = createTestPoster({
    ports: Object.values(receivers.ports),
    caPem: receivers.caPem,
    connectTimeoutMs: DEADLINE_MS,
  });
});

afterAll(async () => {
  await poster.close();
  await receivers.close();
});

/** The most memory that the process had while it POSTed to the receivers, all at once. */
async function peakWhilePosting(behaviours: readonly HostileBehaviour[]): Promise<number> {
  let peakBytes = 0;
  const timer = setInterval(() => {
    peakBytes = Math.max(peakBytes, process.memoryUsage.rss());
  }, 5);
  const urls = Array.from({ length: AT_ONCE }, (_, n) =>
    receivers.url(behaviours[n % behaviours.length] ?? "silent"),
  );
  const request = (url: URL) => postRequest(url, { deadlineMs: DEADLINE_MS });
  const results = await Promise.all(urls.map((url) => poster.post(request(url))));
  clearInterval(timer);
  expect(results.filter((result) => result.errorCode === "unexpected_failure")).toEqual([]);
  expect(Math.max(...results.map((result) => result.durationMs))).toBeLessThan(DEADLINE_MS + 2_000);
  return peakBytes;
}

it.each<readonly HostileBehaviour[]>([
  ["endless_body"],
  ["gzip_bomb"],
  ["huge_body", "endless_chunks", "endless_header", "informational_flood", "endless_trailer"],
])(
  "a thousand floods at once take bounded memory, and give it back: %s",
  async (...behaviours) => {
    const silentBytes = await peakWhilePosting(["silent"]);
    const firstBytes = await peakWhilePosting(behaviours);
    expect(firstBytes - silentBytes).toBeLessThan(FLOOD_BYTES_MAX);
    const againBytes = await peakWhilePosting(behaviours);
    expect(againBytes - firstBytes).toBeLessThan(REPEAT_BYTES_MAX);
  },
  180_000,
);
