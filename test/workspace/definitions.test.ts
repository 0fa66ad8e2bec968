import { readFileSync } from "node:fs";
import { fc } from "@fast-check/vitest";
import { describe, expect, test } from "vitest";
import type { FieldError } from "../../src/http/problems.ts";
import { invalidRequestFrom } from "../../src/http/request-validation.ts";
import {
  DEFINITION_BYTES_MAX,
  Definition,
  type DefinitionNode,
  EDGES_MAX,
  FIRST_DEFINITION,
  NODES_MAX,
  sourcesOf,
  targetsOf,
} from "../../src/workspace/model/definition.ts";
import { NODE_KINDS } from "../../src/workspace/model/node-kinds.ts";
import { definitions } from "./support/definitions.ts";

const SEED = 20260301;

/** As the API tells them of a body that is a definition. */
function faultsOf(definition: unknown): readonly FieldError[] {
  const { error } = Definition.safeParse(definition);
  return error === undefined ? [] : invalidRequestFrom("definition", error).errors;
}

/** The rules, told once more and otherwise than the model tells them. */
function isRight({ nodes, edges }: Definition): boolean {
  const place = new Map(nodes.map(({ id }, index) => [id, index]));
  const triggers = nodes.filter(({ kind }) => kind.endsWith("_trigger"));
  if (place.size !== nodes.length || triggers.length !== 1) return false;
  if (new Set(edges.map(({ from, to }) => `${from}>${to}`)).size !== edges.length) return false;
  if (edges.some(({ from, to }) => !place.has(from) || !place.has(to) || to === triggers[0]!.id))
    return false;
  // The longest way to each node, over and over: a circle never comes to rest.
  const longest = nodes.map(({ id }) => (id === triggers[0]!.id ? 0 : Number.NEGATIVE_INFINITY));
  for (let round = 0; round <= nodes.length; round++) {
    let isAtRest = true;
    for (const { from, to } of edges) {
      const length = longest[place.get(from)!]! + 1;
      if (length <= longest[place.get(to)!]!) continue;
      longest[place.get(to)!] = length;
      isAtRest = false;
    }
    if (isAtRest) return longest.every((length) => length >= 0);
  }
  return false;
}

test("the document has a row for each kind of node", () => {
  const document = readFileSync(new URL("../../docs/workspace.md", import.meta.url), "utf8");
  const [, table = ""] = /^\| kind of node \|.*\n\|-.*\n((?:\|.*\n)+)/m.exec(document) ?? [];
  expect([...table.matchAll(/^\| `(\w+)`/gm)].map(([, kind]) => kind)).toEqual(NODE_KINDS);
});

test("every definition made for it is taken as it is, is right, and has an order", () => {
  const kinds = new Set<string>();
  fc.assert(
    fc.property(definitions({ nodesMax: 40 }), (definition) => {
      for (const { kind } of definition.nodes) kinds.add(kind);
      expect(faultsOf(definition)).toEqual([]);
      expect(Definition.parse(JSON.parse(JSON.stringify(definition)))).toEqual(definition);
      expect(isRight(definition)).toBe(true);
      for (const { id } of definition.nodes) {
        for (const source of sourcesOf(definition, id)) expect(targetsOf(definition, source)).toContain(id);
      }
    }),
    { numRuns: 3_000, seed: SEED },
  );
  expect([...kinds].sort()).toEqual([...NODE_KINDS].sort());
});

test("of nodes and edges thrown together, those pass that are right", () => {
  const few = fc.constantFrom("a", "b", "c", "d", "__proto__");
  const node = fc
    .record({ id: few, isTrigger: fc.nat({ max: 4 }).map((n) => n === 0) })
    .map(({ id, isTrigger }) => ({
      id,
      name: id,
      ...(isTrigger
        ? { kind: "manual_trigger", parameters: {} }
        : { kind: "analyze", parameters: { top_words: 1 } }),
    }));
  const thrown = fc.record({
    nodes: fc.array(node, { minLength: 1, maxLength: 4 }),
    edges: fc.array(fc.record({ from: few, to: few }), { maxLength: 5 }),
  });
  let passed = 0;
  fc.assert(
    fc.property(thrown, (definition) => {
      const faults = faultsOf(definition);
      expect(faults.length === 0, JSON.stringify({ definition, faults })).toBe(
        isRight(definition as Definition),
      );
      for (const { path } of faults) expect(valueAt(definition, path)).toBeDefined();
      if (faults.length === 0) passed++;
    }),
    { numRuns: 20_000, seed: SEED },
  );
  expect(passed).toBeGreaterThan(100);
});

