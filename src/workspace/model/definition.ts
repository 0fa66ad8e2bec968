import { z } from "zod";
import { DISPLAY_NAME_CHARS_MAX, isDisplayName } from "../../base/model/formats.ts";
import { isTriggerKind, NODE_KINDS, type NodeKind, nodeParameters, TRIGGER_KINDS } from "./node-kinds.ts";

/** A definition's nodes and edges, whatever they do. */
type Graph<Node extends { readonly id: string } = { readonly id: string }> = {
  readonly nodes: readonly Node[];
  readonly edges: readonly { readonly from: string; readonly to: string }[];
};

/** The nodes that have an edge into this one, in the order of the edges. */
export function sourcesOf({ edges }: Graph, nodeId: string): readonly string[] {
  return edges.filter(({ to }) => to === nodeId).map(({ from }) => from);
}

/** The nodes that this one has an edge into, in the order of the edges. */
export function targetsOf({ edges }: Graph, nodeId: string): readonly string[] {
  return edges.filter(({ from }) => from === nodeId).map(({ to }) => to);
}

/** A node, and all from which there is a way to it, with the edges between these. Null: the whole. */
export function partUpTo(definition: Definition, nodeId: string | null): Definition {
  if (nodeId === null) return definition;
  const reached = new Set([nodeId]);
  // It grows meanwhile.
  for (const id of reached) for (const source of sourcesOf(definition, id)) reached.add(source);
  return {
    nodes: definition.nodes.filter(({ id }) => reached.has(id)),
    edges: definition.edges.filter(({ to }) => reached.has(to)),
  };
}

/** Where in a definition (`["edges", 3, "to"]`), and what is wrong and what to do, in sentences. */
type Fault = { readonly path: readonly (string | number)[]; readonly message: string };

type Checked = Graph<{ readonly id: string; readonly kind: NodeKind }>;

/**
 * What is wrong with nodes and edges that are right one by one. Ways are only followed where every edge has its two
 * nodes.
 */
function findStructureFaults(definition: Checked): readonly Fault[] {
  const single = [
    ...findIdFaults(definition),
    ...findTriggerFaults(definition),
    ...findEdgeFaults(definition),
  ];
  return single.length > 0 ? single : [...findCircleFaults(definition), ...findUnreachedFaults(definition)];
}

function* findIdFaults({ nodes }: Checked): Generator<Fault> {
  const ids = nodes.map(({ id }) => id);
  for (const [index, id] of ids.entries()) {
    const first = ids.indexOf(id);
    const message = `nodes.${first} has this id. Give each node its own.`;
    if (first < index) yield { path: ["nodes", index, "id"], message };
  }
}

function* findTriggerFaults({ nodes, edges }: Checked): Generator<Fault> {
  const kinds = TRIGGER_KINDS.join(" or ");
  const [first, ...others] = nodes.flatMap(({ kind }, index) => (isTriggerKind(kind) ? [index] : []));
  if (first === undefined)
    yield { path: ["nodes"], message: `Must have a node of the kind ${kinds}: runs begin there.` };
  for (const index of others) {
    const message = `nodes.${first} is the trigger, and there can only be one. Remove this node, or change its kind.`;
    yield { path: ["nodes", index, "kind"], message };
  }
  const trigger = first === undefined ? null : nodes[first]!.id;
  for (const [index, { to }] of edges.entries()) {
    const message =
      "Runs begin at the trigger: no edge leads to it. Remove this edge, or point it elsewhere.";
    if (to === trigger) yield { path: ["edges", index, "to"], message };
  }
}

function* findEdgeFaults({ nodes, edges }: Checked): Generator<Fault> {
  const ids = new Set(nodes.map(({ id }) => id));
  const names = edges.map(({ from, to }) => `${from} ${to}`);
  for (const [index, edge] of edges.entries()) {
    for (const end of ["from", "to"] as const) {
      const message = `No node has the id ${edge[end]}. Add the node, or remove this edge.`;
      if (!ids.has(edge[end])) yield { path: ["edges", index, end], message };
    }
    const first = names.indexOf(names[index]!);
    const message = `edges.${first} is the same. Remove one of them.`;
    if (first < index) yield { path: ["edges", index], message };
  }
}

