import type { EventName } from "../model/events.ts";
import type { DeliveryStatus } from "../model/statuses.ts";

/** The list's filters, each null when it was not asked for. They are ANDed. */
export type DeliveryFilter = {
  readonly status: DeliveryStatus | null;
  readonly event: EventName | null;
  readonly analysisId: string | null;
  /** Host name, or address literal, of the target; lower case, without the port. */
  readonly targetHost: string | null;
  readonly errorCode: string | null;
  readonly statusCode: number | null;
  /** Created at or after. */
  readonly createdAfter: Date | null;
  /** Created before. */
  readonly createdBefore: Date | null;
};

export const NO_FILTER: DeliveryFilter = {
  status: null,
  event: null,
  analysisId: null,
  targetHost: null,
  errorCode: null,
  statusCode: null,
  createdAfter: null,
  createdBefore: null,
};

export function isEverything(filter: DeliveryFilter): boolean {
  return Object.values(filter).every((asked) => asked === null);
}

/** A condition in SQL over `deliveries as d`, and the parameters that it names from `$first` on. */
export type Condition = { readonly text: string; readonly values: readonly unknown[] };

// Hosts are ASCII here, and by the rules of a language lower() takes two to three times as long.
const TARGET = `lower(coalesce(d.webhook_url, d.endpoint_url) collate "C")`;
const TARGET_HOST = `substring(${TARGET} from '^[^:]*://(\\[[^]]*\\]|[^/?:]*)')`;

/**
 * What an index answers: the account, the time (it stands in the id), and an analysis's id (through the registry).
 * A status that is undelivered has a partial index.
 */
export function indexedCondition(accountId: string, filter: DeliveryFilter, first: number): Condition {
  const condition = new ConditionBuilder(first);
  condition.add((n) => `d.account_id = ${n}`, accountId);
  if (filter.createdAfter) condition.add((n) => `d.id >= sealpost.uuid_v7_floor(${n})`, filter.createdAfter);
  if (filter.createdBefore) condition.add((n) => `d.id < sealpost.uuid_v7_floor(${n})`, filter.createdBefore);
  if (filter.analysisId !== null) {
    condition.add(
      (n) =>
        // By the parameter, not by d.account_id: then it is looked up once, and not for every row.
        `d.id = (select a.delivery_id from sealpost.analyses a where a.account_id = $${first} and a.id = ${n})`,
      filter.analysisId,
    );
  }
  // Written out, so that the planner sees that the partial index covers it.
  if (filter.status === "failed" || filter.status === "abandoned") {
    condition.add((n) => `d.status = ${n} and d.status in ('failed', 'abandoned')`, filter.status);
  }
  return condition.build();
}

/** What has to be looked up in each row. */
export function rowCondition(filter: DeliveryFilter, first: number): Condition {
  const condition = new ConditionBuilder(first);
  if (filter.status === "pending" || filter.status === "succeeded") {
    condition.add((n) => `d.status = ${n}`, filter.status);
  }
  if (filter.event !== null) condition.add((n) => `d.event = ${n}`, filter.event);
  if (filter.targetHost !== null) {
    // The first part refuses most rows without the regular expression, which costs ten times as much.
    condition.add((n) => `strpos(${TARGET}, ${n}) > 0 and ${TARGET_HOST} = ${n}`, filter.targetHost);
  }
  if (filter.errorCode !== null) condition.add((n) => `d.last_error_code = ${n}`, filter.errorCode);
  if (filter.statusCode !== null) condition.add((n) => `d.last_status_code = ${n}`, filter.statusCode);
  return condition.build();
}

class ConditionBuilder {
  readonly #first: number;
  readonly #parts: string[] = [];
  readonly #values: unknown[] = [];

  constructor(first: number) {
    this.#first = first;
  }

  add(text: (parameter: string) => string, value: unknown): void {
    this.#parts.push(text(`$${this.#first + this.#values.length}`));
    this.#values.push(value);
  }

  build(): Condition {
    return { text: this.#parts.join(" and ") || "true", values: this.#values };
  }
}