/** What stands at a path that was told; `undefined`: there is nothing there. */
function valueAt(definition: unknown, path: string): unknown {
  return path
    .split(".")
    .slice(1)
    .reduce((value, part) => (value as Record<string, unknown>)[part], definition);
}

const analyze = (id: string): DefinitionNode => ({
  id,
  kind: "analyze",
  name: id,
  parameters: { top_words: 10 },
});
/** A trigger and `count` more nodes, in a row. */
function inARow(count: number): Definition {
  const ids = Array.from({ length: count }, (_, n) => `n${n}`);
  const [trigger] = FIRST_DEFINITION.nodes;
  return {
    nodes: [trigger!, ...ids.map(analyze)],
    edges: ids.map((id, n) => ({ from: n === 0 ? "trigger" : ids[n - 1]!, to: id })),
  };
}
const row = inARow(3);
const withNode = (index: number, changes: object): unknown => ({
  ...row,
  nodes: row.nodes.map((node, n) => (n === index ? { ...node, ...changes } : node)),
});
const withEdges = (...edges: readonly (readonly [string, string])[]) => ({
  ...row,
  edges: [...row.edges, ...edges.map(([from, to]) => ({ from, to }))],
});
const wait = (parameters: object) => withNode(2, { kind: "wait", parameters });