/** Of each edge that closes a circle: without these, the graph has none. */
function findCircleFaults({ nodes, edges }: Checked): readonly Fault[] {
  const faults: Fault[] = [];
  const way: string[] = [];
  const seen = new Set<string>();
  const leaving = Map.groupBy(edges.entries(), ([, { from }]) => from);

  function follow(id: string): void {
    seen.add(id);
    way.push(id);
    for (const [index, { to }] of leaving.get(id) ?? []) {
      const at = way.indexOf(to);
      if (at >= 0) {
        const circle = [...way.slice(at), to].join(" > ");
        const message = `Closes a cycle, which no run would leave. Remove one of its edges: ${circle}.`;
        faults.push({ path: ["edges", index], message });
      } else if (!seen.has(to)) follow(to);
    }
    way.pop();
  }
  for (const { id } of nodes) if (!seen.has(id)) follow(id);
  return faults;
}

/** The node that a run begins at. */
export const triggerOf = ({ nodes }: Checked): string => nodes.find(({ kind }) => isTriggerKind(kind))!.id;

function* findUnreachedFaults(definition: Checked): Generator<Fault> {
  const reached = new Set([triggerOf(definition)]);
  // It grows meanwhile.
  for (const id of reached) for (const target of targetsOf(definition, id)) reached.add(target);
  for (const [index, { id }] of definition.nodes.entries()) {
    const message = "No edges lead here from the trigger. Add some, or remove the node.";
    if (!reached.has(id)) yield { path: ["nodes", index], message };
  }
}

export const NODES_MAX = 100;
export const EDGES_MAX = 500;
/** As JSON without spaces: a run's answer has the whole of it. */
export const DEFINITION_BYTES_MAX = 65_536;

/** A name for machines. Some are members of every object (`constructor`): look nodes up in a Map. */
const nodeId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "Must be 1 to 64 characters from A-Z a-z 0-9 _ -");

const nodeName = z
  .string()
  .refine(isDisplayName, {
    error: `Must have 1 to ${DISPLAY_NAME_CHARS_MAX} characters, no control characters, and no spaces around it.`,
  })
  .meta({ minLength: 1, maxLength: DISPLAY_NAME_CHARS_MAX });

function nodeOf<Kind extends NodeKind>(kind: Kind) {
  return z.strictObject({
    id: nodeId,
    kind: z.literal(kind),
    name: nodeName,
    parameters: nodeParameters[kind],
  });
}

type AnyNode = { [Kind in NodeKind]: ReturnType<typeof nodeOf<Kind>> }[NodeKind];
const AnyNode = z.discriminatedUnion("kind", NODE_KINDS.map(nodeOf) as unknown as [AnyNode, ...AnyNode[]], {
  error: ({ code }) => (code === "invalid_union" ? `Must be one of ${NODE_KINDS.join(", ")}.` : undefined),
});

const Edge = z.strictObject({ from: nodeId, to: nodeId });

/**
 * What a workflow does: nodes, and edges along which items go. One that passes has exactly one trigger, from which
 * every node can be reached, and no circle. What is wrong is told with its path.
 */
export const Definition = z
  .strictObject({
    nodes: z.array(AnyNode).max(NODES_MAX),
    edges: z.array(Edge).max(EDGES_MAX),
  })
  .superRefine((definition, context) => {
    // The rest would be told of what is no node or edge.
    if (context.issues.length > 0) return;
    for (const { path, message } of findStructureFaults(definition)) {
      context.addIssue({ code: "custom", path: [...path], message });
    }
    const bytes = Buffer.byteLength(JSON.stringify(definition));
    if (bytes > DEFINITION_BYTES_MAX) {
      const message = `Must have at most ${DEFINITION_BYTES_MAX} bytes of JSON, and has ${bytes}.`;
      context.addIssue({ code: "custom", path: [], message });
    }
  })
  .meta({
    id: "WorkflowDefinition",
    description: "What a workflow does: nodes, and edges along which items go.",
  });

export type Definition = z.output<typeof Definition>;
export type DefinitionNode = Definition["nodes"][number];
export type NodeOf<Kind extends NodeKind> = Extract<DefinitionNode, { kind: Kind }>;

/** What a new workflow does: it can be started, by hand. */
export const FIRST_DEFINITION: Definition = {
  nodes: [{ id: "trigger", kind: "manual_trigger", name: "Manual trigger", parameters: {} }],
  edges: [],
};
