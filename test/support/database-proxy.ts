// A proxy between a process and its database that simulates a failing network or database.
import { once } from "node:events";
import { connect, createServer, type NetConnectOpts, type Socket } from "node:net";
import { freePort } from "./ports.ts";

export type DatabaseProxy = {
  /** The database, through this proxy. */
  readonly url: string;
  /** Ends every connection, and refuses new ones, until `restore`. */
  cut(): Promise<void>;
  /** Passes nothing on any more, in either direction: connections are taken, and nobody answers, until `restore`. */
  hang(): void;
  /** After `cut` or `hang`: what hung stays broken, new connections work again. */
  restore(): Promise<void>;
  /** From now on nothing that is sent arrives; answers do. */
  hold(): void;
  /** What was held arrives now, also from those who have hung up since. */
  letGo(): void;
  /** Nothing passes any more on the connections that there are, as when a firewall forgets them; new ones work. */
  forget(): void;
  /** New connections lead to another database from now on, as when an address moves. */
  leadTo(databaseUrl: string): void;
  close(): Promise<void>;
};

export async function startDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  let target = targetOf(databaseUrl);
  const sockets = new Set<Socket>();
  const held: (() => void)[] = [];
  let isHanging = false;
  let isHolding = false;
  /** Of the connections made since the last `forget`. */
  let age = { isForgotten: false };

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
    const mine = age;
    const send = (act: () => void) => {
      if (mine.isForgotten) return;
      if (isHolding) held.push(act);
      else act();
    };
    client.on("data", (bytes) => send(() => database.write(bytes)));
    client.on("end", () => client.end());
    client.on("close", () => send(() => database.end()));
    database.on("data", (bytes) => !mine.isForgotten && client.writable && client.write(bytes));
    database.on("close", () => client.destroy());
  });

  function forget(): void {
    age.isForgotten = true;
    age = { isForgotten: false };
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
    hold: () => {
      isHolding = true;
    },
    letGo: () => {
      isHolding = false;
      for (const act of held.splice(0)) act();
    },
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