describe("what is wrong is told with its path", () => {
  const cases: Readonly<Record<string, readonly [unknown, string, RegExp]>> = {
    "no object": [[], "", /^Must be an object\.$/],
    nothing: [undefined, "", /^Missing\.$/],
    "no nodes": [{ edges: [] }, "nodes", /^Missing\.$/],
    "no edges": [{ nodes: row.nodes }, "edges", /^Missing\.$/],
    "more than that": [{ ...row, version: 1 }, "version", /^Unknown field\.$/],
    "its __proto__": [JSON.parse('{"nodes":[],"edges":[],"__proto__":{}}'), "__proto__", /^Unknown field\.$/],
    "a node's __proto__": [
      {
        nodes: [JSON.parse('{"id":"a","kind":"analyze","name":"a","parameters":{},"__proto__":{}}')],
        edges: [],
      },
      "nodes.0.__proto__",
      /^Unknown field\.$/,
    ],
    "an empty list": [{ nodes: [], edges: [] }, "nodes", /hook_trigger: runs begin there/],
    "no trigger": [
      { nodes: row.nodes.slice(1), edges: row.edges.slice(1) },
      "nodes",
      /hook_trigger: runs begin there/,
    ],
    "another trigger": [
      withNode(2, { kind: "manual_trigger", parameters: {} }),
      "nodes.2.kind",
      /nodes\.0 is the tr/,
    ],
    "a way back to the trigger": [withEdges(["n2", "trigger"]), "edges.3.to", /^Runs begin at the trigger/],
    "a node of no kind": [
      withNode(1, { kind: undefined }),
      "nodes.1.kind",
      /^Must be one of manual_trigger, .*, docu/,
    ],
    "a kind that there is not": [
      withNode(1, { kind: "email" }),
      "nodes.1.kind",
      /^Must be one of manual_trigger, /,
    ],
    "a kind of every object": [
      withNode(1, { kind: "toString" }),
      "nodes.1.kind",
      /^Must be one of manual_trigger/,
    ],
    "no id": [withNode(1, { id: undefined }), "nodes.1.id", /^Missing\.$/],
    "an empty id": [withNode(1, { id: "" }), "nodes.1.id", /^Must be 1 to 64 characters/],
    "a long id": [withNode(1, { id: "x".repeat(65) }), "nodes.1.id", /^Must be 1 to 64 characters/],
    "a dot in an id": [withNode(1, { id: "a.b" }), "nodes.1.id", /^Must be 1 to 64 characters/],
    "an id of two lines": [withNode(1, { id: "n0\n" }), "nodes.1.id", /^Must be 1 to 64 characters/],
    "an id twice": [
      { ...row, nodes: [...row.nodes, analyze("n0")] },
      "nodes.4.id",
      /^nodes\.1 has this id\./,
    ],
    "no name": [withNode(1, { name: undefined }), "nodes.1.name", /^Missing\.$/],
    "a name of nothing": [withNode(1, { name: " " }), "nodes.1.name", /^Must have 1 to 200 characters/],
    "a long name": [withNode(1, { name: "x".repeat(201) }), "nodes.1.name", /^Must have 1 to 200 characters/],
    "half a character": [withNode(1, { name: "\ud800" }), "nodes.1.name", /^Must have 1 to 200 characters/],
    "no parameters": [withNode(1, { parameters: undefined }), "nodes.1.parameters", /^Missing\.$/],
    "others' parameters": [
      withNode(1, { parameters: { for_seconds: 1 } }),
      "nodes.1.parameters.for_seconds",
      /^Unkn/,
    ],
    "no word": [
      withNode(1, { parameters: { top_words: 0 } }),
      "nodes.1.parameters.top_words",
      /at least 1\.$/,
    ],
    "many words": [
      withNode(1, { parameters: { top_words: 51 } }),
      "nodes.1.parameters.top_words",
      /at most 50\.$/,
    ],
    "half a word": [
      withNode(1, { parameters: { top_words: 1.5 } }),
      "nodes.1.parameters.top_words",
      /whole number/,
    ],
    "a huge number": [
      withNode(1, { parameters: { top_words: 1e308 } }),
      "nodes.1.parameters.top_words",
      /^Must be /,
    ],
    "a wait for nothing": [wait({}), "nodes.2.parameters", /^Give either for_seconds or until/],
    "two waits": [
      wait({ for_seconds: 1, until: "2027-01-15T08:00:00Z" }),
      "nodes.2.parameters",
      /^Give either for_seconds or until/,
    ],
    "no wait": [wait({ for_seconds: 0 }), "nodes.2.parameters.for_seconds", /at least 1\.$/],
    "a long wait": [wait({ for_seconds: 2_592_001 }), "nodes.2.parameters.for_seconds", /at most 2592000\.$/],
    "a wait without a zone": [
      wait({ until: "2027-01-15T08:00:00" }),
      "nodes.2.parameters.until",
      /^Must be a time/,
    ],
    "a day that is not": [
      wait({ until: "2027-02-30T08:00:00Z" }),
      "nodes.2.parameters.until",
      /^Must be a time/,
    ],
    "the year 10000": [
      wait({ until: "9999-12-31T23:59:59-01:00" }),
      "nodes.2.parameters.until",
      /1970 and 9999/,
    ],
    "a folder's name": [
      withNode(1, { kind: "documents", parameters: { folder_id: "2026" } }),
      "nodes.1.parameters.folder_id",
      /^Must be a UUID/,
    ],
    "an edge from nowhere": [withEdges(["n9", "n1"]), "edges.3.from", /^No node has the id n9\./],
    "an edge to nowhere": [withEdges(["n1", "n9"]), "edges.3.to", /^No node has the id n9\./],
    "an edge to what every object has": [
      withEdges(["n1", "constructor"]),
      "edges.3.to",
      /^No node has the id con/,
    ],
    "an edge twice": [withEdges(["n0", "n1"]), "edges.3", /^edges\.1 is the same\./],
    "an edge with more": [
      { ...row, edges: [{ from: "trigger", to: "n0", when: 1 }] },
      "edges.0.when",
      /^Unknown fi/,
    ],
    "an edge to itself": [withEdges(["n1", "n1"]), "edges.3", /^Closes a cycle.*: n1 > n1\.$/],
    "two in a circle": [withEdges(["n1", "n0"]), "edges.3", /^Closes a cycle.*: n0 > n1 > n0\.$/],
    "a node by itself": [
      { ...row, nodes: [...row.nodes, analyze("alone")] },
      "nodes.4",
      /^No edges lead here/,
    ],
  };
  test.each(Object.entries(cases))("%s", (_, [definition, path, message]) => {
    const faults = faultsOf(definition);
    expect(faults).toHaveLength(1);
    expect(faults[0]!.path).toBe(path === "" ? "definition" : `definition.${path}`);
    expect(faults[0]!.message).toMatch(message);
  });

  test("a circle of its own, which no edge leads to", () => {
    const apart = {
      nodes: [...row.nodes, analyze("x"), analyze("y")],
      edges: [...row.edges, { from: "x", to: "y" }, { from: "y", to: "x" }],
    };
    expect(faultsOf(apart).map(({ path }) => path.slice(11))).toEqual(["edges.4", "nodes.4", "nodes.5"]);
  });

  test("several faults are told at once", () => {
    const several = { nodes: [analyze("a"), analyze("a")], edges: [{ from: "b", to: "a" }] };
    expect(faultsOf(several).map(({ path }) => path.slice(11))).toEqual([
      "nodes.1.id",
      "nodes",
      "edges.0.from",
    ]);
  });
});

