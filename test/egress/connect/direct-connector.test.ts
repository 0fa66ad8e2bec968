import { getEventListeners, once } from "node:events";
import { readFileSync } from "node:fs";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { createDirectConnector } from "../../../src/egress/connect/direct-connector.ts";
import { createResolver } from "../../../src/egress/dns/resolver.ts";
import { type Connect, ConnectError, type ConnectErrorCode } from "../../../src/egress/egress.ts";
import { parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";
import { type CertificateAuthority, createCertificateAuthority } from "../../support/certificates.ts";
import { type NameServer, startNameServer } from "../../support/name-server.ts";
import { freePort, HAS_IPV6 } from "../../support/ports.ts";
import { patience, watchLateness } from "../../support/time-limits.ts";
import { failureOf } from "../failure.ts";
import {
  type Listening,
  startBlackHole,
  startTcpServer,
  startTlsServer,
  type TestServer,
} from "../server.ts";

const NAME = "hooks.example.com";
const never = new AbortController().signal;
let authority: CertificateAuthority;
let nameServer: NameServer;
const open: { close(): Promise<unknown> }[] = [];

beforeAll(async () => {
  authority = await createCertificateAuthority();
});
beforeEach(async () => {
  nameServer = await startNameServer();
  open.push(nameServer);
});
afterEach(async () => {
  for (const resource of open.splice(0).reverse()) await resource.close();
});

function opened<T extends { close(): Promise<unknown> }>(resource: T): T {
  open.push(resource);
  return resource;
}

/** A server at 127.0.0.2, and on its port a black hole at 127.0.0.1. */
async function besideBlackHole(start: (listening: Listening) => Promise<TestServer>): Promise<TestServer> {
  const port = await freePort();
  opened(await startBlackHole("127.0.0.1", port));
  return opened(await start({ host: "127.0.0.2", port }));
}

async function startReceiver(
  options: { host?: string; port?: number; names?: string[] } = {},
): Promise<TestServer> {
  const { keyPem: key, certPem: cert } = await authority.issue({
    names: options.names ?? [NAME, "localhost"],
  });
  return opened(await startTlsServer({ ...options, key, cert, ALPNProtocols: ["h2", "http/1.1"] }));
}

function connectorFor(lifted: readonly string[], options: { connectTimeoutMs?: number } = {}): Connect {
  return createDirectConnector({
    resolver: createResolver({
      servers: [nameServer.address],
      timeoutMs: patience(10_000),
      now: () => performance.now(),
    }),
    unsafeAllowedTargets: parseUnsafeAllowedTargets(lifted),
    ca: authority.caPem,
    connectTimeoutMs: options.connectTimeoutMs ?? patience(5_000),
  });
}

/** Connections to a port that the kernel has asked for and nobody has answered (state 02: SYN sent). */
function countUnanswered(port: number): number {
  const rows = readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1);
  const hexPort = port.toString(16).toUpperCase().padStart(4, "0");
  return rows.filter((row) => {
    const [, , remote, state] = row.trim().split(/\s+/);
    return remote?.endsWith(`:${hexPort}`) && state === "02";
  }).length;
}

/** For what the kernel does without an event. */
function untilTrue(condition: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    const look = () => (condition() ? resolve() : setImmediate(look));
    look();
  });
}

