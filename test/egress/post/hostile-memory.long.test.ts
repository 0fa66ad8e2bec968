import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Poster } from "../../../src/egress/post/post.ts";
import type { HostileBehaviour } from "../../support/hostile-receiver.ts";
import { type HostileReceivers, startHostileReceivers } from "../../support/hostile-receivers.ts";
import { createTestPoster, postRequest } from "../../support/poster.ts";
import { patience } from "../../support/time-limits.ts";

const AT_ONCE = 1_000;
const DEADLINE_MS = 15_000;
// Measured: a thousand silent TLS connections take 100 to 190 MB by themselves, and floods on all of them 50 to 200 MB
// more: a read of 64 KiB each, and room that V8 and malloc take once and keep. None of
// it grows with the length of the answers.
const FLOOD_BYTES_MAX = 350_000_000;
/** What may be left of a flood when it is over and the garbage is collected. */
const LEFT_BYTES_MAX = 20_000_000;

setFlagsFromString("--expose-gc");
const collectGarbage: () => void = runInNewContext("gc");

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
  return peakBytes;
}

function heldBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

it.each<readonly HostileBehaviour[]>([
  ["endless_body"],
  ["gzip_bomb"],
  ["huge_body", "endless_chunks", "endless_header", "informational_flood", "endless_trailer"],
])(
  "a thousand floods at once take bounded memory, and leave nothing: %s",
  async (...behaviours) => {
    const silentBytes = await peakWhilePosting(["silent"]);
    const heldBefore = heldBytes();
    const floodBytes = await peakWhilePosting(behaviours);
    expect(floodBytes - silentBytes).toBeLessThan(FLOOD_BYTES_MAX);
    expect(poster.gauges().openConnections).toBe(poster.gauges().idleConnections);
    await expect.poll(() => heldBytes() - heldBefore).toBeLessThan(LEFT_BYTES_MAX);
  },
  patience(180_000),
);
