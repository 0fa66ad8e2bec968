// The limit: what is left when everything but signing and posting is taken away. No database, no checks, no records.
import { randomBytes } from "node:crypto";
import { Client, type Dispatcher } from "undici";
import { importSigningKey, SIGNATURE_HEADER, signatureHeader } from "../../../src/signing/index.ts";
import { analysisText } from "../analysis.ts";
import { answerQuestions } from "./answering.ts";

export type LimitWish = {
  readonly inFlight: number;
  readonly durationMs: number;
  /** `request`: undici's usual way. `handler`: its lowest one, `dispatch` with a handler that does nothing. */
  readonly way: LimitWay;
};
export type LimitWay = "request" | "handler";
export type LimitMeasured = { readonly perSecond: number; readonly cpuMicroseconds: number };

const { port, caPem, hosts } = JSON.parse(process.env.BENCH_INPUT ?? "") as {
  port: number;
  caPem: string;
  hosts: number;
};

const key = importSigningKey(`whsec_${randomBytes(32).toString("base64")}`);
const createdAt = new Date().toISOString();
const data = analysisText("limit", 0);
const id = "0190b1a0-0000-7000-8000-000000000000";
const body = Buffer.from(
  `{"id":"${id}","event":"analysis.succeeded","created_at":"${createdAt}","data":${data}}`,
);

/** Connections that nobody uses now, by host; each is a client of its own, and all are kept. */
const idle: Client[][] = Array.from({ length: hosts }, () => []);

function takeClient(host: number): Client {
  return (
    idle[host]?.pop() ??
    new Client(`https://h${host}.many.localhost:${port}`, {
      allowH2: false,
      keepAliveTimeout: 600_000,
      keepAliveMaxTimeout: 600_000,
      connect: {
        ca: caPem,
        lookup: (_name, _options, callback) => callback(null, [{ address: "127.0.0.1", family: 4 }]),
      },
    })
  );
}

function signedPost(): Dispatcher.RequestOptions {
  const timestampSeconds = Math.floor(Date.now() / 1000);
  return {
    method: "POST",
    path: "/hook",
    headers: {
      "content-type": "application/json",
      [SIGNATURE_HEADER]: signatureHeader({ timestampSeconds, body, keys: [key] }),
    },
    body,
  };
}

async function byRequest(client: Client): Promise<void> {
  const answer = await client.request(signedPost());
  await answer.body.dump();
  if (answer.statusCode !== 200) throw new Error(`The receiver answered ${answer.statusCode}.`);
}

function byHandler(client: Client): Promise<void> {
  return new Promise((resolve, reject) => {
    client.dispatch(signedPost(), {
      onRequestStart: () => undefined,
      onResponseStart: () => undefined,
      onResponseData: () => undefined,
      onResponseEnd: () => resolve(),
      onResponseError: (_controller, error) => reject(error),
    });
  });
}

async function measure({ inFlight, durationMs, way }: LimitWish): Promise<LimitMeasured> {
  const post = way === "request" ? byRequest : byHandler;
  let host = 0;
  let posted = 0;
  let isOver = false;
  const loop = async () => {
    while (!isOver) {
      host = (host + 1) % hosts;
      const mine = host;
      const client = takeClient(mine);
      await post(client);
      idle[mine]?.push(client);
      posted += 1;
    }
  };
  const cpuBefore = process.cpuUsage();
  const startedAtMs = performance.now();
  setTimeout(() => {
    isOver = true;
  }, durationMs);
  await Promise.all(Array.from({ length: inFlight }, loop));
  const cpu = process.cpuUsage(cpuBefore);
  return {
    perSecond: (posted * 1000) / (performance.now() - startedAtMs),
    cpuMicroseconds: (cpu.user + cpu.system) / posted,
  };
}

answerQuestions({ measure });
