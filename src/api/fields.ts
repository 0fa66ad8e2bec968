import { z } from "zod";
import { ANSWERER_KINDS, meaningOfAnswerer } from "../base/model/answered-by.ts";
import { EVENTS } from "../base/model/events.ts";
import { DISPLAY_NAME_CHARS_MAX, isDisplayName } from "../base/model/formats.ts";
import { TARGET_URL_LENGTH_MAX } from "../egress/rules/target-url.ts";

/** The id of anything of ours. Any UUID will do: one that we never gave out is unknown, not malformed. */
export const id = z.guid();

/** The largest number that fits a column of PostgreSQL's type integer. */
export const INTEGER_MAX = 2_147_483_647;

/** The pipeline gives these. */
export const analysisId = z
  .string()
  .regex(/^[A-Za-z0-9._:-]{1,200}$/, "Must be 1 to 200 characters from A-Z a-z 0-9 . _ : -")
  .describe("The analysis's id, as the pipeline gave it.");

/**
 * A URL to deliver to. The rules of src/egress/rules/ judge it, and say why they refuse one; the document only shows
 * what of them a schema can say.
 */
export const targetUrl = z.string().meta({
  pattern: "^[Hh][Tt][Tt][Pp][Ss]://",
  maxLength: TARGET_URL_LENGTH_MAX,
  example: "https://hooks.example.com/analyses",
});

/** What a text column takes, and lists and terminals show as it is. */
export const lineOfText = z
  .string()
  .regex(/^[^\p{Cc}\p{Cs}]*$/u, "Must be one line, without control characters.");

/** Of what people name: a key, a space. */
export const displayName = z
  .string()
  .refine(isDisplayName, {
    error: `Must have 1 to ${DISPLAY_NAME_CHARS_MAX} characters, no control characters, and no spaces around it.`,
  })
  .meta({ minLength: 1, maxLength: DISPLAY_NAME_CHARS_MAX });

/** ISO 8601, UTC, with milliseconds. */
export const time = z.iso.datetime({ precision: 3 });

/**
 * A moment in RFC 3339, in its usual spelling; `t` and `z` in lower case are of the same standard, and some clients
 * leave the colon out of an offset.
 */
export const moment = z.preprocess(inUsualSpelling, z.iso.datetime({ offset: true }));

function inUsualSpelling(input: unknown): unknown {
  if (typeof input !== "string") return input;
  const parts = /^(\d{4}-\d\d-\d\d)t([\d:.]+)(z|[+-]\d\d:?\d\d)$/i.exec(input);
  if (parts === null) return input;
  const [, date, time, offset = ""] = parts;
  return `${date}T${time}${offset.toUpperCase().replace(/^(...)(\d\d)$/, "$1:$2")}`;
}

export const event = z.enum(EVENTS);

export const AnsweredBy = z
  .object({
    kind: z
      .enum(ANSWERER_KINDS)
      .describe(`${ANSWERER_KINDS.map((kind) => `\`${kind}\`: ${meaningOfAnswerer(kind)}`).join("; ")}.`),
    name: z.string().describe("A product or a service, such as `ngrok`."),
    evidence: z.string().describe("What in the response shows it."),
  })
  .meta({ id: "AnsweredBy", description: "Who responded in place of the receiver's application." });
