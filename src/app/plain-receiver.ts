import { once } from "node:events";
import { type AddressInfo, connect, type Socket } from "node:net";
import { createServer, type TLSSocket } from "node:tls";
import type { Config } from "../base/config/config.ts";
import { createAddressSet } from "../egress/rules/address.ts";
import { bareHost } from "../egress/rules/host.ts";
import type { ProbesOptions } from "../receivers/probes.ts";
import type { ReceiverReport } from "../receivers/receiver-check.ts";
import { createReceiverChecking } from "./egress.ts";
import { createLocalCertificate, type LocalCertificate } from "./local-certificate.ts";
import { UsageError } from "./output.ts";

const isLoopback = createAddressSet(["127.0.0.0/8", "::1"]);

/** Whether the URL's host is this machine, by its name or a loopback address. */
export function namesThisMachine({ hostname }: URL): boolean {
  return hostname === "localhost" || isLoopback(bareHost(hostname));
}

/** A receiver that somebody writes on this machine: plain HTTP, in development. Null: the text names none. */
export function plainReceiverIn(text: string, { environment }: Pick<Config, "environment">): URL | null {
  const url = URL.parse(text);
  if (environment !== "development" || url?.protocol !== "http:" || !namesThisMachine(url)) return null;
  return url.username === "" && url.password === "" && url.hash === "" ? url : null;
}

/**
 * Checks it through TLS that ends in this process, as a tunnel's does. So the check is that of every other receiver,
 * and the way out knows of no plain HTTP: the one target that is allowed is ours, and only who has our key is trusted.
 * @throws UsageError when nobody listens there
 */
export async function checkPlainReceiver(
  url: URL,
  config: Config,
  sent: ProbesOptions,
): Promise<ReceiverReport> {
  // Behind TLS, nobody there would look like a connection that breaks.
  const reached = await openLoopback(url).catch((cause) => {
    const why = (cause as NodeJS.ErrnoException).code ?? cause.message;
    throw new UsageError(`Nothing listens at ${url.origin} (${why}): start your receiver first.`, { cause });
  });
  reached.destroy();
  const certificate = createLocalCertificate(["localhost"], sent.nowMs);
  const front = await startFront(url, certificate);
  try {
    const target = new URL(`https://localhost:${front.port}${url.pathname}${url.search}`);
    const ours = { unsafeAllowedTargets: [target.host], targetDnsServers: null, egressProxyUrl: null };
    const report = await createReceiverChecking(
      { ...config, ...ours },
      certificate.cert,
    )({
      url: target,
      ...sent,
    });
    const shown = { tls_version: null, certificate_ends_at: null, certificate_days_left: null };
    return { ...report, url: url.href, connection: { ...report.connection, ...shown } };
  } finally {
    front.close();
  }
}

async function startFront(url: URL, { key, cert }: LocalCertificate) {
  const open = new Set<TLSSocket>();
  const server = createServer({ key, cert, ALPNProtocols: ["http/1.1"] }, (secured) => {
    open.add(secured);
    secured.once("close", () => open.delete(secured));
    secured.on("error", () => secured.destroy());
    openLoopback(url).then(
      (plain) => {
        plain.on("error", () => secured.destroy());
        secured.once("close", () => plain.destroy());
        secured.pipe(plain).pipe(secured);
      },
      () => secured.destroy(),
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      server.close();
      for (const secured of open) secured.destroy();
    },
  };
}

/** Connected, to this machine: a name may lead elsewhere. Nothing was written. */
async function openLoopback({ hostname, port }: URL): Promise<Socket> {
  const socket = connect({ host: bareHost(hostname), port: Number(port || 80) });
  await once(socket, "connect");
  if (isLoopback(socket.remoteAddress ?? "")) return socket;
  socket.destroy();
  throw new Error(`${hostname} is not this machine`);
}
