// Stands between a process and its database, and plays a database that is away.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type NetConnectOpts, type Socket } from "node:net";

export type DatabaseProxy = {
  /** The database, through this proxy. */
  readonly url: string;
  /** Ends every connection, and refuses new ones, until `restore`. */
  cut(): Promise<void>;
  /** Passes nothing on any more, in either direction: connections are taken, and nobody answers. */
  hang(): void;
  /** After `cut` or `hang`: what hung stays broken, new connections work again. */
  restore(): Promise<void>;
  close(): Promise<void>;
};

export async function startDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const target = targetOf(databaseUrl);
  const sockets = new Set<Socket>();
  let isHanging = false;

  function track(socket: Socket): Socket {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    return socket;
  }
  const server = createServer((client) => {
    track(client);
    if (isHanging) return;
    const database = track(connect(target));
    client.pipe(database).pipe(client);
    client.on("close", () => database.destroy());
    database.on("close", () => client.destroy());
  });

  async function listen(port: number): Promise<number> {
    await once(server.listen(port, "127.0.0.1"), "listening");
    return (server.address() as AddressInfo).port;
  }
  async function stopListening(): Promise<void> {
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  }
  const port = await listen(0);

  return {
    url: proxiedUrl(databaseUrl, port),
    cut: stopListening,
    hang: () => {
      isHanging = true;
      for (const socket of sockets) socket.unpipe();
    },
    restore: async () => {
      isHanging = false;
      for (const socket of sockets) socket.destroy();
      if (!server.listening) await listen(port);
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
