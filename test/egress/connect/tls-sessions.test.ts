import { once } from "node:events";
import type { TLSSocket } from "node:tls";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  createTargetSecureContext,
  createTlsSessions,
  openTls,
  type TlsSessions,
} from "../../../src/egress/connect/connector.ts";
import { openTcp } from "../../../src/egress/connect/direct-connector.ts";
import { type CertificateAuthority, createCertificateAuthority } from "../../support/certificates.ts";
import { failureOf } from "../failure.ts";
import { startTcpServer, startTlsServer, type TestServer } from "../server.ts";

const MINUTE_MS = 60_000;
let authority: CertificateAuthority;
let server: TestServer;
let sessions: TlsSessions;
let nowMs: number;

beforeEach(async () => {
  authority = await createCertificateAuthority();
  nowMs = 0;
  sessions = createTlsSessions(() => nowMs);
});
afterEach(() => server.close());

async function startReceiver(options: { names?: string[]; port?: number; maxVersion?: "TLSv1.2" } = {}) {
  const { keyPem: key, certPem: cert } = await authority.issue({ names: options.names ?? ["localhost"] });
  const { port = 0, maxVersion = "TLSv1.3" } = options;
  server = await startTlsServer({ key, cert, port, maxVersion });
}

async function connect(host: string): Promise<TLSSocket> {
  const { signal } = new AbortController();
  const tcp = await openTcp({ address: "127.0.0.1", family: 4 }, server.port, signal);
  const secureContext = createTargetSecureContext(authority.caPem);
  return openTls(tcp, { host, port: server.port, secureContext, sessions, signal });
}

/** Connects, waits until the session can have come, and says whether an earlier one was resumed. */
async function isResumed(host = "localhost"): Promise<boolean> {
  const socket = await connect(host);
  const isReused = socket.isSessionReused();
  socket.resume();
  // TLS 1.3 sends it after the handshake, and not again while one is resumed.
  if (socket.getProtocol() === "TLSv1.3" && !isReused) await once(socket, "session");
  socket.destroy();
  return isReused;
}

describe("a session", () => {
  it.each(["TLSv1.3", "TLSv1.2"] as const)("of %s is resumed by the next connection", async (version) => {
    await startReceiver(version === "TLSv1.2" ? { maxVersion: version } : {});
    expect([await isResumed(), await isResumed(), await isResumed()]).toEqual([false, true, true]);
  });

  it("is not resumed for another name of the same server", async () => {
    await startReceiver({ names: ["localhost", "other.example.com"] });
    expect([await isResumed(), await isResumed("other.example.com")]).toEqual([false, false]);
  });

  it("goes back to a verification of the last five minutes, however often it was resumed", async () => {
    await startReceiver();
    expect(await isResumed()).toBe(false);
    nowMs += 4 * MINUTE_MS;
    expect(await isResumed()).toBe(true);
    nowMs += MINUTE_MS - 1;
    expect(await isResumed()).toBe(true);
    nowMs += 1;
    expect(await isResumed()).toBe(false);
  });

  it("is no younger for a ticket that comes on a resumed connection", async () => {
    await startReceiver();
    await isResumed();
    nowMs += 4 * MINUTE_MS;
    const socket = await connect("localhost");
    expect(socket.isSessionReused()).toBe(true);
    // Other servers than Node's send one.
    socket.emit("session", Buffer.alloc(1_000));
    socket.destroy();
    nowMs += MINUTE_MS;
    expect(sessions.recall(`localhost:${server.port}`)).toBeUndefined();
  });

  it("does not keep a server that has changed its certificate from being verified", async () => {
    await startReceiver();
    await isResumed();
    await server.close();
    await startReceiver({ names: ["other.example.com"], port: server.port });
    expect((await failureOf(isResumed())).code).toBe("tls_wrong_name");
  });

  it("is forgotten when a handshake fails", async () => {
    await startReceiver();
    await isResumed();
    const { port } = server;
    expect(sessions.recall(`localhost:${port}`)).toBeDefined();
    await server.close();
    server = await startTcpServer({ port, onConnection: (socket) => socket.end("no TLS here") });
    await failureOf(isResumed());
    expect(sessions.recall(`localhost:${port}`)).toBeUndefined();
  });

  it("of a peer that was not accepted is not kept", async () => {
    await startReceiver({ names: ["other.example.com"], maxVersion: "TLSv1.2" });
    expect((await failureOf(isResumed())).code).toBe("tls_wrong_name");
    expect(sessions.recall(`localhost:${server.port}`)).toBeUndefined();
  });

  it("is kept for so many peers, and up to a size", async () => {
    await startReceiver();
    for (let index = 0; index <= 1_000; index += 1)
      sessions.remember(`peer-${index}`, { session: Buffer.alloc(8_192), verifiedAtMs: 0 });
    expect(sessions.recall("peer-9")).toBeUndefined();
    expect(sessions.recall("peer-10")).toBeDefined();
    sessions.remember("peer-10", { session: Buffer.alloc(8_193), verifiedAtMs: 0 });
    expect(sessions.recall("peer-10")).toBeUndefined();
  });
});
