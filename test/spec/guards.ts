// Can it fail? Takes one guard after the other out of the specification, and out of the real SQL.
import { readFileSync } from "node:fs";
import { Chance } from "../simulation/chance.ts";
import { Spec } from "./quint.ts";
import { RealSql, type SqlGuard } from "./real-sql.ts";
import { playTrace, simulate, Violation } from "./searches.ts";

/** What the specification names as one. */
export function findGuards(): readonly string[] {
  const text = readFileSync(`${import.meta.dirname}/protocol.qnt`, "utf8");
  return [...new Set([...text.matchAll(/\b(?:guard|isOn)\("([^"]+)"/g)].map(([, name]) => name!))];
}

/** The invariant that is violated without the guard; null: none was in so many steps. */
export function findLossInSpec(guard: string, chance: Chance, steps: number): string | null {
  try {
    simulate(new Spec("short", [guard]), chance, steps, 60);
    return null;
  } catch (error) {
    if (error instanceof Violation) return error.invariant;
    throw error;
  }
}

const LEASE_IS_OVER = "(lease_until is null or lease_until <= at)";

export const SQL_GUARDS: readonly SqlGuard[] = [
  { name: "the fence", of: "record", text: " and o.lease_token = i.lease_token", without: "" },
  {
    name: "a replay supersedes an attempt under way",
    of: "record",
    text: "o.run <> i.run and i.status <> 'succeeded' as is_superseded",
    without: "false as is_superseded",
  },
  {
    name: "a claim leaves what is leased",
    of: "claim",
    text: "and (lease_until is null or lease_until <= coalesce($6::timestamptz, now()) or lease_token = $2::uuid)",
    without: "",
  },
  {
    name: "a claim leaves what is not due",
    of: "claim",
    text: "and due_at <= coalesce($6::timestamptz, now())",
    without: "",
  },
  {
    name: "no more attempts than a run has",
    of: "claim",
    text: "nullif(o.attempts_in_run + 1, $8::integer + 1)",
    without: "nullif(o.attempts_in_run + 1, $8::integer + 1000)",
  },
  {
    name: "a claim finds that the endpoint is paused",
    of: "claim",
    text: "endpoints.paused_at is not null and lease_number is not null",
    without: "false",
  },
  {
    name: "what was cut twice is posted alone",
    of: "claim",
    text: "interruptions >= $7::integer",
    without: "interruptions >= $7::integer + 1000",
  },
  { name: "a pause leaves what is leased", of: "gather", text: "and o.lease_token is null", without: "" },
  { name: "what is held is not open", of: "hold", text: "and e.paused_at is not null", without: "" },
  {
    name: "the leader wakes what was cut",
    of: "promote",
    text: LEASE_IS_OVER,
    without: "lease_until is null",
  },
  {
    name: "an expired delivery is not let go",
    of: "advance_holds",
    text: "and delivery_id >= kept_from",
    without: "",
  },
  {
    name: "parking leaves what is leased",
    of: "park_deliveries",
    text: "account_id = of_account and lease_token is null",
    without: "account_id = of_account",
  },
  {
    name: "a closed account takes no publication",
    of: "publish_each",
    text: "accounts.created_at is null or accounts.moved_to is not null",
    without: "accounts.created_at is null",
  },
];

/** What parts from the specification without the guard; null: nothing did in so many traces. */
export async function findLossInSql(
  guard: SqlGuard,
  urls: readonly [string, string],
  seed: number,
  traces: number,
): Promise<string | null> {
  const real = await RealSql.open(urls, guard);
  try {
    for (let trace = 0; trace < traces; trace++) {
      const spec = new Spec("short");
      try {
        await real.play(spec, playTrace(spec, new Chance(seed + trace), 60));
      } catch (error) {
        const { message, cause } = error as Error;
        return `${message.match(/(\w+) [^ ]*$/)?.[1]} (${String((cause as Error).message).split("\n")[0]})`;
      }
    }
    return null;
  } finally {
    await real.close();
  }
}
