// A line to the database on which everything that is sent can be held back, as a network does that loses packets.
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";

export type DatabaseProxy = {
  /** The same database, by this line. */
  readonly url: string;
  /** From now on nothing that is sent arrives; answers do. */
  hold(): void;
  /** What was held arrives now, also from those who have hung up since. */
  letGo(): void;
  /** From now on nothing passes on the connections that there are, as when a firewall forgets them; new ones work. */
  forget(): void;
  close(): Promise<void>;
};

export async function startDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const real = new URL(databaseUrl);
  const port = Number(real.port || 5432);
  const folder = real.searchParams.get("host");
  const sockets = new Set<Socket>();
  const held: (() => void)[] = [];
  let isHolding = false;
  let isForgotten = { yes: false };

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = folder?.startsWith("/")
      ? connect({ path: join(folder, `.s.PGSQL.${port}`) })
      : connect({ host: real.hostname, port });
    const mine = isForgotten;
    const send = (act: () => void) => {
      if (mine.yes) return;
      if (isHolding) held.push(act);
      else act();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    }
    client.on("data", (bytes) => send(() => upstream.write(bytes)));
    client.on("close", () => send(() => upstream.end()));
    client.on("end", () => client.end());
    upstream.on("data", (bytes) => !mine.yes && client.writable && client.write(bytes));
    upstream.on("close", () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  const url = new URL(databaseUrl);
  url.searchParams.delete("host");
  url.hostname = "127.0.0.1";
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.href,
    hold: () => {
      isHolding = true;
    },
    letGo: () => {
      isHolding = false;
      for (const act of held.splice(0)) act();
    },
    forget: () => {
      isForgotten.yes = true;
      isForgotten = { yes: false };
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
