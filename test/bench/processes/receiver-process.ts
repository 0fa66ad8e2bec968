// All receivers in one process: TLS for `*.many.localhost` and `*.many.test` on 127.0.0.1, and as little HTTP as a POST
// needs. It stands for machines that are not ours, so it must cost as little as it can; node:https took twice the CPU.
import type { AddressInfo } from "node:net";
import { createServer, type TLSSocket } from "node:tls";
import { createCertificateAuthority } from "../../support/certificates.ts";
import { SEQUENCE_DIGITS } from "../analysis.ts";
import { answerQuestions, sharedClockMs } from "./answering.ts";

export type ReceiverManners = {
  /** How long every answer takes. */
  readonly delayMs: number;
  /** The hosts h0 to h<silentHosts - 1> take the POST and never answer. */
  readonly silentHosts: number;
  /** The hosts h0 to h<costlyHosts - 1> succeed by an answer that takes long to read: 10,000 chunks of one byte. */
  readonly costlyHosts: number;
  /** Reads which analysis it got, and keeps when its first byte came. */
  readonly isTiming: boolean;
};

export type Received = {
  /** POSTs that were answered since the process began. */
  readonly answered: number;
  /** POSTs that hosts took which never answer, … */
  readonly swallowed: number;
  /** … and how many such hosts there were. */
  readonly silentNames: number;
  readonly connections: number;
};

/** Whatever else is asked for, these take the POST and never answer. */
const SILENT_NAMES = "silent-";
const SEQUENCES_MAX = 10 ** SEQUENCE_DIGITS;
const HEAD_END = Buffer.from("\r\n\r\n");
const LENGTH_HEADER = Buffer.from("content-length: ");
const ANSWER = Buffer.from("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok");
const COSTLY_ANSWER = Buffer.from(
  `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n${"1\r\nx\r\n".repeat(10_000)}0\r\n\r\n`,
);

let manners: ReceiverManners = { delayMs: 0, silentHosts: 0, costlyHosts: 0, isTiming: false };
/** By sequence number of the analysis, on the shared clock; 0: has not come. Made when it is first needed. */
let firstBytesAtMs = new Float64Array(0);
let answered = 0;
let swallowed = 0;
const silentNames = new Set<string>();
let connections = 0;

function serve(socket: TLSSocket): void {
  const name = String(socket.servername);
  const host = Number(/^h(\d+)\./.exec(name)?.[1] ?? -1);
  let pending: Buffer | null = null;
  let requestEnd = -1;
  let firstByteAtMs = 0;
  connections += 1;
  socket.setNoDelay(true);
  socket.on("error", () => undefined);
  socket.on("data", (chunk: Buffer) => {
    if (pending === null && manners.isTiming) firstByteAtMs = sharedClockMs();
    const received = pending === null ? chunk : Buffer.concat([pending, chunk]);
    if (requestEnd < 0) requestEnd = findEnd(received);
    if (requestEnd < 0 || received.length < requestEnd) {
      pending = received;
      return;
    }
    pending = null;
    requestEnd = -1;
    if (name.startsWith(SILENT_NAMES) || (host >= 0 && host < manners.silentHosts)) {
      swallowed += 1;
      silentNames.add(name);
      return;
    }
    if (manners.isTiming) keep(received, firstByteAtMs);
    const isCostly = host >= 0 && host < manners.costlyHosts;
    if (isCostly) answer(socket, COSTLY_ANSWER);
    else if (manners.delayMs > 0) setTimeout(answer, manners.delayMs, socket, ANSWER);
    else answer(socket, ANSWER);
  });
}

function answer(socket: TLSSocket, bytes: Buffer): void {
  answered += 1;
  socket.write(bytes);
}

/** Where the request that begins here ends; -1: its head is not whole yet. */
function findEnd(received: Buffer): number {
  const headEnd = received.indexOf(HEAD_END);
  if (headEnd < 0) return -1;
  const length = received.indexOf(LENGTH_HEADER);
  if (length < 0 || length > headEnd) throw new Error("A POST came without a content-length.");
  const from = length + LENGTH_HEADER.length;
  return (
    headEnd + HEAD_END.length + Number(received.toString("latin1", from, received.indexOf("\r\n", from)))
  );
}

/** The analysis ends in its sequence number and a brace, the body in one more. */
function keep(received: Buffer, firstByteAtMs: number): void {
  const end = received.length - 2;
  const sequence = Number(received.toString("latin1", end - SEQUENCE_DIGITS, end));
  if (sequence > 0 && firstBytesAtMs[sequence] === 0) firstBytesAtMs[sequence] = firstByteAtMs;
}

const authority = await createCertificateAuthority();
const { keyPem, certPem } = await authority.issue({ names: ["*.many.localhost", "*.many.test"] });
const server = createServer({ key: keyPem, cert: certPem, ALPNProtocols: ["http/1.1"] }, serve);
server.on("tlsClientError", () => undefined);
server.listen(0, "127.0.0.1", 4_096);

answerQuestions({
  address: () => ({ port: (server.address() as AddressInfo).port, caPem: authority.caPem }),
  behave: (wanted: ReceiverManners) => {
    manners = wanted;
    if (wanted.isTiming) firstBytesAtMs = new Float64Array(SEQUENCES_MAX);
  },
  received: (): Received => ({ answered, swallowed, silentNames: silentNames.size, connections }),
  firstBytes: ({ count }: { count: number }) => firstBytesAtMs.slice(0, count),
});
