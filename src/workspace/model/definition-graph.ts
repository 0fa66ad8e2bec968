/** A definition's nodes and edges, whatever they do. */
export type Graph<Node extends { readonly id: string } = { readonly id: string }> = {
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

/** Each node after all that have an edge into it; beyond that, near to their own order. The graph has no circle. */
export function orderNodes<Node extends { readonly id: string }>(graph: Graph<Node>): readonly Node[] {
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const waitsFor = new Map(graph.nodes.map(({ id }) => [id, sourcesOf(graph, id).length]));
  const ordered = graph.nodes.filter(({ id }) => waitsFor.get(id) === 0);
  // It grows meanwhile.
  for (const { id } of ordered) {
    for (const target of targetsOf(graph, id)) {
      const left = waitsFor.get(target)! - 1;
      waitsFor.set(target, left);
      if (left === 0) ordered.push(nodes.get(target)!);
    }
  }
  if (ordered.length < graph.nodes.length) throw new Error("A definition with a circle has no order.");
  return ordered;
}

/** The nodes to which edges lead from this one, itself included. */
export function reachableFrom(graph: Graph, nodeId: string): ReadonlySet<string> {
  const reached = new Set([nodeId]);
  // It grows meanwhile.
  for (const id of reached) {
    for (const target of targetsOf(graph, id)) reached.add(target);
  }
  return reached;
}

/** An edge that closes a circle: of its nodes the first is the last again. */
export type Circle = { readonly edgeIndex: number; readonly nodeIds: readonly string[] };

/** Without their edges, the graph has no circle. */
export function findCircles({ nodes, edges }: Graph): readonly Circle[] {
  const circles: Circle[] = [];
  const way: string[] = [];
  const seen = new Set<string>();
  const leave = new Map(
    nodes.map(({ id }) => [id, [] as { readonly to: string; readonly edgeIndex: number }[]]),
  );
  for (const [edgeIndex, { from, to }] of edges.entries()) leave.get(from)?.push({ to, edgeIndex });

  function follow(id: string): void {
    seen.add(id);
    way.push(id);
    for (const { to, edgeIndex } of leave.get(id) ?? []) {
      const at = way.indexOf(to);
      if (at >= 0) circles.push({ edgeIndex, nodeIds: [...way.slice(at), to] });
      else if (!seen.has(to)) follow(to);
    }
    way.pop();
  }
  for (const { id } of nodes) if (!seen.has(id)) follow(id);
  return circles;
}
