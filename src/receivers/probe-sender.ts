import type { Poster, PostResult } from "../egress/post/post.ts";
import { webhookHeaders } from "../webhook/headers.ts";
import type { Probe, ProbePost } from "./probes.ts";

/** The outcome of a probe's POST, as far as a verdict needs it. */
export type ProbeAnswer = Pick<PostResult, "statusCode" | "errorCode" | "durationMs" | "responseHeaders">;

/** A probe with the responses to its POSTs: fewer than POSTs if time ran out. */
export type Probed<Sent = Probe> = { readonly probe: Sent; readonly answers: readonly ProbeAnswer[] };

type Posts = { readonly posts: readonly ProbePost[] };

export type ProbingOptions = {
  readonly url: URL;
  readonly post: Poster["post"];
  /** For each POST. */
  readonly deadlineMs: number;
  /** For all together. */
  readonly limitMs: number;
  /** Monotonic milliseconds. */
  readonly now: () => number;
};

/** Beside twice the previous response time: with less, a POST could fail for lack of time. */
const SPARE_MS = 2_000;

/** Sends all probes side by side; the POSTs of one go out one after the other. */
export async function sendProbes<Sent extends Posts>(
  probes: readonly Sent[],
  options: ProbingOptions,
): Promise<readonly Probed<Sent>[]> {
  const endsAtMs = options.now() + options.limitMs;
  return await Promise.all(probes.map((probe) => sendProbe(probe, endsAtMs, options)));
}

async function sendProbe<Sent extends Posts>(
  probe: Sent,
  endsAtMs: number,
  { url, post, deadlineMs, now }: ProbingOptions,
): Promise<Probed<Sent>> {
  const answers: ProbeAnswer[] = [];
  for (const { body, header: signature } of probe.posts) {
    const leftMs = endsAtMs - now();
    const before = answers.at(-1);
    if (before !== undefined && leftMs < 2 * before.durationMs + SPARE_MS) break;
    const headers = webhookHeaders({ signature, traceparent: null, isProbe: true });
    answers.push(await post({ url, headers, body, deadlineMs: Math.min(deadlineMs, leftMs) }));
  }
  return { probe, answers };
}
