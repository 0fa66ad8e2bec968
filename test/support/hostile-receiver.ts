import { DAY_MS } from "../../src/base/model/time.ts";
// Receivers that misbehave in every possible way. Each is its own server on 127.0.0.1 and counts what it got.

import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";
import { createSecureContext, type SecureContextOptions, TLSSocket, type TLSSocketOptions } from "node:tls";
import { gzipSync } from "node:zlib";
import type { CertificateAuthority, IssuedCertificate } from "./certificates.ts";

const DRIP_MS = 20;
const OK_HEAD = "HTTP/1.1 200 OK\r\n";

/** The sockets of a connection: `socket` is the TLS one if there is TLS, `raw` the one below. */
type Stage = { socket: Socket; raw: Socket };

type Behaviour = {
  /** Plays on the plain TCP connection; there is no TLS then. */
  onTcp?: (raw: Socket) => void;
  /** Plays as soon as TLS is there. */
  onSecure?: (stage: Stage) => void;
  /** Plays when the first bytes of a request are there. */
  onRequest?: (stage: Stage) => void;
  tls?: TLSSocketOptions & SecureContextOptions;
  certificate?: (authority: CertificateAuthority) => Promise<IssuedCertificate>;
};

const NAMES = ["localhost", "*.many.localhost"];

const write =
  (...parts: string[]) =>
  ({ socket }: Stage) =>
    void socket.write(parts.join(""));

const writeAndEnd =
  (...parts: string[]) =>
  ({ socket }: Stage) =>
    void socket.end(parts.join(""));

/** Writes the beginning, then one piece every 20 ms. */
const drip =
  (beginning: string, piece: string) =>
  ({ socket }: Stage) => {
    socket.write(beginning);
    every(DRIP_MS, socket, () => socket.write(piece));
  };

/** Writes one character every 20 ms. */
const dripOnce =
  (text: string) =>
  ({ socket }: Stage) => {
    const characters = text[Symbol.iterator]();
    every(DRIP_MS, socket, () => socket.write(characters.next().value ?? ""));
  };

/** Writes the beginning, then as much as the connection takes, forever. */
const flood =
  (beginning: string, piece: string | Buffer) =>
  ({ socket }: Stage) => {
    const pour = () => {
      while (!socket.destroyed && socket.write(piece));
    };
    socket.write(beginning);
    socket.on("drain", pour);
    pour();
  };

const writeAndReset =
  (...parts: string[]) =>
  ({ socket, raw }: Stage) => {
    socket.write(parts.join(""));
    after(5 * DRIP_MS, socket, () => raw.resetAndDestroy());
  };

const CHUNKED_HEAD = `${OK_HEAD}transfer-encoding: chunked\r\n\r\n`;

/** 50 MB of zeros in 50 kB. */
const BOMB = gzipSync(Buffer.alloc(50_000_000));

