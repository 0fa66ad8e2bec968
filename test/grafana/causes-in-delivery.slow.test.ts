// What becomes of deliveries and mails: receivers that are slow, our own way out, secrets, clocks.
import { afterAll, beforeAll } from "vitest";
import { DAY_MS } from "../../src/base/model/time.ts";
import { playCauses, startAlerting } from "../support/alert-causes.ts";
import { sharedAuthority } from "../support/certificates.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { targetsEnv } from "../support/dispatching.ts";
import { type EgressProxyOptions, startEgressProxy, type TestEgressProxy } from "../support/egress-proxy.ts";
import { changeRows, countRows, createTestAccount, insertRow, publishAny } from "../support/installation.ts";
import type { Prometheus } from "../support/prometheus.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { MAIL } from "../support/sealpost-api.ts";
import { type SealpostProcess, startProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

/** Few, so that few slow receivers hold them all. */
const PLACES = 16;
/** More than the alert on the success rate wants to have seen. */
const MANY = 120;

/** SIGUSR2 sets the process's clock an hour ahead, and back. */
const CLOCK = `
const Real = Date;
let aheadMs = 0;
process.on("SIGUSR2", () => { aheadMs = 3_600_000 - aheadMs; });
globalThis.Date = class extends Real {
  constructor(...given) { super(...(given.length === 0 ? [Real.now() + aheadMs] : given)); }
  static now() { return Real.now() + aheadMs; }
};`;

let database: TestDatabase;
/** They answer at once, wait at the gate, show a certificate that expires. */
let steadyReceiver: Receiver;
let slowReceiver: Receiver;
let expiringReceiver: Receiver;
let proxy: TestEgressProxy;
let dispatcher: SealpostProcess;
let prometheus: Prometheus;
const way: EgressProxyOptions = {};

/** Accounts with such endpoints. */
let steady: string[];
let slow: string[];
let warned: string;
let gate = Promise.withResolvers<void>();
const openGate = () => gate.resolve();
openGate();

beforeAll(async () => {
  database = await createTestDatabase();
  steadyReceiver = await startReceiver();
  slowReceiver = await startReceiver({ handler: () => gate.promise.then(() => ({})) });
  const notAfter = new Date(Date.now() + 3 * DAY_MS);
  const certificate = await (await sharedAuthority()).issue({ names: ["localhost"], notAfter });
  expiringReceiver = await startReceiver({ certificate });
  proxy = await startEgressProxy(way);
  const env = {
    DATABASE_URL: database.url,
    ...targetsEnv([steadyReceiver, slowReceiver, expiringReceiver]),
    EGRESS_PROXY_URL: `http://127.0.0.1:${proxy.port}`,
    DISPATCH_IN_FLIGHT_MAX: String(PLACES),
    RETRY_WINDOW_SECONDS: "10",
    ATTEMPT_DEADLINE_MS: "120000",
    // Nobody listens there.
    ...MAIL,
  };
  const clock = `data:text/javascript,${encodeURIComponent(CLOCK)}`;
  dispatcher = await startProcess("dispatch", env, { nodeFlags: ["--import", clock] });
  steady = await accountsWith(steadyReceiver.url("/").href, 2);
  slow = await accountsWith(slowReceiver.url("/").href, 24);
  [warned] = (await accountsWith(expiringReceiver.url("/").href, 1)) as [string];
  prometheus = await startAlerting({ "sealpost-dispatch": [dispatcher.metricsHost] });
}, patience(60_000));
afterAll(async () => {
  openGate();
  await prometheus.close();
  await dispatcher.stop();
  await proxy.close();
  await Promise.all([steadyReceiver.close(), slowReceiver.close(), expiringReceiver.close()]);
  await database.drop();
});

playCauses(
  () => prometheus,
  [
    {
      what: "after many successes the egress proxy's rules refuse every target",
      alerts: ["SealpostSuccessRateFell"],
      begin: async () => {
        // A series begins with its first success, which no rate has in it.
        await publishTo(steady);
        await untilSucceeded("sealpost_attempts_total");
        await publishTo(steady, MANY / steady.length);
        await untilSucceeded("increase(sealpost_attempts_total[15s])", 100);
        changeWay("HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        await publishTo(steady, MANY / steady.length);
      },
      end: () => changeWay(undefined),
    },
    {
      what: "the egress proxy wants another password",
      alerts: ["SealpostEgressProxyDown"],
      begin: async () => {
        changeWay("HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n");
        await publishTo(steady, 5);
      },
      end: () => changeWay(undefined),
    },
    {
      what: "for two hours a receiver has got more than it can take",
      alerts: ["SealpostReceiverBehind"],
      begin: async () => {
        closeGate();
        await publishTo(slow.slice(0, 1), 5);
        await untilAtGate(1);
        await makeOlder(slow, "2 hours");
      },
      end: openGate,
    },
    {
      what: "for three minutes receivers have been slow that have every place of the dispatcher",
      alerts: ["SealpostDispatchersFull", "SealpostDeliveriesOverdue"],
      begin: async () => {
        // Those that have answered may have all places.
        await publishTo(slow);
        await untilDelivered(slow);
        closeGate();
        await publishTo(slow);
        await untilAtGate(PLACES);
        await makeOlder(slow, "3 minutes");
      },
      end: openGate,
    },
    {
      what: "a dispatcher's clock is an hour ahead",
      alerts: ["SealpostClockOff"],
      begin: () => dispatcher.child.kill("SIGUSR2"),
      end: () => dispatcher.child.kill("SIGUSR2"),
    },
    {
      what: "a certificate expires in three days, and the mail server of whom to tell is away",
      alerts: ["SealpostMailsNotSent"],
      begin: async () => {
        for (const name of ["ada", "bob", "eve", "joe", "kim"]) {
          const address = `${name}@example.com`;
          const recipient = { account_id: warned, address, confirmed_at: new Date() };
          await insertRow(database.pool, "notice_recipients", recipient);
        }
        await publishTo([warned]);
      },
    },
    {
      what: "an account's signing secret cannot be opened",
      alerts: ["SealpostFaults"],
      begin: async () => {
        const [account_id] = await accountsWith(steadyReceiver.url("/").href, 1);
        await changeRows(database.pool, "signing_secrets", { account_id }, { sealed: Buffer.alloc(1) });
        await publishTo([account_id!], 10);
      },
    },
  ],
);

async function accountsWith(endpointUrl: string, count: number): Promise<string[]> {
  const made = Array.from({ length: count }, () => createTestAccount(database, endpointUrl));
  return (await Promise.all(made)).map(({ accountId }) => accountId);
}

/** So many to each. */
async function publishTo(accountIds: readonly string[], count = 1): Promise<void> {
  for (const id of accountIds) await publishAny(database.pool, id, count);
}

/** Prometheus finds that more than so many attempts have succeeded. */
async function untilSucceeded(counted: string, count = 0): Promise<void> {
  const expression = `${counted.replace("_total", '_total{outcome="succeeded"}')} > ${count}`;
  await prometheus.until(
    () => prometheus.query(expression),
    ({ length }) => length > 0,
    30_000,
  );
}

/** What the egress proxy answers from now on, also to those that it has let through; absent: it lets them through. */
function changeWay(answer: string | undefined): void {
  if (answer === undefined) delete way.answer;
  else way.answer = answer;
  steadyReceiver.dropConnections();
}

let passed = 0;
function closeGate(): void {
  passed = slowReceiver.requests.length;
  gate = Promise.withResolvers();
}

const untilAtGate = (count: number) => slowReceiver.waitForRequests(passed + count);

async function untilDelivered(accountIds: readonly string[]): Promise<void> {
  const countOpen = () => countRows(database.pool, "open_deliveries", { account_id: accountIds });
  await prometheus.until(countOpen, (open) => open === 0, 30_000);
}

/** What waits, and is not under way. */
async function makeOlder(accountIds: readonly string[], by: string): Promise<void> {
  await database.pool.query(
    `update sealpost.open_deliveries set due_at = due_at - $2::interval
     where account_id = any ($1) and coalesce(lease_until < now(), true)`,
    [accountIds, by],
  );
}
