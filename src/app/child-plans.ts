import { fileURLToPath } from "node:url";
import type { Config } from "../config/config.ts";
import type { ProcessContext } from "./process-context.ts";
import type { ChildPlan } from "./supervisor.ts";

const mainFile = fileURLToPath(new URL("../main.ts", import.meta.url));

/** The processes that the service consists of, beside its database. */
export function childPlans({ env }: ProcessContext, config: Config, databaseUrl: string): ChildPlan[] {
  const { metricsPort } = config;
  const ours = { ...env, DATABASE_URL: databaseUrl };
  // Both would listen on one port; 0 is any free one for each.
  const next = metricsPort === 0 ? "0" : `${metricsPort + 1}`;
  return [
    { name: "API", file: mainFile, args: ["serve"], env: ours },
    { name: "dispatcher", file: mainFile, args: ["dispatch"], env: { ...ours, METRICS_PORT: next } },
  ];
}
