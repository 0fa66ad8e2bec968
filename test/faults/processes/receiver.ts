// A customer's receiver in a process of its own: verifies every signature, tells of every arrival and every answer.
import { createHash } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { verifySignature } from "../../../src/signing/index.ts";
import { type ReceivedRequest, startReceiver } from "../../support/receiver.ts";
import type { Behaviour, FromReceiver, ToReceiver } from "../harness/arrival.ts";

const ID = /^\{"id":"([0-9a-f-]{36})"/;
const BEFORE_DATA = '"data":';

let secrets: readonly string[] = [];
let trouble: Behaviour | null = null;
const behaviours = new Map<string, Behaviour>();
/** By path, since it was told how to behave. */
const answers = new Map<string, number>();
const underWay = new Map<string, number>();
let arrivals = 0;

const receiver = await startReceiver({
  records: false,
  handler: async (request, response) => {
    const nth = arrivals++;
    const deliveryId = ID.exec(request.body.toString("latin1", 0, 60))?.[1] ?? "";
    const atOnce = (underWay.get(deliveryId) ?? 0) + 1;
    underWay.set(deliveryId, atOnce);
    response.on("close", () => {
      const left = (underWay.get(deliveryId) ?? 1) - 1;
      if (left > 0) underWay.set(deliveryId, left);
      else underWay.delete(deliveryId);
    });
    const signatures = countSignatures(request);
    tell({
      kind: "arrived",
      nth,
      arrival: {
        deliveryId,
        path: request.path,
        atMs: request.receivedAtMs,
        dataDigest: digestOfData(request.body),
        isSigned: signatures > 0,
        signatures,
        atOnce,
        answer: null,
      },
    });
    return await answer(nth, request.path);
  },
});

async function answer(nth: number, path: string) {
  const behaviour = { ...behaviours.get(path), ...trouble };
  const delayMs = (behaviour.delayMs ?? 0) + Math.random() * (behaviour.jitterMs ?? 0);
  if (delayMs > 0) await wait(delayMs);
  const answered = answers.get(path) ?? 0;
  if (behaviour.isSilent || answered >= (behaviour.answersMax ?? Number.POSITIVE_INFINITY)) return undefined;
  answers.set(path, answered + 1);
  const status = behaviour.status ?? 200;
  tell({ kind: "answered", nth, status, atMs: Date.now() });
  return { status, body: "", ...(behaviour.headers && { headers: behaviour.headers }) };
}

/** `data` is the body's last member, so its text ends before the last brace. */
function digestOfData(body: Buffer): string {
  const data = body.subarray(body.indexOf(BEFORE_DATA) + BEFORE_DATA.length, -1);
  return createHash("sha256").update(data).digest("hex");
}

function countSignatures({ body, headers }: ReceivedRequest): number {
  const header = headers["extract-signature"];
  if (typeof header !== "string") return 0;
  const [time, ...values] = header.split(",");
  const nowSeconds = Math.floor(Date.now() / 1000);
  return values.filter((value) => {
    try {
      verifySignature({ body, header: `${time},${value}`, secrets, nowSeconds });
      return true;
    } catch {
      return false;
    }
  }).length;
}

function tell(message: FromReceiver): void {
  process.send?.(message, undefined, undefined, () => undefined);
}

process.on("message", (message: ToReceiver) => {
  if (message.kind === "secrets") secrets = message.secrets;
  else if (message.kind === "behave") {
    behaviours.set(message.path, message.behaviour);
    answers.delete(message.path);
  } else trouble = message.trouble;
  tell({ kind: "done" });
});
process.on("disconnect", () => process.exit());
tell({ kind: "listening", port: receiver.port, caPem: receiver.caPem });
