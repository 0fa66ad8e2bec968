// Definitions that the API takes, of every shape and size.
import { fc } from "@fast-check/vitest";
import type { Definition, DefinitionNode, NodeOf } from "../../../src/workspace/model/definition.ts";
import {
  CATCH_UP_SECONDS_MAX,
  EXTERNAL_SECONDS_MAX,
  TOP_WORDS_MAX,
  WAIT_SECONDS_MAX,
} from "../../../src/workspace/model/node-kinds.ts";

/** With names that every object has, and that differ in nothing but their case. */
const ids = fc.oneof(
  { weight: 4, arbitrary: fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/) },
  fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/),
  fc.constantFrom("__proto__", "constructor", "toString", "hasOwnProperty", "a", "A", "-", "0"),
);

const names = fc.oneof(
  fc.stringMatching(/^[A-Za-z]([A-Za-z ]{0,30}[A-Za-z])?$/),
  fc
    .string({ unit: "grapheme", minLength: 1, maxLength: 30 })
    .map((text) => text.replaceAll(/\p{Cc}/gu, "").trim())
    .filter((text) => text.length > 0),
);

export type DefinitionOptions = {
  /** In place of any number of nodes up to 12, the trigger not counted. */
  readonly nodesMax?: number;
  /** Folders of the space; none: documents are taken from its top. */
  readonly folderIds?: readonly string[];
  /** In place of any wait that there can be. */
  readonly waits?: fc.Arbitrary<Wait>;
};

type Wait = NodeOf<"wait">["parameters"];

/** What the API has taken of a definition: with every default. */
export function definitions(options: DefinitionOptions = {}): fc.Arbitrary<Definition> {
  const { nodesMax = 12, folderIds = [], waits = anyWaits } = options;
  const triggers = fc.oneof(
    fc.constant({ kind: "manual_trigger", parameters: {} }),
    fc
      .constantFrom("plain", "signature")
      .map((auth_mode) => ({ kind: "hook_trigger", parameters: { auth_mode } })),
    fc
      .record({
        cron: fc.constantFrom("* * * * *", "0 5 29 2 *", "*/15 0,12 1-7 */2 7"),
        time_zone: fc.constantFrom("UTC", "Europe/Berlin", "america/new_york"),
        catch_up_seconds: fc.integer({ min: 60, max: CATCH_UP_SECONDS_MAX }),
      })
      .map((parameters) => ({ kind: "schedule_trigger", parameters })),
  );
  const kinds = fc.oneof(
    fc
      .constantFrom(null, ...folderIds)
      .map((folder_id) => ({ kind: "documents", parameters: { folder_id } })),
    waits.map((parameters) => ({ kind: "wait", parameters })),
    fc
      .integer({ min: 1, max: TOP_WORDS_MAX })
      .map((top_words) => ({ kind: "analyze", parameters: { top_words } })),
    fc
      .integer({ min: 1, max: EXTERNAL_SECONDS_MAX })
      .map((timeout_seconds) => ({ kind: "external_analysis", parameters: { timeout_seconds } })),
  );
  return fc
    .uniqueArray(ids, { minLength: 1, maxLength: nodesMax + 1 })
    .chain((chosen) =>
      fc.tuple(
        fc.tuple(...chosen.map((id) => fc.record({ id: fc.constant(id), name: names, of: kinds }))),
        // Each has an edge from one before it, and any others.
        fc.tuple(...chosen.map((_, index) => fc.nat({ max: Math.max(0, index - 1) }))),
        fc.uniqueArray(pairsBelow(chosen.length), { selector: String, maxLength: chosen.length * 2 }),
        triggers,
        fc.infiniteStream(fc.nat()),
      ),
    )
    .map(([given, parents, others, trigger, dice]) => {
      const nodes = given.map(({ id, name, of }, index) => ({
        id,
        name,
        ...(index === 0 ? trigger : of),
      })) as DefinitionNode[];
      const pairs = new Map(
        [...parents.map((parent, index) => [parent, index] as const).slice(1), ...others]
          .filter(([from, to]) => from < to)
          .map((pair) => [String(pair), pair]),
      );
      const edges = [...pairs.values()].map(([from, to]) => ({ from: nodes[from]!.id, to: nodes[to]!.id }));
      return { nodes: shuffled(nodes, dice), edges: shuffled(edges, dice) };
    });
}

const anyWaits: fc.Arbitrary<Wait> = fc.oneof(
  fc.integer({ min: 1, max: WAIT_SECONDS_MAX }).map((for_seconds) => ({ for_seconds })),
  fc
    .date({ noInvalidDate: true, min: new Date("1970-01-01"), max: new Date("9999-12-31") })
    .map((until) => ({ until: until.toISOString() })),
);

function pairsBelow(count: number): fc.Arbitrary<readonly [number, number]> {
  return fc.tuple(fc.nat({ max: count - 1 }), fc.nat({ max: count - 1 }));
}

function shuffled<T>(all: readonly T[], dice: Iterator<number>): T[] {
  const left = [...all];
  return all.map(() => left.splice(dice.next().value % left.length, 1)[0]!);
}
