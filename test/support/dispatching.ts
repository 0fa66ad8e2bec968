// A complete dispatcher in the test's process, on a test database, with everything it does observed.
import { randomUUID } from "node:crypto";
import { EventEmitter, once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { inject } from "vitest";
import {
  type DispatchProcess,
  type DispatchProcessOptions,
  openDispatcherPools,
  startDispatching,
} from "../../src/app/dispatch-process.ts";
import { createEgress } from "../../src/app/egress.ts";
import { type Config, readConfig } from "../../src/base/config/config.ts";
import { createMetricsRegistry } from "../../src/base/metrics/registry.ts";
import type { LeasedDelivery } from "../../src/delivery/claim-sql.ts";
import type { Delivered } from "../../src/delivery/deliver.ts";
import { createProcessMetrics } from "../../src/delivery/process-metrics.ts";
import type { Recorded } from "../../src/delivery/recorder.ts";
import type { TestDatabase } from "./database.ts";
import { SECRETS_KEY } from "./installation.ts";
import type { Receiver } from "./receiver.ts";
import { patience, patientSignal } from "./time-limits.ts";

export type RecordedAttempt = { delivery: LeasedDelivery; delivered: Delivered; recorded: Recorded };

export type TestDispatcher = {
  readonly process: DispatchProcess;
  readonly attempts: readonly RecordedAttempt[];
  readonly failures: readonly { work: string; error: unknown }[];
  readonly quarantined: readonly string[];
  /** Resolves with the first `count` recorded attempts. */
  waitForAttempts(count: number, timeoutMs?: number): Promise<readonly RecordedAttempt[]>;
  stop(): Promise<void>;
};

/** Environment variables of a process that may deliver to them, and trusts them. */
export function targetsEnv(receivers: readonly Pick<Receiver, "port" | "caPem">[]) {
  const caFile = join(inject("runFolder"), `${randomUUID()}.pem`);
  writeFileSync(caFile, receivers.map((receiver) => receiver.caPem).join("\n"));
  return { TARGET_CA_FILE: caFile, UNSAFE_ALLOWED_TARGETS: unsafeAllowed(receivers).join(",") };
}

/** `env`: environment variables; short times by default. Only the receivers are allowed targets. */
export function testConfig(receivers: readonly Receiver[], env: Record<string, string> = {}): Config {
  return readConfig({
    ...targetsEnv(receivers),
    ATTEMPT_DEADLINE_MS: String(patience(2_000)),
    DISPATCH_IN_FLIGHT_MAX: "100",
    ...env,
  });
}

export function startTestDispatcher(
  database: TestDatabase,
  receivers: readonly Receiver[],
  env: Record<string, string> = {},
  more: Pick<DispatchProcessOptions, "laneInFlightMax" | "onPublished"> = {},
): TestDispatcher {
  const config = testConfig(receivers, env);
  const events = new EventEmitter();
  const attempts: RecordedAttempt[] = [];
  const failures: { work: string; error: unknown }[] = [];
  const quarantined: string[] = [];
  const metrics = createProcessMetrics(createMetricsRegistry());
  const options: DispatchProcessOptions = {
    ...more,
    databaseUrl: database.url,
    config,
    egress: createEgress(config, patience(1_000)),
    secretsKey: config.secretsKey?.export() ?? SECRETS_KEY,
    log: pino({ level: "silent" }),
    random: Math.random,
    metrics,
    observer: {
      attemptRecorded: (delivery, delivered, recorded) => {
        attempts.push({ delivery, delivered, recorded });
        events.emit("attempt");
      },
      mustBeQuarantined: (deliveryId) => {
        quarantined.push(deliveryId);
        events.emit("quarantined");
      },
      overflowed: () => undefined,
      failed: (work, error) => {
        failures.push({ work, error });
        events.emit("failure");
      },
    },
  };
  const pools = openDispatcherPools(options, metrics.database);
  const process = startDispatching(options, pools);
  return {
    process,
    attempts,
    failures,
    quarantined,
    waitForAttempts: async (count, timeoutMs = 10_000) => {
      const signal = patientSignal(timeoutMs);
      while (attempts.length < count) {
        await once(events, "attempt", { signal }).catch((cause) => {
          const seen = `${attempts.length} of ${count} attempts after ${patience(timeoutMs)} ms`;
          throw new Error(`${seen}; failures: ${failures.map(({ error }) => String(error)).join("; ")}`, {
            cause,
          });
        });
      }
      return attempts.slice(0, count);
    },
    stop: async () => {
      await process.stop();
      await pools.end();
    },
  };
}

/** `host:port` of every name of the receivers. */
export function unsafeAllowed(receivers: readonly Pick<Receiver, "port">[]): string[] {
  return receivers.flatMap(({ port }) => [`localhost:${port}`, `127.0.0.1:${port}`, `*.localhost:${port}`]);
}
