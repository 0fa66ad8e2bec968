// Requests as bytes on a socket, for what no well-behaved client sends.
import { once } from "node:events";
import { connect, type Socket } from "node:net";

export type RawConnection = {
  readonly socket: Socket;
  /** Everything that has come. */
  received(): string;
  /** Resolves with it when the connection has ended. */
  readonly ended: Promise<string>;
};

export async function openRaw(port: number): Promise<RawConnection> {
  const socket = connect(port, "127.0.0.1");
  const { promise: ended, resolve: end } = Promise.withResolvers<string>();
  let text = "";
  socket.on("error", () => undefined);
  socket.setEncoding("latin1");
  socket.on("data", (chunk) => {
    text += chunk;
  });
  socket.once("close", () => end(text));
  await once(socket, "connect");
  return { socket, received: () => text, ended };
}

/** The head of a request; headers without a value are left out. */
export function rawHead(line: string, headers: Readonly<Record<string, string | number | null>>): string {
  const lines = Object.entries({ host: "x", ...headers }).flatMap(([name, value]) =>
    value === null ? [] : [`${name}: ${value}`],
  );
  return `${[`${line} HTTP/1.1`, ...lines].join("\r\n")}\r\n\r\n`;
}
