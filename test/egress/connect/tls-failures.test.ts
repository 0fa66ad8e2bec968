import "reflect-metadata"; // @peculiar/x509 needs it loaded first.

import { KeyObject } from "node:crypto";
import type { Socket } from "node:net";
import * as x509 from "@peculiar/x509";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { DAY_MS } from "../../../src/base/model/time.ts";
import {
  createTargetSecureContext,
  createTlsSessions,
  openTls,
} from "../../../src/egress/connect/connector.ts";
import { createDirectConnector, openTcp } from "../../../src/egress/connect/direct-connector.ts";
import { guardReading, ReadingTurns } from "../../../src/egress/connect/reading.ts";
import { createResolver } from "../../../src/egress/dns/resolver.ts";
import { parseUnsafeAllowedTargets } from "../../../src/egress/rules/host.ts";
import {
  type CertificateAuthority,
  createCertificateAuthority,
  type IssuedCertificate,
} from "../../support/certificates.ts";
import { patience } from "../../support/time-limits.ts";
import { failureOf } from "../failure.ts";
import { startTcpServer, startTlsServer, type TestServer } from "../server.ts";

const names = ["localhost"];
const daysFromNow = (days: number) => new Date(Date.now() + days * DAY_MS);

let authority: CertificateAuthority;
let stranger: CertificateAuthority;
let server: TestServer | null = null;

beforeAll(async () => {
  authority = await createCertificateAuthority();
  stranger = await createCertificateAuthority("Somebody else's authority");
});
afterEach(async () => {
  await server?.close();
  server = null;
});

