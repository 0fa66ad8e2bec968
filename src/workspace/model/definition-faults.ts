import { findCircles, type Graph, reachableFrom } from "./definition-graph.ts";
import { isTriggerKind, type NodeKind, TRIGGER_KINDS } from "./node-kinds.ts";

/** Where in a definition (`["edges", 3, "to"]`), and what is wrong and what to do, in sentences. */
export type Fault = { readonly path: readonly (string | number)[]; readonly message: string };

type Checked = Graph<{ readonly id: string; readonly kind: NodeKind }>;

/**
 * What is wrong with nodes and edges that are right one by one. Ways are only followed where every edge has its two
 * nodes.
 */
export function findStructureFaults(definition: Checked): readonly Fault[] {
  const single = [
    ...findIdFaults(definition),
    ...findTriggerFaults(definition),
    ...findEdgeFaults(definition),
  ];
  return single.length > 0 ? single : findWayFaults(definition);
}

function* findIdFaults({ nodes }: Checked): Generator<Fault> {
  const first = new Map<string, number>();
  for (const [index, { id }] of nodes.entries()) {
    const other = first.get(id);
    if (other === undefined) first.set(id, index);
    else
      yield { path: ["nodes", index, "id"], message: `nodes.${other} has this id. Give each node its own.` };
  }
}

function* findTriggerFaults({ nodes, edges }: Checked): Generator<Fault> {
  const kinds = TRIGGER_KINDS.join(" or ");
  const [first, ...others] = nodes.flatMap(({ kind }, index) => (isTriggerKind(kind) ? [index] : []));
  if (first === undefined)
    yield { path: ["nodes"], message: `Must have a node of the kind ${kinds}: runs begin there.` };
  for (const index of others) {
    const message = `nodes.${first} is the trigger, and there is one. Remove this node, or give it another kind.`;
    yield { path: ["nodes", index, "kind"], message };
  }
  const trigger = first === undefined ? null : nodes[first]!.id;
  for (const [index, { to }] of edges.entries()) {
    const message =
      "Runs begin at the trigger: no edge leads to it. Remove this edge, or let it lead elsewhere.";
    if (to === trigger) yield { path: ["edges", index, "to"], message };
  }
}

function* findEdgeFaults({ nodes, edges }: Checked): Generator<Fault> {
  const ids = new Set(nodes.map(({ id }) => id));
  const first = new Map<string, number>();
  for (const [index, edge] of edges.entries()) {
    for (const end of ["from", "to"] as const) {
      const message = `No node has the id ${edge[end]}. Add the node, or remove this edge.`;
      if (!ids.has(edge[end])) yield { path: ["edges", index, end], message };
    }
    const name = `${edge.from} ${edge.to}`;
    const other = first.get(name);
    if (other === undefined) first.set(name, index);
    else yield { path: ["edges", index], message: `edges.${other} is the same. Remove one of them.` };
  }
}

function* findCircleFaults(definition: Checked): Generator<Fault> {
  for (const { edgeIndex, nodeIds } of findCircles(definition)) {
    const message = `Closes a circle, which no run would leave. Remove an edge of it: ${nodeIds.join(" > ")}.`;
    yield { path: ["edges", edgeIndex], message };
  }
}

function* findUnreachedFaults(definition: Checked): Generator<Fault> {
  const trigger = definition.nodes.find(({ kind }) => isTriggerKind(kind))!;
  const reached = reachableFrom(definition, trigger.id);
  for (const [index, { id }] of definition.nodes.entries()) {
    const message = "No edges lead here from the trigger. Add some, or remove the node.";
    if (!reached.has(id)) yield { path: ["nodes", index], message };
  }
}

function findWayFaults(definition: Checked): readonly Fault[] {
  return [...findCircleFaults(definition), ...findUnreachedFaults(definition)];
}
