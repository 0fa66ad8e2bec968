// A TLS 1.3 receiver that writes records of its own making into an established connection: what node:tls, like every
// sensible library, has no call for.
import { createCipheriv, createHmac } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { createSecureContext, TLSSocket } from "node:tls";

/** Content types of TLS 1.3 records, inside the encryption. */
export const HANDSHAKE = 22;
export const APPLICATION_DATA = 23;
/** A handshake message: the sender goes on with new keys, and asks for nothing in return. */
export const KEY_UPDATE = Buffer.from([24, 0, 0, 1, 0]);

/** Seals records under the server's keys, as they are by then. */
export type Sealing = {
  record(type: number, content: Buffer): Buffer;
  /** What follows a KEY_UPDATE is under the next keys. */
  updateKeys(): void;
};

export type RecordsServer = { readonly port: number; close(): Promise<void> };

/** Calls `makeRecords` again and again, from a connection's first bytes of a request on, until it is closed. */
export async function startRecordsServer(options: {
  readonly key: string;
  readonly cert: string;
  readonly makeRecords: (sealing: Sealing) => Buffer;
}): Promise<RecordsServer> {
  const sockets = new Set<Socket>();
  const server = createServer((transport) => {
    sockets.add(transport);
    transport.on("error", () => undefined);
    transport.on("close", () => sockets.delete(transport));
    const { secured, sealing } = takeOver(transport, options);
    secured.once("data", async () => {
      // With it go the tickets of the handshake: from here on the connection has no records but ours.
      await new Promise((resolve) => secured.write("\r\n", resolve));
      while (!transport.destroyed) {
        const hasRoom = transport.write(options.makeRecords(sealing()));
        if (!hasRoom)
          await Promise.race([once(transport, "drain"), once(transport, "close")]).catch(() => undefined);
        else await new Promise(setImmediate);
      }
    });
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Lets node:tls make the handshake, and notes its secret and how many records it has sent under it. */
function takeOver(transport: Socket, { key, cert }: { readonly key: string; readonly cert: string }) {
  let hasFinished = false;
  let sentRecords = 0;
  let secret: Buffer | null = null;
  const between = new Duplex({
    read: () => undefined,
    write: (bytes: Buffer, _encoding, done) => {
      if (hasFinished) sentRecords += countRecords(bytes);
      transport.write(bytes, () => done());
    },
    final: (done) => transport.end(() => done()),
  });
  transport.on("data", (bytes) => {
    // All that the server sends before it has the client's second flight is under the keys of the handshake.
    hasFinished ||= secret !== null;
    between.push(bytes);
  });
  transport.on("end", () => between.push(null));
  const secured = new TLSSocket(between, {
    isServer: true,
    secureContext: createSecureContext({
      key,
      cert,
      minVersion: "TLSv1.3",
      ciphers: "TLS_AES_128_GCM_SHA256",
    }),
  });
  secured.on("error", () => undefined);
  secured.on("keylog", (line: Buffer) => {
    const [label, , value] = line.toString().trim().split(" ");
    if (label === "SERVER_TRAFFIC_SECRET_0") secret = Buffer.from(value!, "hex");
  });
  let made: Sealing | null = null;
  return {
    secured,
    sealing: () => {
      made ??= createSealing(secret!, sentRecords);
      return made;
    },
  };
}

function countRecords(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt16BE(at + 3)) count++;
  return count;
}

/** RFC 8446, 5.2, 7.2 and 7.3, for TLS_AES_128_GCM_SHA256. */
function createSealing(firstSecret: Buffer, firstSequence: number): Sealing {
  let secret = firstSecret;
  let sequence = firstSequence;
  let keys = keysOf(secret);
  return {
    record: (type, content) => {
      const nonce = Buffer.from(keys.iv);
      nonce.writeUInt32BE((nonce.readUInt32BE(8) ^ sequence++) >>> 0, 8);
      const header = Buffer.from([APPLICATION_DATA, 3, 3, 0, 0]);
      header.writeUInt16BE(content.length + 1 + 16, 3);
      const cipher = createCipheriv("aes-128-gcm", keys.key, nonce).setAAD(header);
      const sealed = [cipher.update(content), cipher.update(Buffer.from([type])), cipher.final()];
      return Buffer.concat([header, ...sealed, cipher.getAuthTag()]);
    },
    updateKeys: () => {
      secret = expandLabel(secret, "traffic upd", 32);
      keys = keysOf(secret);
      sequence = 0;
    },
  };
}

function keysOf(secret: Buffer) {
  return { key: expandLabel(secret, "key", 16), iv: expandLabel(secret, "iv", 12) };
}

function expandLabel(secret: Buffer, label: string, bytes: number): Buffer {
  const name = Buffer.from(`tls13 ${label}`);
  const info = Buffer.concat([Buffer.from([0, bytes, name.length]), name, Buffer.from([0, 1])]);
  return createHmac("sha256", secret).update(info).digest().subarray(0, bytes);
}
