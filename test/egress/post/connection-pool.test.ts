import { readdirSync } from "node:fs";
import { connect as connectTls } from "node:tls";

import { afterEach, describe, expect, it } from "vitest";
import type { Connect } from "../../../src/egress/egress.ts";

import { createPoster, type Poster } from "../../../src/egress/post/post.ts";
import { sharedAuthority } from "../../support/certificates.ts";
import { startHostileReceiver } from "../../support/hostile-receiver.ts";
import { createTestPoster, egressOf, postRequest, type TestPosterOptions } from "../../support/poster.ts";
import { type Receiver, type ReceiverOptions, startReceiver } from "../../support/receiver.ts";
import { patience, watchLateness } from "../../support/time-limits.ts";

const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

async function setUp(
  posterOptions: Partial<TestPosterOptions> = {},
  receiverOptions: ReceiverOptions = {},
): Promise<{ receiver: Receiver; poster: Poster }> {
  const receiver = await startReceiver(receiverOptions);
  const poster = createTestPoster({ ports: [receiver.port], caPem: receiver.caPem, ...posterOptions });
  open.push(receiver, poster);
  return { receiver, poster };
}

const manyUrl = (receiver: Receiver, name: string | number) => receiver.url("/", `n${name}.many.localhost`);

describe("a kept connection", () => {
  it("is lent to one POST at a time", async () => {
    const { receiver, poster } = await setUp();
    await Promise.all(Array.from({ length: 5 }, () => poster.post(postRequest(receiver.url()))));
    expect(receiver.connectionsCount).toBe(5);
    await Promise.all(Array.from({ length: 5 }, () => poster.post(postRequest(receiver.url()))));
    expect(receiver.connectionsCount).toBe(5);
    expect(poster.gauges()).toEqual({ inFlight: 0, openConnections: 5, idleConnections: 5, idleOrigins: 1 });
  });

  it("is the one that was used last, so that the others can go", async () => {
    const { receiver, poster } = await setUp();
    await Promise.all(Array.from({ length: 3 }, () => poster.post(postRequest(receiver.url()))));
    for (let n = 0; n < 5; n += 1) await poster.post(postRequest(receiver.url()));
    const used = receiver.requests.slice(3).map((request) => request.connection);
    expect(new Set(used).size).toBe(1);
  });

  it("serves its own origin only", async () => {
    const { receiver, poster } = await setUp();
    await poster.post(postRequest(receiver.url("/", "localhost")));
    await poster.post(postRequest(receiver.url("/", "a.localhost")));
    expect(receiver.connectionsCount).toBe(2);
    expect(poster.gauges().idleOrigins).toBe(2);
  });

  it("that idles out is no reason for distrust", async () => {
    const { receiver, poster } = await setUp({ limits: { idleMs: 50 } });
    await poster.post(postRequest(receiver.url()));
    await expect.poll(() => poster.gauges().openConnections, { interval: 5 }).toBe(0);
    await poster.post(postRequest(receiver.url()));
    expect(poster.gauges().idleConnections).toBe(1);
  });

  it("is ended after the idle time", async () => {
    const { receiver, poster } = await setUp({ limits: { idleMs: 150 } });
    await poster.post(postRequest(receiver.url()));
    const latenessMs = watchLateness();
    const idleSinceMs = performance.now();
    await receiver.waitForNoConnections();
    expect(performance.now() - idleSinceMs).toBeGreaterThan(100);
    expect(performance.now() - idleSinceMs).toBeLessThan(150 + patience(550) + latenessMs());
    const none = { openConnections: 0, idleConnections: 0, idleOrigins: 0 };
    await expect.poll(() => poster.gauges(), { interval: 5 }).toMatchObject(none);
  });

  it("is ended before the receiver's own Keep-Alive hint", async () => {
    const { receiver, poster } = await setUp({}, { answers: [{ headers: { "keep-alive": "timeout=1" } }] });
    await poster.post(postRequest(receiver.url()));
    expect(poster.gauges().idleConnections).toBe(1);
    const latenessMs = watchLateness();
    const idleSinceMs = performance.now();
    await receiver.waitForNoConnections();
    expect(performance.now() - idleSinceMs).toBeLessThan(patience(950) + latenessMs());
  });

  it("is not kept for as long as a receiver's hint would have it", async () => {
    const answers = [{ headers: { "keep-alive": "timeout=600" } }];
    const { receiver, poster } = await setUp({ limits: { idleMs: 150 } }, { answers });
    await poster.post(postRequest(receiver.url()));
    await receiver.waitForNoConnections(1_500);
  });

  it("is not kept when the receiver says close", async () => {
    const { receiver, poster } = await setUp({}, { answers: [{ headers: { connection: "close" } }] });
    await poster.post(postRequest(receiver.url()));
    expect(poster.gauges().idleConnections).toBe(0);
    await poster.post(postRequest(receiver.url()));
    expect(receiver.connectionsCount).toBe(2);
  });

  it("is judged by each answer's own status line", async () => {
    const authority = await sharedAuthority();
    const receiver = await startHostileReceiver("http_2_status_line_later", authority);
    const poster = createTestPoster({ ports: [receiver.port], caPem: authority.caPem });
    open.push(receiver, poster);
    const request = postRequest(new URL(`https://localhost:${receiver.port}/`));
    expect(await poster.post(request)).toMatchObject({ outcome: "succeeded" });
    expect(await poster.post(request)).toMatchObject({ errorCode: "bad_response" });
    expect(receiver.connectionsCount).toBe(1);
  });

  it("is not kept beyond its number of requests", async () => {
    const { receiver, poster } = await setUp({ limits: { requestsPerConnectionMax: 3 } });
    for (let n = 0; n < 7; n += 1) {
      expect((await poster.post(postRequest(receiver.url()))).outcome).toBe("succeeded");
    }
    expect(receiver.connectionsCount).toBe(3);
  });

  it("is not used beyond its age", async () => {
    let agedMs = 0;
    const now = () => performance.now() + agedMs;
    const { receiver, poster } = await setUp({ now, limits: { connectionAgeMs: 60_000 } });
    await poster.post(postRequest(receiver.url()));
    agedMs = 59_000;
    await poster.post(postRequest(receiver.url()));
    expect(receiver.connectionsCount).toBe(1);
    agedMs = 61_000;
    await poster.post(postRequest(receiver.url()));
    expect(receiver.connectionsCount).toBe(2);
  });

  it("is dropped as soon as the receiver closes it", async () => {
    const { receiver, poster } = await setUp();
    await poster.post(postRequest(receiver.url()));
    receiver.dropConnections();
    await expect.poll(() => poster.gauges().openConnections, { interval: 5 }).toBe(0);
    expect((await poster.post(postRequest(receiver.url()))).outcome).toBe("succeeded");
    expect(receiver.connectionsCount).toBe(2);
  });

  it("on which something unexpected waits is not used again, and reads for whom each POST is", async () => {
    const { receiver } = await setUp();
    const payers: string[] = [];
    const connect: Connect = async ({ port }) => {
      const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca: receiver.caPem });
      await new Promise((resolve) => socket.once("secureConnect", resolve));
      // Something has come before the third answer was asked for.
      const allowAnswer = (_: number, payer: string) => payers.push(payer) !== 3;
      return { socket, allowAnswer, remoteAddress: null, timings: { dnsMs: 0, connectMs: 0, tlsMs: 0 } };
    };
    const poster = createPoster({ egress: egressOf(connect), now: () => performance.now() });
    open.push(poster);
    for (const payer of ["a", "b", "c"]) await poster.post({ ...postRequest(receiver.url()), payer });
    expect(payers).toEqual(["a", "b", "c", "c"]);
    expect(receiver.connectionsCount).toBe(2);
    expect(poster.gauges().openConnections).toBe(1);
  });

  it("is judged again at each use: an address that is not public is not used twice", async () => {
    const { receiver } = await setUp();
    // A connector that knows no rules, with a poster for which nothing is lifted.
    const connect: Connect = async ({ port }) => {
      const socket = connectTls({ port, host: "127.0.0.1", servername: "localhost", ca: receiver.caPem });
      await new Promise((resolve) => socket.once("secureConnect", resolve));
      return {
        socket,
        allowAnswer: () => true,
        remoteAddress: "127.0.0.1",
        timings: { dnsMs: 0, connectMs: 0, tlsMs: 0 },
      };
    };
    const poster = createPoster({ egress: egressOf(connect), now: () => performance.now() });
    open.push(poster);
    await poster.post(postRequest(receiver.url()));
    await poster.post(postRequest(receiver.url()));
    expect(receiver.connectionsCount).toBe(2);
    expect(poster.gauges().openConnections).toBe(1);
  });
});

