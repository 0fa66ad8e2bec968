import { z } from "zod";
import { DAY_SECONDS, isTimeZone } from "../../base/model/time.ts";

export const WAIT_SECONDS_MAX = 30 * DAY_SECONDS;
/** As long as an analysis can be read, by default. */
export const EXTERNAL_SECONDS_MAX = 7 * DAY_SECONDS;
export const TOP_WORDS_MAX = 50;
const TOP_WORDS_DEFAULT = 10;

export const CATCH_UP_SECONDS_MAX = 7 * DAY_SECONDS;
const CATCH_UP_SECONDS_DEFAULT = 3_600;

/** How requests to a hook show whose they are. */
export const HOOK_AUTH_MODES = ["plain", "signature"] as const;

/** Times that PostgreSQL and four digits of a year have. */
const UNTIL_MIN_MS = 0;
const UNTIL_MAX_MS = Date.UTC(10_000, 0) - 1;

const until = z.iso
  .datetime({ offset: true })
  .refine((text) => Date.parse(text) >= UNTIL_MIN_MS && Date.parse(text) <= UNTIL_MAX_MS, {
    error: "Must be between the years 1970 and 9999.",
  });

/** Each kind of node with its parameters. What a kind does is another matter: see the runs. */
export const nodeParameters = {
  /** Where a run begins, with its input for an item. */
  manual_trigger: z.strictObject({}),
  /** Where runs begin by themselves, when the clocks of a place show a time. */
  schedule_trigger: z.strictObject({
    cron: z
      .string()
      .max(100)
      .describe("Five fields: minute, hour, day of the month, month, day of the week (0 is Sunday)."),
    time_zone: z
      .string()
      .max(64)
      .refine((name) => /^[A-Za-z]/.test(name) && isTimeZone(name), {
        error: "Must be a time zone, such as Europe/Berlin.",
      })
      .default("UTC")
      .describe("Whose clocks show these times, in the names of IANA."),
    catch_up_seconds: z
      .int()
      .min(60)
      .max(CATCH_UP_SECONDS_MAX)
      .default(CATCH_UP_SECONDS_DEFAULT)
      .describe("How late a run may begin. Of several times that were missed, the last one gets a run."),
  }),
  /** Where runs begin with what somebody posts to the workflow's hook. */
  hook_trigger: z.strictObject({
    auth_mode: z
      .enum(HOOK_AUTH_MODES)
      .describe("`plain`: the hook's URL is enough. `signature`: requests are signed with its secret, too."),
  }),
  /** An item for each document that lies there. */
  documents: z.strictObject({
    folder_id: z
      .guid()
      .toLowerCase()
      .nullable()
      .default(null)
      .describe("A folder of the space; null: the space's top."),
  }),
  /** Hands its items on later. */
  wait: z
    .strictObject({
      for_seconds: z.int().min(1).max(WAIT_SECONDS_MAX).optional(),
      until: until.optional().describe("A time in the past is no wait."),
    })
    .refine((wait) => (wait.for_seconds === undefined) !== (wait.until === undefined), {
      error: "Give either for_seconds or until.",
    })
    .describe("Either for_seconds or until."),
  /** Looks at each document. */
  analyze: z.strictObject({
    top_words: z
      .int()
      .min(1)
      .max(TOP_WORDS_MAX)
      .default(TOP_WORDS_DEFAULT)
      .describe("How many of the most frequent words it lists."),
  }),
  /** Waits for an analysis that somebody else publishes, and hands it on. */
  external_analysis: z.strictObject({
    timeout_seconds: z
      .int()
      .min(1)
      .max(EXTERNAL_SECONDS_MAX)
      .default(EXTERNAL_SECONDS_MAX)
      .describe("How long it waits for the analysis. Then the run fails."),
  }),
} as const satisfies Readonly<Record<string, z.ZodType>>;

export type NodeKind = keyof typeof nodeParameters;

export const NODE_KINDS = Object.keys(nodeParameters) as readonly NodeKind[];

/** What a run works on comes from these; the others make it of that. */
export const SOURCE_KINDS: readonly NodeKind[] = [
  ...(["manual_trigger", "schedule_trigger", "hook_trigger"] as const),
  ...(["documents", "external_analysis"] as const),
];

/** Those at which runs begin; whatever it is, a run can also be started by hand. */
export const TRIGGER_KINDS = [
  "manual_trigger",
  "schedule_trigger",
  "hook_trigger",
] as const satisfies readonly NodeKind[];
export type TriggerKind = (typeof TRIGGER_KINDS)[number];

export function isTriggerKind(kind: NodeKind): kind is TriggerKind {
  return TRIGGER_KINDS.some((one) => one === kind);
}
