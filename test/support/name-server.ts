// A scripted name server on loopback, so that tests use real DNS but nobody else's.

import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, isIPv4, type Server, type Socket } from "node:net";
import * as dnsPacket from "dns-packet";

export type RecordType = "A" | "AAAA";

export type Answer =
  /** Addresses of both families; each query gets those of its own, and an empty answer if there is none. */
  | readonly string[]
  /** The same with particulars: an alias first, a lifetime, or only to those who ask again over TCP. */
  | { addresses: readonly string[]; alias?: string; ttlSeconds?: number; onlyOverTcp?: boolean }
  | "nxdomain"
  | "servfail"
  /** What no resolver can read: an SRV record of one byte. */
  | "unreadable"
  | "drop";

export type NameServer = {
  /** `127.0.0.1:port`, as a resolver's `servers` takes it. */
  readonly address: string;
  readonly queries: readonly { name: string; type: RecordType }[];
  /**
   * What the first, second … query for a name gets, per record type; the last answer stays. Unknown names do not exist.
   */
  script(name: string, answers: readonly Answer[], types?: readonly RecordType[]): void;
  /** Queries received for a name, counted for one record type. */
  count(name: string, type?: RecordType): number;
  /** Resolves once `count(name, type)` has reached the number. */
  waitForQueries(name: string, count: number, type?: RecordType): Promise<void>;
  close(): Promise<void>;
};

const DEFAULT_TTL_SECONDS = 60;
const RCODE_SERVFAIL = 2;
const RCODE_NXDOMAIN = 3;

export async function startNameServer(): Promise<NameServer> {
  const scripts = new Map<string, Answer[]>();
  const queries: { name: string; type: RecordType }[] = [];
  const waiters = new Set<() => void>();
  const tcpSockets = new Set<Socket>();

  const count = (name: string, type: RecordType = "A") =>
    queries.filter((query) => query.name === name && query.type === type).length;

  /** The reply to a query, or null if none is to be sent. */
  function replyTo(message: Buffer, isTcp: boolean): dnsPacket.Packet | null {
    const query = dnsPacket.decode(message);
    const [question] = query.questions ?? [];
    if (question === undefined || (question.type !== "A" && question.type !== "AAAA")) return null;
    const { name, type } = question;
    // A repetition over TCP is the same lookup, not the next one.
    if (!isTcp) queries.push({ name, type });
    const script = scripts.get(`${name} ${type}`) ?? ["nxdomain"];
    const answer = script[Math.min(count(name, type), script.length) - 1] ?? "nxdomain";
    for (const waiter of waiters) waiter();
    const head: dnsPacket.Packet = { type: "response", id: query.id ?? 0, questions: [question] };
    const flags = dnsPacket.RECURSION_DESIRED | dnsPacket.RECURSION_AVAILABLE;
    if (answer === "drop") return null;
    if (answer === "nxdomain") return { ...head, flags: flags | RCODE_NXDOMAIN };
    if (answer === "servfail") return { ...head, flags: flags | RCODE_SERVFAIL };
    if (answer === "unreadable") return { ...head, flags, answers: [unreadableRecord(name)] };
    const {
      addresses,
      alias,
      ttlSeconds: ttl = DEFAULT_TTL_SECONDS,
      onlyOverTcp = false,
    } = "addresses" in answer ? answer : { addresses: answer };
    if (onlyOverTcp && !isTcp) return { ...head, flags: flags | dnsPacket.TRUNCATED_RESPONSE };
    const owner = alias ?? name;
    return {
      ...head,
      flags,
      answers: [
        ...(alias === undefined ? [] : [{ type: "CNAME", name, ttl, data: alias } as const]),
        ...addresses
          .filter((address) => isIPv4(address) === (type === "A"))
          .map((data) => ({ type, name: owner, ttl, data })),
      ],
    };
  }

  const { udp, tcp, port } = await listenOnBoth();
  udp.on("message", (message, from) => {
    const reply = replyTo(message, false);
    if (reply !== null) udp.send(dnsPacket.encode(reply), from.port, from.address);
  });
  tcp.on("connection", (socket) => {
    tcpSockets.add(socket);
    socket.on("error", () => {});
    let received = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      received = Buffer.concat([received, chunk]);
      while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
        const end = 2 + received.readUInt16BE(0);
        const reply = replyTo(received.subarray(2, end), true);
        received = received.subarray(end);
        if (reply !== null) socket.write(dnsPacket.streamEncode(reply));
      }
    });
  });

  return {
    address: `127.0.0.1:${port}`,
    queries,
    script(name, answers, types = ["A", "AAAA"]) {
      for (const type of types) scripts.set(`${name} ${type}`, [...answers]);
    },
    count,
    waitForQueries(name, wanted, type = "A") {
      return new Promise((resolve) => {
        const look = () => {
          if (count(name, type) < wanted) return;
          waiters.delete(look);
          resolve();
        };
        waiters.add(look);
        look();
      });
    },
    async close() {
      for (const socket of tcpSockets) socket.destroy();
      await Promise.all([
        new Promise<void>((resolve) => udp.close(() => resolve())),
        new Promise<void>((resolve) => tcp.close(() => resolve())),
      ]);
    },
  };
}

/** The same port for UDP and TCP; one of the two may be taken, so it tries a few times. */
async function listenOnBoth(): Promise<{ udp: UdpSocket; tcp: Server; port: number }> {
  for (let tries = 10; ; tries -= 1) {
    const tcp = createServer().listen(0, "127.0.0.1");
    await once(tcp, "listening");
    const bound = tcp.address();
    if (bound === null || typeof bound === "string") throw new Error("The name server has no port.");
    const udp = createSocket("udp4").bind(bound.port, "127.0.0.1");
    try {
      await once(udp, "listening");
      return { udp, tcp, port: bound.port };
    } catch (error) {
      tcp.close();
      if (tries === 0) throw error;
    }
  }
}

function unreadableRecord(name: string): dnsPacket.Answer {
  return { type: "UNKNOWN_33", name, ttl: 0, data: Buffer.from([0]) } as unknown as dnsPacket.Answer;
}
