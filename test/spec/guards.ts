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

const guard = (name: string, of: string, text: string, without = ""): SqlGuard => ({
  name,
  changes: [{ of, text, without }],
});

export const SQL_GUARDS: readonly SqlGuard[] = [
  guard("the fence", "record", " and o.lease_token = i.lease_token"),
  guard(
    "a replay supersedes an attempt under way",
    "record",
    "o.run <> i.run and i.status <> 'succeeded' as is_superseded",
    "false as is_superseded",
  ),
  {
    name: "a claim leaves what is leased",
    changes: [
      {
        of: "claim",
        text: "(lease_until is null or lease_until <= coalesce($6::timestamptz, now()) or lease_token = $2::uuid)",
        without: "true",
      },
      {
        of: "recover",
        text: "lease_until <= coalesce($2::timestamptz, now())",
        without: "$2::timestamptz is not null",
      },
    ],
  },
  guard("a claim leaves what is not due", "claim", "and due_at <= coalesce($6::timestamptz, now())"),
  guard(
    "no more attempts than a run has",
    "claim",
    "nullif(o.attempts_in_run + 1, $8::integer + 1)",
    "nullif(o.attempts_in_run + 1, $8::integer + 1000)",
  ),
  guard(
    "a claim finds that the endpoint is paused",
    "claim",
    "endpoints.paused_at is not null and lease_number is not null",
    "false",
  ),
  guard(
    "what was cut twice is posted alone",
    "claim",
    "interruptions >= $7::integer",
    "interruptions >= $7::integer + 1000",
  ),
  {
    name: "a pause leaves what is leased",
    changes: [
      { of: "gather", text: "and looked.lease_token is null", without: "" },
      { of: "gather", text: "and o.lease_token is null", without: "" },
      { of: "hold", text: "o.lease_token is null and", without: "" },
    ],
  },
  guard("the leader wakes what was cut", "promote", LEASE_IS_OVER, "lease_until is null"),
  {
    name: "what has expired is not let go",
    changes: [
      { of: "advance_holds", text: "if holder.has_expired then", without: "if false then" },
      { of: "advance_holds", text: "and delivery_id >= kept_from", without: "" },
    ],
  },
  {
    ...guard(
      "parking leaves what is leased",
      "park_deliveries",
      "account_id = of_account and lease_token is null",
      "account_id = of_account",
    ),
    moves: true,
  },
  {
    ...guard(
      "a closed account takes no publication",
      "publish_each",
      "accounts.created_at is null or accounts.moved_to is not null",
      "accounts.created_at is null",
    ),
    moves: true,
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
      const spec = new Spec(guard.moves ? "short" : "unmoved");
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