describe("a connection", () => {
  it("is verified TLS for HTTP/1.1 to the address that DNS gave, with what each step took", async () => {
    const receiver = await startReceiver();
    nameServer.script(NAME, [["127.0.0.1"]]);
    const connect = connectorFor([`${NAME}:${receiver.port}`]);
    const { socket, remoteAddress, timings } = await connect({ hostname: NAME, port: receiver.port }, never);
    expect(remoteAddress).toBe("127.0.0.1");
    expect(socket.authorized).toBe(true);
    expect(socket.getProtocol()).toBe("TLSv1.3");
    expect(socket.alpnProtocol).toBe("http/1.1");
    expect(socket.servername).toBe(NAME);
    for (const ms of Object.values(timings)) expect(ms).toBeGreaterThan(0);
    socket.destroy();
  });

  it.each([
    ["localhost", "localhost"],
    ["a.localhost", "*.localhost"],
  ])("to %s, allowed unsafely, needs no DNS", async (hostname, lifted) => {
    const receiver = await startReceiver({ names: ["localhost", "a.localhost"] });
    const { socket, remoteAddress } = await connectorFor([`${lifted}:${receiver.port}`])(
      { hostname, port: receiver.port },
      never,
    );
    expect(remoteAddress).toBe("127.0.0.1");
    expect(nameServer.queries).toEqual([]);
    socket.destroy();
  });

  it.each([
    ["no turn", "connect_refused", false],
    ["no place among those who ask", "not_proven", true],
  ])("that finds %s at its second address has failed with %s", async (_, code, isUndecided) => {
    const port = await freePort();
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2"]]);
    const asked: string[] = [];
    const admit = async (address: string) => {
      if (asked.push(address) > 1) throw new ConnectError("not_proven", "Not now.", { isUndecided });
    };
    const connect = connectorFor([`${NAME}:${port}`]);
    await expect(connect({ hostname: NAME, port, admit }, never)).rejects.toMatchObject({ code });
    expect(asked).toHaveLength(2);
  });

  it.for([
    ["127.0.0.1", "127.0.0.1"],
    ["[::1]", "::1"],
  ] as const)(
    "to the address %s checks the certificate against that address and sends no SNI",
    async ([hostname, host], { skip }) => {
      skip(host === "::1" && !HAS_IPV6, "this machine has no IPv6");
      const receiver = await startReceiver({ host, names: [host] });
      const { socket } = await connectorFor([`${hostname}:${receiver.port}`])(
        { hostname, port: receiver.port },
        never,
      );
      expect(socket.authorized).toBe(true);
      expect(socket.servername).toBeFalsy();
      socket.destroy();
      const wrong = await startReceiver({ host, names: ["localhost"] });
      const connecting = connectorFor([`${hostname}:${wrong.port}`])({ hostname, port: wrong.port }, never);
      expect((await failureOf(connecting)).code).toBe("tls_wrong_name");
    },
  );

  it("survives an error of the socket that nobody has begun to listen to", async () => {
    const receiver = await startReceiver();
    const connect = connectorFor([`localhost:${receiver.port}`]);
    const { socket } = await connect({ hostname: "localhost", port: receiver.port }, never);
    const closed = new Promise((resolve) => socket.on("close", resolve));
    socket.destroy(new Error("in nobody's hands"));
    // It is true when the socket ended with an error.
    expect(await closed).toBe(true);
  });

  it("is never taken for one to another address, where each is reset at once", async () => {
    const server = opened(await startTcpServer({ onConnection: (socket) => socket.resetAndDestroy() }));
    const connect = connectorFor([`localhost:${server.port}`]);
    const failures = Array.from({ length: 200 }, () =>
      failureOf(connect({ hostname: "localhost", port: server.port }, never)),
    );
    for (const { code } of await Promise.all(failures))
      expect(["connect_reset", "tls_closed"]).toContain(code);
  });

  it("leaves no listener on the caller's signal, whether it succeeds or fails", async () => {
    const { signal } = new AbortController();
    const receiver = await startReceiver();
    const connect = connectorFor([`localhost:${receiver.port}`]);
    const { socket } = await connect({ hostname: "localhost", port: receiver.port }, signal);
    await failureOf(connect({ hostname: "127.0.0.1", port: receiver.port }, signal));
    expect(getEventListeners(signal, "abort")).toEqual([]);
    socket.destroy();
  });
});

