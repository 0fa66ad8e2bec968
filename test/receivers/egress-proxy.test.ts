import { afterEach, expect, test } from "vitest";
import { explainErrorCode } from "../../src/base/model/error-codes.ts";
import { createProxyConnector } from "../../src/egress/connect/proxy-connector.ts";
import type { ReceiverReport } from "../../src/receivers/receiver-check.ts";
import { createReceiverCheck } from "../../src/receivers/receiver-check.ts";
import { startEgressProxy } from "../support/egress-proxy.ts";
import { egressOf } from "../support/poster.ts";
import { patience } from "../support/time-limits.ts";

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

/** Checks a receiver behind a proxy that answers every CONNECT so. */
async function checkBehind(answer: string): Promise<ReceiverReport> {
  const proxy = await startEgressProxy({ answer: `HTTP/1.1 ${answer}\r\n\r\n` });
  open.push(proxy);
  const check = createReceiverCheck({
    challenges: false,
    createEgress: () =>
      egressOf(
        createProxyConnector({
          proxyUrl: new URL(`http://127.0.0.1:${proxy.port}`),
          connectTimeoutMs: patience(4_000),
        }),
      ),
    deadlineMs: patience(15_000),
  });
  return await check({ url: new URL("https://hooks.localhost/"), secrets: ["whsec_x"], nowMs: Date.now() });
}

test.each([
  ["refuses the target", "407 Request rejected by proxy", "target_refused_by_proxy"],
  ["cannot reach the target", "502 Bad gateway", "connect_failed"],
  ["fails", "500 Internal Server Error", "egress_proxy_failed"],
])("a check says so if the egress proxy %s", async (_how, answer, code) => {
  const { message, remedy } = explainErrorCode(code);
  const { verdict, faults, probes } = await checkBehind(answer);
  expect(verdict).toBe("faulty");
  expect(faults).toEqual([expect.objectContaining({ code: "unreachable", message, remedy })]);
  expect(probes.filter(({ verdict: judged }) => judged === "right")).toEqual([]);
  for (const { got } of probes) expect(got).toContain(code);
});
