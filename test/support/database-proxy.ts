// A proxy between a process and its database that simulates a failing network or database.
import { once } from "node:events";
import { connect, createServer, type NetConnectOpts, type Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { freePort } from "./ports.ts";

/** To the database, or from it. */
type Way = "to" | "from";

/** What a network does to the connections that there are, and to new ones. */
export type LineFault = {
  /** Nothing passes these ways: it is kept, as TCP's sender keeps it, and so are the ends of connections. */
  readonly held?: readonly Way[];
  /** What passes is so late, in pieces of so many bytes, one of them in `lateMs` / 100. */
  readonly lateMs?: number;
  readonly pieceBytes?: number;
  /** Whether it happens to the next connection; all, if it is left out. */
  readonly strikes?: () => boolean;
};

export type DatabaseProxy = {
  /** The database, through this proxy. */
  readonly url: string;
  /** Ends every connection, and refuses new ones, until `restore`. */
  cut(): Promise<void>;
  /** Passes nothing on any more, in either direction: connections are taken, and nobody answers, until `restore`. */
  hang(): void;
  /** After `cut` or `hang`: what hung stays broken, new connections work again. */
  restore(): Promise<void>;
  /** Until `letGo`. */
  strike(fault: LineFault): void;
  /** From now on nothing that is sent arrives; answers do. */
  hold(): void;
  /**
   * What was held arrives now, also from those who have hung up since; of connections that `forgets` says so of it
   * never does, nor anything else.
   */
  letGo(forgets?: () => boolean): void;
  /** Nothing passes any more on the connections that there are, as when a firewall forgets them; new ones work. */
  forget(): void;
  /** New connections lead to another database from now on, as when an address moves. */
  leadTo(databaseUrl: string): void;
  close(): Promise<void>;
};

type Connection = { fault: LineFault; isForgotten: boolean; readonly flows: Flow[] };

/** One way of a connection: what is sent is done in order, when its fault lets it. */
class Flow {
  readonly #way: Way;
  readonly #of: Connection;
  readonly #waiting: { readonly act: () => void; readonly atMs: number }[] = [];
  #isMoving = false;

  constructor(way: Way, of: Connection) {
    this.#way = way;
    this.#of = of;
    of.flows.push(this);
  }

  get isWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  send(act: () => void): void {
    this.#waiting.push({ act, atMs: performance.now() + (this.#of.fault.lateMs ?? 0) });
    void this.move();
  }

  sendBytes(bytes: Buffer, write: (bytes: Buffer) => void): void {
    const { pieceBytes = bytes.length } = this.#of.fault;
    for (let at = 0; at < bytes.length; at += pieceBytes)
      this.send(() => write(bytes.subarray(at, at + pieceBytes)));
  }

  async move(): Promise<void> {
    if (this.#isMoving) return;
    this.#isMoving = true;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { held = [], lateMs = 0 } = this.#of.fault;
      if (held.includes(this.#way)) break;
      if (lateMs > 0) await wait(Math.max(lateMs / 100, next.atMs - performance.now()));
      this.#waiting.shift();
      if (!this.#of.isForgotten) next.act();
    }
    this.#isMoving = false;
  }
}

export async function startDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  let target = targetOf(databaseUrl);
  const sockets = new Set<Socket>();
  const connections = new Set<Connection>();
  let isHanging = false;
  let current: LineFault = {};
  const faultOfNext = () => (current.strikes?.() === false ? {} : current);

  function track(socket: Socket): Socket {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    return socket;
  }
  // Half open, so that what was sent before a hang-up can be held back and arrive all the same.
  const server = createServer({ allowHalfOpen: true }, (client) => {
    track(client);
    if (isHanging) return;
    const database = track(connect(target));
    const mine: Connection = { fault: faultOfNext(), isForgotten: false, flows: [] };
    const [to, from] = [new Flow("to", mine), new Flow("from", mine)];
    connections.add(mine);
    client.on("data", (bytes) => to.sendBytes(bytes, (piece) => database.write(piece)));
    client.on("end", () => client.end());
    client.on("close", () => to.send(() => database.end()));
    database.on("data", (bytes) => from.sendBytes(bytes, (piece) => client.writable && client.write(piece)));
    database.on("close", () =>
      from.send(() => {
        client.destroy();
        connections.delete(mine);
      }),
    );
  });

  function strike(fault: LineFault): void {
    current = fault;
    for (const connection of connections) connection.fault = faultOfNext();
  }
  function letGo(forgets = () => false): void {
    current = {};
    for (const connection of connections) {
      if (connection.flows.some((flow) => flow.isWaiting)) connection.isForgotten ||= forgets();
      connection.fault = {};
      for (const flow of connection.flows) void flow.move();
    }
  }
  function forget(): void {
    for (const connection of connections) connection.isForgotten = true;
  }
  // The same after a cut.
  const port = await freePort();
  async function listen(): Promise<void> {
    await once(server.listen(port, "127.0.0.1"), "listening");
  }
  async function stopListening(): Promise<void> {
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  }
  await listen();

  return {
    url: proxiedUrl(databaseUrl, port),
    cut: stopListening,
    hang: () => {
      isHanging = true;
      forget();
    },
    restore: async () => {
      isHanging = false;
      for (const socket of sockets) socket.destroy();
      if (!server.listening) await listen();
    },
    strike,
    hold: () => strike({ held: ["to"] }),
    letGo,
    forget,
    leadTo: (another) => {
      target = targetOf(another);
    },
    close: async () => {
      if (server.listening) await stopListening();
    },
  };
}

function targetOf(databaseUrl: string): NetConnectOpts {
  const url = new URL(databaseUrl);
  const port = Number(url.port || 5432);
  const folder = url.searchParams.get("host");
  return folder?.startsWith("/")
    ? { path: `${folder}/.s.PGSQL.${url.searchParams.get("port") ?? port}` }
    : { host: folder ?? url.hostname, port };
}

function proxiedUrl(databaseUrl: string, port: number): string {
  const url = new URL(databaseUrl);
  url.hostname = "127.0.0.1";
  url.port = String(port);
  url.searchParams.delete("host");
  url.searchParams.delete("port");
  return url.href;
}