/** Finite-field Diffie-Hellman needs RSA, which our authorities do not issue. */
async function selfSignedRsa() {
  const algorithm = { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" };
  const size = { modulusLength: 2048, publicExponent: new Uint8Array([1, 0, 1]) };
  const keys = await crypto.subtle.generateKey({ ...algorithm, ...size }, true, ["sign", "verify"]);
  const signed = { name: "CN=localhost", keys, signingAlgorithm: algorithm };
  const certificate = await x509.X509CertificateGenerator.createSelfSigned(signed);
  const key = KeyObject.from(keys.privateKey).export({ type: "pkcs8", format: "pem" });
  return { key, cert: certificate.toString("pem") };
}

type Wish = { ca?: string | null; payer?: string; connectTimeoutMs?: number };

async function connectTo(
  started: TestServer,
  { ca = authority.caPem, payer, connectTimeoutMs = patience(2_000) }: Wish = {},
) {
  server = started;
  const connect = createDirectConnector({
    resolver: createResolver({
      servers: ["127.0.0.1:1"],
      timeoutMs: patience(1_000),
      now: () => performance.now(),
    }),
    unsafeAllowedTargets: parseUnsafeAllowedTargets([`localhost:${started.port}`]),
    ca: ca ?? undefined,
    connectTimeoutMs,
  });
  return connect({ hostname: "localhost", port: started.port, payer }, new AbortController().signal);
}

const withCertificate = ({ keyPem: key, certPem: cert }: IssuedCertificate) => startTlsServer({ key, cert });

describe("a handshake", () => {
  it("in which more comes than any usual chain has is ended before anything of it is verified", async () => {
    const { keyPem: key, certPem: cert } = await authority.issue({ names });
    const long = await startTlsServer({ key, cert: `${cert}\n${`${authority.caPem}\n`.repeat(100)}` });
    expect(await failureOf(connectTo(long))).toMatchObject({
      code: "tls_protocol",
      cause: { code: "ERR_HANDSHAKE_TOO_LARGE" },
    });
  });

  it("that never gets further is ended once as much has come", async () => {
    const helloRequests = Buffer.from("160303000400000000".repeat(100), "hex");
    const onConnection = (socket: Socket) => {
      const more = () => void (socket.writable && socket.write(helloRequests, more));
      socket.on("error", () => undefined);
      socket.once("data", more);
    };
    const flood = await startTcpServer({ onConnection });
    expect(await failureOf(connectTo(flood))).toMatchObject({ code: "tls_protocol" });
  });

  it("that fails over and over is its account's alone", async () => {
    const [{ keyPem: key, certPem: cert }, good] = await Promise.all([
      stranger.issue({ names }),
      authority.issue({ names }),
    ]);
    const untrusted = await startTlsServer({ key, cert });
    const trusted = await startTlsServer({ key: good.keyPem, cert: good.certPem });
    const startedAtMs = performance.now();
    const failures = Array.from({ length: 100 }, () =>
      failureOf(connectTo(untrusted, { payer: "stranger's", connectTimeoutMs: patience(15_000) })),
    );
    const { socket } = await connectTo(trusted, { payer: "another's" });
    socket.destroy();
    const codes = new Set((await Promise.all(failures)).map(({ code }) => code));
    expect(codes).toEqual(new Set(["tls_untrusted"]));
    expect(performance.now() - startedAtMs, "in line").toBeGreaterThan(1_000);
    await untrusted.close();
  });

  it("whose flight was held back waits for its account's turn all the same", async () => {
    const { keyPem: key, certPem: cert } = await authority.issue({ names });
    server = await startTlsServer({ key, cert });
    const turns = new ReadingTurns();
    const open = async () => {
      const { signal } = new AbortController();
      const tcp = await openTcp({ address: "127.0.0.1", family: 4 }, server!.port, signal);
      const secureContext = createTargetSecureContext(authority.caPem);
      const sessions = createTlsSessions(() => performance.now());
      const { stream } = guardReading(tcp, { handshakes: turns, answers: turns, payer: "a" });
      return openTls(stream, {
        host: "localhost",
        port: server!.port,
        secureContext,
        sessions,
        signal,
      });
    };
    turns.take("a", (finish) => finish({ costlyMs: 25, isAll: true }));
    const startedAtMs = performance.now();
    const sockets = await Promise.all([open(), open()]);
    expect(performance.now() - startedAtMs, "a rest of 500 ms").toBeGreaterThan(480);
    for (const socket of sockets) socket.destroy();
  });
});

describe("a connection", () => {
  it("that was reset, which writing meets first, tells its error before it closes", async () => {
    const { keyPem: key, certPem: cert } = await authority.issue({ names });
    server = await startTlsServer({ key, cert });
    const { socket } = await connectTo(server);
    const events: string[] = [];
    socket.on("error", (error: NodeJS.ErrnoException) => events.push(error.code ?? error.message));
    const closed = new Promise((resolve) => socket.on("close", () => resolve(events.push("close"))));
    const sent = new Promise((resolve) => socket.write("x", resolve));
    server.sockets[0]!.resetAndDestroy();
    // In one go with the reset, so that no poll comes between them.
    for (let n = 0; n < 3; n++) socket.write("x".repeat(10_000));
    await Promise.all([closed, sent]);
    expect(events).toEqual(["ECONNRESET", "close"]);
  });
});

describe("a certificate", () => {
  it("that is in order is accepted up to its last day and from its first", async () => {
    const good = await authority.issue({ names, notBefore: daysFromNow(-0.01), notAfter: daysFromNow(0.01) });
    const { socket } = await connectTo(await withCertificate(good));
    expect(socket.authorized).toBe(true);
    socket.destroy();
  });

  it.each([
    [
      "tls_expired",
      "has expired",
      () => authority.issue({ names, notBefore: daysFromNow(-2), notAfter: daysFromNow(-0.01) }),
    ],
    [
      "tls_not_yet_valid",
      "is not valid yet",
      () => authority.issue({ names, notBefore: daysFromNow(0.01), notAfter: daysFromNow(2) }),
    ],
    ["tls_self_signed", "is self-signed", () => authority.selfSigned({ names })],
    ["tls_wrong_name", "is for another name", () => authority.issue({ names: ["example.com"] })],
    ["tls_wrong_name", "is for an address", () => authority.issue({ names: ["127.0.0.1"] })],
    ["tls_untrusted", "is by an unknown authority", () => stranger.issue({ names })],
  ])("gives %s when it %s", async (code, _, issue) => {
    const error = await failureOf(connectTo(await withCertificate(await issue())));
    expect(error.code).toBe(code);
    expect(error.cause).toBeInstanceOf(Error);
    expect(error.progress).toMatchObject({ remoteAddress: "127.0.0.1", timings: { tlsMs: null } });
    expect(error.progress?.timings.connectMs).not.toBeNull();
  });

  it("gives tls_untrusted when its unknown root comes along", async () => {
    const { keyPem: key, certPem } = await stranger.issue({ names });
    const started = await startTlsServer({ key, cert: `${certPem}\n${stranger.caPem}` });
    expect((await failureOf(connectTo(started))).code).toBe("tls_untrusted");
  });

  it("of an authority that was not added is not trusted", async () => {
    const started = await withCertificate(await authority.issue({ names }));
    expect((await failureOf(connectTo(started, { ca: null }))).code).toBe("tls_untrusted");
  });
});

describe("the added authorities", () => {
  it("may be several in one text, with other text between them", async () => {
    const ca = `# first\n${stranger.caPem}\n# second\n${authority.caPem}`;
    const started = await withCertificate(await authority.issue({ names }));
    const { socket } = await connectTo(started, { ca });
    socket.destroy();
  });

  it.each([
    ["", "hold no certificate"],
    ["certificate", "hold no certificate"],
    [
      "-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----",
      "Certificate 1 .* cannot be read",
    ],
  ])("are refused at the start when they are %j", (ca, message) => {
    expect(() => createTargetSecureContext(ca)).toThrow(new RegExp(message));
  });
});

describe("a peer", () => {
  it("that speaks TLS 1.2 is accepted, one that ends at 1.1 gives tls_version", async () => {
    const { keyPem: key, certPem: cert } = await authority.issue({ names });
    const current = await startTlsServer({ key, cert, maxVersion: "TLSv1.2" });
    const { socket } = await connectTo(current);
    expect(socket.getProtocol()).toBe("TLSv1.2");
    socket.destroy();
    await current.close();

    const ciphers = "DEFAULT@SECLEVEL=0";
    const old = await startTlsServer({ key, cert, ciphers, minVersion: "TLSv1", maxVersion: "TLSv1.1" });
    expect((await failureOf(connectTo(old))).code).toBe("tls_version");
  });

  it("that knows no common protocol gives tls_protocol", async () => {
    const { keyPem: key, certPem: cert } = await authority.issue({ names });
    const started = await startTlsServer({ key, cert, ALPNProtocols: ["h2"] });
    expect((await failureOf(connectTo(started))).code).toBe("tls_protocol");
  });

  it("that wants a key exchange whose cost it chooses itself gives tls_protocol", async () => {
    const started = await startTlsServer({
      ...(await selfSignedRsa()),
      maxVersion: "TLSv1.2",
      ciphers: "DHE-RSA-AES128-GCM-SHA256",
      dhparam: "auto",
    });
    expect((await failureOf(connectTo(started))).code).toBe("tls_protocol");
  });

  it.each([
    ["tls_not_spoken", "speaks HTTP", "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n"],
    ["tls_not_spoken", "speaks SSH", "SSH-2.0-OpenSSH_9.6\r\n"],
    ["tls_not_spoken", "speaks mail", "220 mail.example.com ESMTP\r\n"],
    ["tls_not_spoken", "sends noise", Buffer.alloc(64, 0xee)],
    ["tls_protocol", "sends a broken ServerHello", Buffer.from("160303000402000000", "hex")],
    ["tls_protocol", "sends an alert", Buffer.from("15030300020228", "hex")],
    ["tls_closed", "ends at once", null],
  ])("gives %s when it %s", async (code, _, reply) => {
    const started = await startTcpServer({
      onConnection: (socket) =>
        socket.once("data", () => (reply === null ? socket.end() : socket.end(reply))),
    });
    expect((await failureOf(connectTo(started))).code).toBe(code);
  });

  it("that resets in the handshake gives tls_closed", async () => {
    const started = await startTcpServer({
      onConnection: (socket) => socket.once("data", () => socket.resetAndDestroy()),
    });
    expect((await failureOf(connectTo(started))).code).toBe("tls_closed");
  });

  it("that fails in TLS has been sent a greeting and nothing of the caller's", async () => {
    const received: Buffer[] = [];
    const started = await startTcpServer({
      onConnection: (socket) =>
        socket.on("data", (chunk) => {
          received.push(chunk);
          socket.end("HTTP/1.1 200 OK\r\n\r\n");
        }),
    });
    await failureOf(connectTo(started));
    // One handshake record (22), and after it at most an alert (21).
    const bytes = Buffer.concat(received);
    expect(bytes[0]).toBe(22);
    const rest = bytes.subarray(5 + bytes.readUInt16BE(3));
    expect(rest.length === 0 || rest[0] === 21).toBe(true);
  });
});
