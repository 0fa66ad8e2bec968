import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Command } from "@commander-js/extra-typings";
import { type Logger, pino } from "pino";
import { readConfig } from "../config/read-config.ts";
import { deliverAlone } from "../dispatch/alone.ts";
import { createAttemptLog } from "../dispatch/attempt-log.ts";
import { type DispatchProcessOptions, startDispatching } from "../dispatch/process.ts";
import { Suspects } from "../dispatch/suspects.ts";
import { databaseUrlOf, secretsKeyOf } from "./state-folder.ts";
import type { Surroundings } from "./surroundings.ts";

const PROGRAM = fileURLToPath(new URL("../main.ts", import.meta.url));

export function addDispatchCommand(program: Command, surroundings: Surroundings): void {
  program
    .command("dispatch")
    .description("deliver what was published: run as many of these as you like beside one database")
    .option("--alone <delivery-id>", "post this one delivery and end (used by dispatch itself)")
    .option("--json", "no difference: the log is JSON always")
    .action(async ({ alone }) => {
      const asked = surroundings.untilAskedToEnd();
      const options = await readOptions(surroundings);
      if (alone !== undefined) {
        await deliverAlone(options, alone);
        return;
      }
      const { unsafeAllowedTargets } = options.config;
      if (unsafeAllowedTargets)
        options.log.warn({ unsafeAllowedTargets }, "UNSAFE: webhooks may go to private targets");
      const dispatching = startDispatching(options);
      surroundings.tellParent({ ready: true });
      options.log.info({ in_flight_max: options.config.dispatchInFlightMax }, "dispatching");
      if (!asked.aborted) await once(asked, "abort");
      options.log.info("stopping: nothing more is claimed, what is under way is finished");
      await dispatching.stop();
      options.log.info("stopped");
    });
}

async function readOptions(surroundings: Surroundings): Promise<DispatchProcessOptions> {
  const config = readConfig(surroundings.env);
  const log = pino({ level: config.logLevel, base: { process: "dispatch" } }, surroundings.stdout);
  const suspects = new Suspects((deliveryId) => runAlone(deliveryId, surroundings, log));
  return {
    config,
    databaseUrl: await databaseUrlOf(config),
    secretsKey: await secretsKeyOf(config),
    log,
    random: surroundings.random,
    wallClockMs: surroundings.now,
    observer: createAttemptLog(log, (deliveryId) => suspects.add(deliveryId)),
  };
}

/** Its end is enough to know: the row tells the rest, and a child that dies leaves its lease behind. */
async function runAlone(deliveryId: string, { env }: Surroundings, log: Logger): Promise<void> {
  const child = fork(PROGRAM, ["dispatch", "--alone", deliveryId], { env: { ...env } });
  const [code, signal] = await once(child, "exit");
  log.info({ delivery_id: deliveryId, code, signal }, "the process that posted it alone has ended");
}