describe("connections that their receiver closes unannounced", () => {
  /** The clock stands: whatever the receiver closes, it does so soon. */
  async function setUpClosing(more: Partial<TestPosterOptions> = {}) {
    const { receiver, poster } = await setUp({ now: () => 0, ...more });
    return {
      ...{ receiver, poster },
      /** Returns how many connections are kept before the receiver closes them. */
      async postAndClose(host?: string) {
        expect((await poster.post(postRequest(receiver.url("/", host)))).outcome).toBe("succeeded");
        const { idleConnections } = poster.gauges();
        receiver.dropConnections();
        await expect.poll(() => poster.gauges().openConnections, { interval: 1 }).toBe(0);
        return idleConnections;
      },
    };
  }

  it("are no longer kept for a while, so that no POST is lost on one", async () => {
    const { receiver, postAndClose } = await setUpClosing();
    expect(await postAndClose()).toBe(1);
    for (let n = 0; n < 50; n += 1) expect(await postAndClose()).toBe(0);
    expect(receiver.connectionsCount).toBe(51);
  });

  it("cost at most one POST for each connection kept before that was known", async () => {
    const authority = await sharedAuthority();
    const receiver = await startHostileReceiver("closes_behind_answer", authority);
    const ports = [receiver.port];
    const poster = createTestPoster({ ports, caPem: authority.caPem, limits: { soonMs: 0 } });
    open.push(receiver, poster);
    const request = postRequest(new URL(`https://localhost:${receiver.port}/`));
    const outcomes: string[] = [];
    for (let n = 0; n < 50; n += 1) outcomes.push((await poster.post(request)).outcome);
    expect(outcomes.filter((outcome) => outcome !== "succeeded").length).toBeLessThanOrEqual(1);
  });

  it("are told by a POST that got no answer on a kept one; it is reported, and never sent again", async () => {
    const served = new Set<number>();
    const { receiver, poster } = await setUp(
      {},
      {
        handler: ({ connection }) => {
          const isSecond = served.has(connection);
          served.add(connection);
          return { hangUp: isSecond };
        },
      },
    );
    await poster.post(postRequest(receiver.url("/1")));
    expect(await poster.post(postRequest(receiver.url("/2")))).toMatchObject({
      outcome: "unreachable",
      errorCode: "connection_closed",
      mayHaveWritten: true,
      timings: { tlsMs: null, firstByteMs: null },
    });
    expect(receiver.requests.map((request) => request.path)).toEqual(["/1", "/2"]);
    await poster.post(postRequest(receiver.url("/3")));
    expect(poster.gauges().idleConnections).toBe(0);
  });

  it("are kept again afterwards: a restart of a good receiver looks the same", async () => {
    let nowMs = 0;
    const { postAndClose } = await setUpClosing({ now: () => nowMs, limits: { distrustMs: 10_000 } });
    expect(await postAndClose()).toBe(1);
    nowMs = 9_000;
    expect(await postAndClose()).toBe(0);
    nowMs = 11_000;
    expect(await postAndClose()).toBe(1);
  });

  it("are remembered for a limited number of origins", async () => {
    const { postAndClose } = await setUpClosing({ limits: { distrustedOriginsMax: 1 } });
    expect([await postAndClose(), await postAndClose()]).toEqual([1, 0]);
    const other = "a.many.localhost";
    expect([await postAndClose(other), await postAndClose(other)]).toEqual([1, 0]);
    expect(await postAndClose(), "forgotten, and so kept again").toBe(1);
  });
});