export const HOSTILE_BEHAVIOURS = {
  // No answer, or one that comes too slowly.
  silent: { onRequest: () => {} },
  never_reads: { onSecure: ({ socket, raw }) => void [socket.pause(), raw.pause()] },
  // Slower than the longest deadline that a test may give it.
  slow_head: {
    onRequest: dripOnce(`${OK_HEAD}server: ${"slow".repeat(300)}\r\ncontent-length: 2\r\n\r\nok`),
  },
  header_drip: { onRequest: drip(`${OK_HEAD}x-a: `, "b") },
  informational_drip: { onRequest: drip("", "HTTP/1.1 103 Early Hints\r\n\r\n") },
  informational_flood: { onRequest: flood("", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(500)) },
  // What is skipped in reading an answer is part of none of its parts.
  line_end_flood: { onRequest: flood("", "\r\n".repeat(30_000)) },
  close_without_answer: { onRequest: ({ socket }) => void socket.end() },
  reset_before_head: { onRequest: ({ raw }) => void raw.resetAndDestroy() },
  reset_in_head: { onRequest: writeAndReset(OK_HEAD, "content-le") },
  close_in_head: { onRequest: writeAndEnd(OK_HEAD, "content-le") },

  // The head is there, the body is not.
  reset_after_2xx_head: { onRequest: writeAndReset(OK_HEAD, "content-length: 10\r\n\r\nbegun") },
  reset_after_500_head: { onRequest: writeAndReset("HTTP/1.1 500 No\r\ncontent-length: 10\r\n\r\nbegun") },
  close_in_body: { onRequest: writeAndEnd(OK_HEAD, "content-length: 10\r\n\r\nbegun") },
  body_drip: { onRequest: drip(`${OK_HEAD}content-length: 100000\r\n\r\n`, "x") },
  error_body_drip: { onRequest: drip("HTTP/1.1 500 No\r\ncontent-length: 100000\r\n\r\n", "x") },
  body_never_comes: { onRequest: write(OK_HEAD, "content-length: 10\r\n\r\n") },
  endless_body: { onRequest: flood(`${OK_HEAD}\r\n`, "x".repeat(65_536)) },
  endless_error_body: { onRequest: flood("HTTP/1.1 500 No\r\n\r\n", "x".repeat(65_536)) },
  endless_chunks: { onRequest: flood(CHUNKED_HEAD, `10000\r\n${"x".repeat(65_536)}\r\n`) },
  chunk_extension_flood: { onRequest: flood(`${CHUNKED_HEAD}2\r\nok\r\n2;`, "x".repeat(65_536)) },
  huge_body: { onRequest: writeAndEnd(OK_HEAD, "content-length: 8000000\r\n\r\n", "x".repeat(8_000_000)) },
  endless_trailer: { onRequest: flood(`${CHUNKED_HEAD}2\r\nok\r\n0\r\n`, `x-a: ${"b".repeat(1_000)}\r\n`) },
  trailer_drip: { onRequest: drip(`${CHUNKED_HEAD}2\r\nok\r\n0\r\n`, "x-a: b\r\n") },
  bad_chunk: { onRequest: writeAndEnd(CHUNKED_HEAD, "2\r\nok\r\nzz\r\nno\r\n") },
  gzip_bomb: {
    onRequest: ({ socket }) => {
      socket.write(`${OK_HEAD}content-encoding: gzip\r\ncontent-length: ${BOMB.length}\r\n\r\n`);
      socket.end(BOMB);
    },
  },

  // Not HTTP/1.1, or not quite.
  ssh_banner: { onSecure: write("SSH-2.0-OpenSSH_9.9\r\n") },
  ssh_banner_on_request: { onRequest: write("SSH-2.0-OpenSSH_9.9\r\n") },
  http_0_9: { onRequest: writeAndEnd("<html>hello</html>") },
  http_2_preface: { onRequest: ({ socket }) => void socket.write(Buffer.from("000000040000000000", "hex")) },
  line_feeds_only: { onRequest: write("HTTP/1.1 200 OK\ncontent-length: 2\n\nok") },
  http_2_status_line: { onRequest: write("HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok") },
  http_2_behind_line_ends: {
    onRequest: write("\r\n".repeat(20), "HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok"),
  },
  rtsp_status_line: { onRequest: write("RTSP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok") },
  ice_status_line: { onRequest: write("ICE/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok") },
  http_2_status_line_in_pieces: {
    onRequest: write("HT", "TP/2", ".0 200 OK\r\ncontent-length: 2\r\n\r\nok"),
  },
  http_2_status_line_later: {
    onRequest: ({ socket }) => {
      socket.write(`${OK_HEAD}content-length: 2\r\n\r\nok`);
      socket.on("data", (chunk: Buffer) => {
        if (chunk.includes("POST /")) socket.write("HTTP/2.0 200 OK\r\ncontent-length: 2\r\n\r\nok");
      });
    },
  },
  http_0_9_status_line: { onRequest: write("HTTP/0.9 200 OK\r\ncontent-length: 2\r\n\r\nok") },
  http_1_0_status_line: { onRequest: writeAndEnd("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok") },
  status_000: { onRequest: write("HTTP/1.1 000 Nothing\r\ncontent-length: 2\r\n\r\nok") },
  status_99: { onRequest: write("HTTP/1.1 99 Odd\r\ncontent-length: 2\r\n\r\nok") },
  status_999: { onRequest: write("HTTP/1.1 999 Denied\r\ncontent-length: 2\r\n\r\nno") },
  status_1000: { onRequest: write("HTTP/1.1 1000 Odd\r\ncontent-length: 2\r\n\r\nok") },
  continue_unasked: {
    onRequest: write("HTTP/1.1 100 Continue\r\n\r\n", OK_HEAD, "content-length: 0\r\n\r\n"),
  },
  hints_then_ok: {
    onRequest: write("HTTP/1.1 103 Early Hints\r\n\r\n", OK_HEAD, "content-length: 0\r\n\r\n"),
  },
  switching_protocols: { onRequest: write("HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n") },
  switching_to_nothing: { onRequest: write("HTTP/1.1 101 Go\r\n\r\n") },
  two_content_lengths: { onRequest: write(OK_HEAD, "content-length: 2\r\ncontent-length: 3\r\n\r\nok") },
  negative_content_length: { onRequest: write(OK_HEAD, "content-length: -2\r\n\r\nok") },
  content_length_and_chunked: {
    onRequest: write(OK_HEAD, "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
  },
  header_with_nul: { onRequest: write(OK_HEAD, "x-a: b\u0000c\r\ncontent-length: 2\r\n\r\nok") },
  endless_header: { onRequest: flood(`${OK_HEAD}x-a: `, "b".repeat(65_536)) },
  many_headers: { onRequest: flood(OK_HEAD, `x-a: ${"b".repeat(1_000)}\r\n`) },
  answers_twice: { onRequest: write(`${OK_HEAD}content-length: 2\r\n\r\nok`.repeat(2)) },
  answers_before_the_request: { onSecure: write(OK_HEAD, "content-length: 2\r\n\r\nok") },
  early_413: {
    onRequest: writeAndEnd("HTTP/1.1 413 Large\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno"),
  },

  // TLS that is not to be trusted, or none.
  tls_never_finishes: { onTcp: () => {} },
  tls_drip: {
    // The head of a record that announces 16 KiB.
    onTcp: (raw) => {
      raw.write(Buffer.from("1603034000", "hex"));
      every(DRIP_MS, raw, () => raw.write(Buffer.from([0x02])));
    },
  },
  closes_in_handshake: { onTcp: (raw) => void raw.once("data", () => raw.end()) },
  resets_in_handshake: { onTcp: (raw) => void raw.once("data", () => raw.resetAndDestroy()) },
  plain_http: {
    onTcp: (raw) =>
      void raw.once("data", () => raw.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")),
  },
  plain_ssh: { onTcp: (raw) => void raw.write("SSH-2.0-OpenSSH_9.9\r\n") },
  self_signed: { certificate: (authority) => authority.selfSigned({ names: NAMES }) },
  expired: {
    certificate: (authority) =>
      authority.issue({
        names: NAMES,
        notBefore: new Date(Date.now() - 30 * DAY_MS),
        notAfter: new Date(Date.now() - DAY_MS),
      }),
  },
  not_yet_valid: {
    certificate: (authority) => authority.issue({ names: NAMES, notBefore: new Date(Date.now() + DAY_MS) }),
  },
  wrong_name: { certificate: (authority) => authority.issue({ names: ["elsewhere.localhost"] }) },
  tls_1_1: { tls: { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" } },
  wants_client_certificate: { tls: { requestCert: true, rejectUnauthorized: true } },

  // Good ones that close their connections without saying so: behind each answer, or very soon.
  closes_behind_answer: { onRequest: writeAndEnd(OK_HEAD, "content-length: 2\r\n\r\nok") },
  closes_idle: {
    onRequest: ({ socket }) => {
      socket.write(`${OK_HEAD}content-length: 2\r\n\r\nok`);
      after(5 * DRIP_MS, socket, () => socket.end());
    },
  },
} satisfies Record<string, Behaviour>;

export type HostileBehaviour = keyof typeof HOSTILE_BEHAVIOURS;

export type HostileReceiver = {
  readonly port: number;
  /** Bytes of a request that reached the server, decrypted. */
  readonly requestBytesCount: number;
  readonly connectionsCount: number;
  close(): Promise<void>;
};

export async function startHostileReceiver(
  behaviour: HostileBehaviour,
  authority: CertificateAuthority,
): Promise<HostileReceiver> {
  const { onTcp, onSecure, onRequest, tls, certificate }: Behaviour = HOSTILE_BEHAVIOURS[behaviour];
  const { keyPem, certPem } = await (certificate?.(authority) ?? authority.issue({ names: NAMES }));
  const secureContext = createSecureContext({ key: keyPem, cert: certPem, ...tls });
  const sockets = new Set<Socket>();
  let requestBytesCount = 0;
  let connectionsCount = 0;

  const server = createServer({ pauseOnConnect: onTcp === undefined }, (raw) => {
    connectionsCount += 1;
    sockets.add(raw);
    raw.on("error", () => {}).on("close", () => sockets.delete(raw));
    if (onTcp !== undefined) {
      onTcp(raw);
      return;
    }
    const socket = new TLSSocket(raw, { isServer: true, secureContext, ...tls });
    socket.on("error", () => {});
    socket.on("secure", () => {
      if (tls?.requestCert && socket.getPeerCertificate().raw === undefined) {
        socket.destroy();
        return;
      }
      onSecure?.({ socket, raw });
    });
    if (behaviour === "never_reads") return;
    let hasRequest = false;
    socket.on("data", (chunk: Buffer) => {
      requestBytesCount += chunk.length;
      if (hasRequest) return;
      hasRequest = true;
      onRequest?.({ socket, raw });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  return {
    port: (server.address() as AddressInfo).port,
    get requestBytesCount() {
      return requestBytesCount;
    },
    get connectionsCount() {
      return connectionsCount;
    },
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function every(intervalMs: number, socket: Socket, act: () => void): void {
  const timer = setInterval(act, intervalMs);
  socket.on("close", () => clearInterval(timer));
}

function after(delayMs: number, socket: Socket, act: () => void): void {
  const timer = setTimeout(act, delayMs);
  socket.on("close", () => clearTimeout(timer));
}