describe("several addresses", () => {
  it("are tried in turn until one takes the connection", async () => {
    const receiver = await startReceiver({ host: "127.0.0.3" });
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2", "127.0.0.3"]]);
    const connect = connectorFor([`${NAME}:${receiver.port}`]);
    const { socket, remoteAddress } = await connect({ hostname: NAME, port: receiver.port }, never);
    expect(remoteAddress).toBe("127.0.0.3");
    socket.destroy();
  });

  it.runIf(HAS_IPV6)("take turns by family (if there is IPv6)", async () => {
    const receiver = await startReceiver({ host: "::1" });
    // Four are tried: the IPv6 address comes fourth at the latest, though DNS names it last.
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5", "::1"]]);
    const connect = connectorFor([`${NAME}:${receiver.port}`]);
    const { socket, remoteAddress } = await connect({ hostname: NAME, port: receiver.port }, never);
    expect(remoteAddress).toBe("::1");
    socket.destroy();
  });

  it("share the time, so that a silent one leaves enough for the next", async () => {
    const receiver = await besideBlackHole(startReceiver);
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2"]]);
    const connectTimeoutMs = patience(3_000);
    const connect = connectorFor([`${NAME}:${receiver.port}`], { connectTimeoutMs });
    const latenessMs = watchLateness();
    const { socket, remoteAddress, timings } = await connect({ hostname: NAME, port: receiver.port }, never);
    expect(remoteAddress).toBe("127.0.0.2");
    expect(timings.connectMs).toBeGreaterThan(1_000);
    expect(timings.connectMs).toBeLessThan(connectTimeoutMs / 2 + patience(500) + latenessMs());
    socket.destroy();
  });

  it("are tried up to four times, and the first failure is told, with its address", async () => {
    const receiver = await startReceiver({ host: "127.0.0.5" });
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]]);
    const connect = connectorFor([`${NAME}:${receiver.port}`]);
    const error = await failureOf(connect({ hostname: NAME, port: receiver.port }, never));
    expect(error.code).toBe("connect_refused");
    expect(error.progress).toMatchObject({
      remoteAddress: "127.0.0.1",
      timings: { dnsMs: expect.any(Number), connectMs: null, tlsMs: null },
    });
    expect(receiver.sockets).toHaveLength(0);
  });

  // The kernel has no route for TCP to a multicast address, and sends nothing.
  it("tell of a refusal rather than of a missing route, unless that is all there is", async () => {
    const port = await freePort();
    nameServer.script(NAME, [["224.0.0.1", "127.0.0.1"]]);
    nameServer.script("nowhere.example.com", [["224.0.0.1"]]);
    const connect = connectorFor([`${NAME}:${port}`, `nowhere.example.com:${port}`]);
    const refused = await failureOf(connect({ hostname: NAME, port }, never));
    expect([refused.code, refused.progress?.remoteAddress]).toEqual(["connect_refused", "127.0.0.1"]);
    const nowhere = await failureOf(connect({ hostname: "nowhere.example.com", port }, never));
    expect([nowhere.code, nowhere.progress?.remoteAddress]).toEqual(["host_unreachable", "224.0.0.1"]);
  });
});

describe("connectTimeoutMs", () => {
  /** But for the machine's share of it. */
  async function durationOf(connecting: Promise<unknown>): Promise<{ code: string; ms: number }> {
    const latenessMs = watchLateness();
    const startedAt = performance.now();
    const { code } = await failureOf(connecting);
    return { code, ms: performance.now() - startedAt - latenessMs() };
  }

  it("ends a wait for DNS", async () => {
    nameServer.script(NAME, ["drop"]);
    const connect = connectorFor([], { connectTimeoutMs: patience(300) });
    const { code, ms } = await durationOf(connect({ hostname: NAME, port: 443 }, never));
    expect(code).toBe("dns_timeout");
    expect(ms).toBeLessThan(patience(700));
  });

  const late = () => new Promise<void>((resolve) => setTimeout(resolve, patience(400)));
  it.each([
    ["TCP", "connect_timeout", startBlackHole, undefined],
    ["a TLS handshake that never finishes", "tls_timeout", startTcpServer, undefined],
    ["its turn, which is no failure", "not_proven", startTcpServer, late],
  ])("ends a wait for %s", async (_, expected, start, admit) => {
    const { port } = opened(await start());
    const connect = connectorFor([`localhost:${port}`], { connectTimeoutMs: patience(300) });
    const { code, ms } = await durationOf(connect({ hostname: "localhost", port, admit }, never));
    expect(code).toBe(expected);
    expect(ms).toBeLessThan(patience(700));
  });

  it("counts all steps together", async () => {
    const receiver = await besideBlackHole(startTcpServer);
    nameServer.script(NAME, [["127.0.0.1", "127.0.0.2"]], ["A"]);
    nameServer.script(NAME, ["drop"], ["AAAA"]);
    const connectTimeoutMs = patience(2_000);
    const connect = connectorFor([`${NAME}:${receiver.port}`], { connectTimeoutMs });
    const latenessMs = watchLateness();
    const startedAt = performance.now();
    const error = await failureOf(connect({ hostname: NAME, port: receiver.port }, never));
    const ms = performance.now() - startedAt;
    expect(error.code).toBe("tls_timeout");
    expect(error.progress?.timings).toEqual({
      dnsMs: expect.any(Number),
      connectMs: expect.any(Number),
      tlsMs: null,
    });
    expect(ms).toBeGreaterThan(connectTimeoutMs - 100);
    expect(ms).toBeLessThan(connectTimeoutMs + patience(500) + latenessMs());
  });

  it("lets 200 connections that wait for silent name servers delay no other", async () => {
    const receiver = await startReceiver();
    const connect = connectorFor([`localhost:${receiver.port}`, `${NAME}:${receiver.port}`], {
      connectTimeoutMs: patience(1_500),
    });
    const failing: Promise<{ code: string }>[] = [];
    for (let index = 0; index < 200; index += 1) {
      nameServer.script(`dead-${index}.example.com`, ["drop"]);
      failing.push(failureOf(connect({ hostname: `dead-${index}.example.com`, port: 443 }, never)));
      await nameServer.waitForQueries(`dead-${index}.example.com`, 1);
    }
    nameServer.script(NAME, [["127.0.0.1"]]);
    const latenessMs = watchLateness();
    const startedAt = performance.now();
    const { socket } = await connect({ hostname: NAME, port: receiver.port }, never);
    expect(performance.now() - startedAt).toBeLessThan(patience(250) + latenessMs());
    socket.destroy();
    expect(new Set((await Promise.all(failing)).map((error) => error.code))).toEqual(
      new Set(["dns_timeout"]),
    );
  });
});