describe("kept connections in all", () => {
  it("are no more than their limit, and the one that idled longest goes first", async () => {
    const { receiver, poster } = await setUp({ limits: { idleConnectionsMax: 2 } });
    for (const name of ["a", "b", "a", "c"]) await poster.post(postRequest(manyUrl(receiver, name)));
    expect(poster.gauges()).toMatchObject({ openConnections: 2, idleConnections: 2, idleOrigins: 2 });
    const a = await poster.post(postRequest(manyUrl(receiver, "a")));
    const b = await poster.post(postRequest(manyUrl(receiver, "b")));
    expect(a.timings.tlsMs, "a is kept").toBeNull();
    expect(b.timings.tlsMs, "b was evicted").not.toBeNull();
  });

  it("are no more than few to origins that had one POST, but those of busy origins stay", async () => {
    const { receiver, poster } = await setUp({ limits: { idleNewcomersMax: 1 } });
    const handshakes = async (...names: string[]) => {
      const results = [];
      for (const name of names) results.push(await poster.post(postRequest(manyUrl(receiver, name))));
      return results.filter(({ timings }) => timings.tlsMs !== null).length;
    };
    expect(await handshakes("a", "b", "c"), "all are new").toBe(3);
    expect(poster.gauges().idleOrigins, "one newcomer is kept").toBe(1);
    expect(await handshakes("a", "b"), "evicted, and now known").toBe(2);
    expect(await handshakes("a", "b", "a", "b"), "busy origins are kept").toBe(0);
    expect(await handshakes("d", "e", "f", "a", "b"), "newcomers do not drive them out").toBe(3);
  });

  it("are of newcomers again when an origin had no POST for longer than they would be kept", async () => {
    let laterMs = 0;
    const now = () => performance.now() + laterMs;
    const limits = { idleNewcomersMax: 1, idleMs: 10_000 };
    const { receiver, poster } = await setUp({ now, limits });
    const idleOriginsAfter = async (...names: string[]) => {
      for (const name of names) await poster.post(postRequest(manyUrl(receiver, name)));
      return poster.gauges().idleOrigins;
    };
    expect(await idleOriginsAfter("a", "b")).toBe(1);
    laterMs = 9_000;
    expect(await idleOriginsAfter("a", "c"), "a was seen lately, c is new").toBe(2);
    laterMs = 20_000;
    expect(await idleOriginsAfter("d", "b"), "b is new again and drives d out").toBe(2);
  });

  it("are of newcomers when so many other origins had a POST since", async () => {
    const limits = { idleNewcomersMax: 1, seenOriginsMax: 2 };
    const { receiver, poster } = await setUp({ limits });
    for (const name of ["a", "b", "c", "a"]) await poster.post(postRequest(manyUrl(receiver, name)));
    expect(poster.gauges().idleOrigins, "a was forgotten").toBe(1);
    await poster.post(postRequest(manyUrl(receiver, "c")));
    expect(poster.gauges().idleOrigins, "c was not").toBe(2);
  });

  it("hold few descriptors however many hosts there are", async () => {
    const { receiver, poster } = await setUp({}, { records: false });
    await poster.post(postRequest(receiver.url()));
    const before = readdirSync("/proc/self/fd").length;
    let most = 0;
    const hosts = Array.from({ length: 200 }, (_, n) => n).values();
    const inFlight = 16;
    await Promise.all(
      Array.from({ length: inFlight }, async () => {
        for (const n of hosts) {
          expect((await poster.post(postRequest(manyUrl(receiver, n)))).outcome).toBe("succeeded");
          most = Math.max(most, readdirSync("/proc/self/fd").length - before);
        }
      }),
    );
    // Twice, because the receiver is in this process, too.
    expect(most).toBeLessThanOrEqual(2 * (inFlight + 100));
    expect(poster.gauges().openConnections).toBeLessThanOrEqual(80);
  });
});
