import { allowTargets } from "../../support/installation.ts";
import { type NameServer, startNameServer } from "../../support/name-server.ts";
import { forwardFrom } from "../../support/ports.ts";
import { type Bench, untilAnswered } from "../bench.ts";
import { type BenchCase, type Figure, median } from "../figures.ts";

const RECEIVERS = 250;
const DEAD_NAMES = 1_000;
const DEAD_NAMES_OF_DOMAIN = 200;
const ROUNDS = 5;
/** As long as a receiver takes to answer that is no neighbour. */
const ANSWER_MS = 50;
const BATCH = 50;
const CLIENTS = 2;
/** What the consent of a new customer's receivers may cost. */
const GOAL_RATIO = 1.3;

export const newReceivers: BenchCase<Bench> = {
  name: "new-receivers",
  says:
    "250 receivers of one account that nobody has met, each at an address of its own, which answer after 50 ms, get " +
    "their first webhooks; then one more gets its first, whose account has just published for a thousand names that " +
    "do not exist, and another one, after 200 such names of its own domain. In turn, five times, where receivers " +
    "have to be proven and where they need not: the medians.",
  run: async (bench, tell) => {
    // Their addresses differ in the last byte.
    const receivers = Math.min(RECEIVERS, Math.ceil(RECEIVERS * bench.scale));
    const names = await startNameServer();
    const addresses = await serveAt(names, receivers, bench.receiverPort);
    const rounds: Record<"asked" | "without", Measured>[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const without = await measure(bench, { names, receivers, consent: "" });
      rounds.push({ without, asked: await measure(bench, { names, receivers, consent: "success" }) });
      tell(`round ${round + 1}: ${JSON.stringify(rounds.at(-1), (_, ms) => (ms > 0 ? Math.round(ms) : ms))}`);
    }
    const of = (which: "asked" | "without", what: keyof Measured) =>
      median(rounds.map((round) => round[which][what]));
    const [asked, without] = [of("asked", "allMs"), of("without", "allMs")];
    for (const address of addresses) address.close();
    await names.close();
    return [
      { name: "their first webhooks", value: asked, unit: "ms" },
      { name: "without consent", value: without, unit: "ms" },
      { name: "÷ without", value: asked / without, unit: "", goal: { atMost: GOAL_RATIO } },
      { name: "one behind dead names", value: of("asked", "oneMs"), unit: "ms" },
      { name: "the same without consent", value: of("without", "oneMs"), unit: "ms" },
      { name: "one behind dead names of its domain", value: of("asked", "ofDomainMs"), unit: "ms" },
      { name: "the same without consent", value: of("without", "ofDomainMs"), unit: "ms" },
    ] satisfies Figure[];
  },
};

/** One address for each name. */
async function serveAt(names: NameServer, receivers: number, port: number) {
  return await Promise.all(
    Array.from({ length: receivers + 1 }, async (_, n) => {
      const address = `127.1.0.${n + 1}`;
      names.script(`r${n}.many.test`, [[address]]);
      return await forwardFrom(address, port);
    }),
  );
}

type Measured = { readonly allMs: number; readonly oneMs: number; readonly ofDomainMs: number };

async function measure(
  bench: Bench,
  { names, receivers, consent }: { names: NameServer; receivers: number; consent: string },
): Promise<Measured> {
  const database = await bench.server.createDatabase();
  const targets = [`*.many.test:${bench.receiverPort}`, `*.dead.test:${bench.receiverPort}`];
  await allowTargets(database.pool, targets);
  await bench.behave({ delayMs: ANSWER_MS });
  const publisher = bench.startPublisher(database);
  const inFlightMax = bench.inFlightMax ?? 1_000;
  const env = {
    TARGET_CONSENT: consent,
    TARGET_DNS_SERVERS: names.address,
    UNSAFE_ALLOWED_TARGETS: targets.join(","),
  };
  const dispatcher = await bench.startDispatcher(database, { inFlightMax, env });
  const { answered: base } = await bench.received();
  const publish = async (accountId: string | undefined, label: string, total: number) => {
    const webhookUrls = { pattern: `https://${label}.test:${bench.receiverPort}/hook`, count: total };
    const stream = { accountIds: [accountId], batch: Math.min(BATCH, total), webhookUrls };
    await publisher.ask("publishAhead", { ...stream, clients: CLIENTS, aheadMax: 1_000_000, total });
    await publisher.ask("finish");
  };
  const startedAtMs = performance.now();
  await publish(bench.server.accountIds[0], "r{n}.many", receivers);
  await untilAnswered(bench, receivers, null, base);
  const allMs = performance.now() - startedAtMs;

  const oneBehind = async (index: number, dead: string, count: number): Promise<number> => {
    await publish(bench.server.accountIds[index], dead, count);
    const publishedAtMs = performance.now();
    await publish(bench.server.accountIds[index], `r${receivers}.many`, 1);
    await untilAnswered(bench, receivers + index, null, base);
    return performance.now() - publishedAtMs;
  };
  const oneMs = await oneBehind(1, "r{n}.dead", DEAD_NAMES);
  const ofDomainMs = await oneBehind(2, "dead{n}.many", DEAD_NAMES_OF_DOMAIN);
  await publisher.stop();
  await dispatcher.stop();
  await database.drop();
  return { allMs, oneMs, ofDomainMs };
}