describe("an abort", () => {
  async function expectPromptAbort(
    connecting: Promise<unknown>,
    controller: AbortController,
    code: ConnectErrorCode,
  ): Promise<void> {
    const latenessMs = watchLateness();
    const abortedAt = performance.now();
    controller.abort();
    const error = await failureOf(connecting);
    expect(performance.now() - abortedAt).toBeLessThan(patience(100) + latenessMs());
    expect(error.code).toBe(code);
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
  }

  it("before the start makes no query and no connection", async () => {
    const server = opened(await startTcpServer());
    const connect = connectorFor([`localhost:${server.port}`]);
    for (const hostname of ["localhost", NAME]) {
      const error = await failureOf(connect({ hostname, port: server.port }, AbortSignal.abort()));
      expect(error.code).toBe("dns_timeout");
    }
    // What comes after it shows that nothing came before.
    await failureOf(connect({ hostname: "later.example.com", port: server.port }, never));
    expect(new Set(nameServer.queries.map((query) => query.name))).toEqual(new Set(["later.example.com"]));
    expect(server.sockets).toEqual([]);
  });

  it("ends the wait for DNS at once", async () => {
    nameServer.script(NAME, ["drop"]);
    const controller = new AbortController();
    const connecting = connectorFor([])({ hostname: NAME, port: 443 }, controller.signal);
    await nameServer.waitForQueries(NAME, 1);
    await expectPromptAbort(connecting, controller, "dns_timeout");
  });

  it("ends the wait for TCP at once, and no address is tried after it", async () => {
    const server = await besideBlackHole(startTcpServer);
    nameServer.script(NAME, [["127.0.0.3", "127.0.0.1", "127.0.0.2"]]);
    const controller = new AbortController();
    const connecting = connectorFor([`${NAME}:${server.port}`])(
      { hostname: NAME, port: server.port },
      controller.signal,
    );
    await untilTrue(() => countUnanswered(server.port) === 1);
    await expectPromptAbort(connecting, controller, "connect_timeout");
    await untilTrue(() => countUnanswered(server.port) === 0);
    expect(server.sockets).toEqual([]);
  });

  it("ends a TLS handshake at once, and the peer sees the end", async () => {
    const server = opened(await startTcpServer());
    const controller = new AbortController();
    const accepted = server.nextConnection();
    const connecting = connectorFor([`localhost:${server.port}`])(
      { hostname: "localhost", port: server.port },
      controller.signal,
    );
    const socket = await accepted;
    await once(socket, "data");
    const ended = once(socket, "close");
    await expectPromptAbort(connecting, controller, "tls_timeout");
    await ended;
  });

  it("after the connection is made leaves it to its owner", async () => {
    const receiver = await startReceiver();
    const controller = new AbortController();
    const connect = connectorFor([`localhost:${receiver.port}`]);
    const { socket } = await connect({ hostname: "localhost", port: receiver.port }, controller.signal);
    controller.abort();
    expect(socket.destroyed).toBe(false);
    socket.destroy();
  });
});