test.each([2, 3, 10, 50, NODES_MAX - 1])(
  "a circle of %i nodes is told at the edge that closes it",
  (size) => {
    const { nodes, edges } = inARow(size);
    const circle = { nodes, edges: [...edges, { from: `n${size - 1}`, to: "n0" }] };
    const [fault, ...others] = faultsOf(circle);
    expect(others).toEqual([]);
    expect(fault!.path).toBe(`definition.edges.${size}`);
    expect(fault!.message).toMatch(
      /^Closes a cycle, which no run would leave\. Remove one of its edges: n0 > n1/,
    );
  },
);

describe("limits", () => {
  test("of nodes", () => {
    expect(faultsOf(inARow(NODES_MAX - 1))).toEqual([]);
    expect(faultsOf(inARow(NODES_MAX))).toEqual([
      { path: "definition.nodes", message: `Must have at most ${NODES_MAX} items.` },
    ]);
  });

  test("of edges", () => {
    const { nodes } = inARow(40);
    const pairs = nodes.flatMap(({ id: from }, n) => nodes.slice(n + 1).map(({ id: to }) => ({ from, to })));
    expect(faultsOf({ nodes, edges: pairs.slice(0, EDGES_MAX) })).toEqual([]);
    expect(faultsOf({ nodes, edges: pairs.slice(0, EDGES_MAX + 1) })).toEqual([
      { path: "definition.edges", message: `Must have at most ${EDGES_MAX} items.` },
    ]);
  });

  test("of bytes, as they are stored", () => {
    const { nodes, edges } = inARow(NODES_MAX - 1);
    const named = nodes.map((node) => ({ ...node, name: "\u{1F600}".repeat(130) }));
    const spare = DEFINITION_BYTES_MAX - Buffer.byteLength(JSON.stringify({ nodes: named, edges }));
    const sized = (bytes: number) => {
      let left = spare + bytes;
      const full = named.map((node) => {
        const more = Math.min(left, 60);
        left -= more;
        return { ...node, name: node.name + "x".repeat(more) };
      });
      expect(left).toBe(0);
      return { nodes: full, edges };
    };
    expect(faultsOf(sized(0))).toEqual([]);
    expect(faultsOf(sized(1))).toEqual([
      { path: "definition", message: "Must have at most 65536 bytes of JSON, and has 65537." },
    ]);
  });
});

test("one fault put into a definition is told where it is, and nothing throws on any other value", () => {
  const spoiled = definitions().chain((definition) =>
    fc.record({ definition: fc.constant(definition), index: fc.nat({ max: definition.nodes.length - 1 }) }),
  );
  fc.assert(
    fc.property(spoiled, fc.jsonValue(), ({ definition, index }, value) => {
      const { nodes, edges } = definition;
      const node = nodes[index]!;
      const replaced = (changes: object) => ({
        nodes: nodes.map((one, n) => (n === index ? { ...one, ...changes } : one)),
        edges,
      });
      const at = (spoilt: unknown) => faultsOf(spoilt).map(({ path }) => path);
      expect(at(replaced({ more: value }))).toEqual([`definition.nodes.${index}.more`]);
      expect(at({ nodes: [...nodes, { ...node, name: "again" }], edges })).toContain(
        `definition.nodes.${nodes.length}.id`,
      );
      expect(at({ nodes, edges: [...edges, { from: node.id, to: node.id }] })).toHaveLength(1);
      if (edges.length > 0) {
        const again = edges[index % edges.length]!;
        expect(at({ nodes, edges: [...edges, again] })).toEqual([`definition.edges.${edges.length}`]);
      }
      // Whatever it is, it is told or it is right.
      for (const wrong of [
        value,
        replaced({ parameters: value }),
        { nodes: value, edges },
        { nodes, edges: value },
      ]) {
        const parsed = Definition.safeParse(wrong);
        expect(parsed.success ? isRight(parsed.data) : faultsOf(wrong).length > 0).toBe(true);
      }
    }),
    { numRuns: 2_000, seed: SEED },
  );
});
