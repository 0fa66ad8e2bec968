import { z } from "zod";
import { DISPLAY_NAME_CHARS_MAX, isDisplayName } from "../../model/display-name.ts";
import { findStructureFaults } from "./definition-faults.ts";
import { NODE_KINDS, type NodeKind, nodeParameters } from "./node-kinds.ts";

export const NODES_MAX = 100;
export const EDGES_MAX = 500;
/** As JSON without spaces: a run's answer has the whole of it. */
export const DEFINITION_BYTES_MAX = 65_536;

/** A name for machines. Some are members of every object (`constructor`): look nodes up in a Map. */
const nodeId = z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "Must be 1 to 64 characters out of A-Z a-z 0-9 _ -");

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

const node = {
  manual_trigger: nodeOf("manual_trigger"),
  documents: nodeOf("documents"),
  wait: nodeOf("wait"),
  analyze: nodeOf("analyze"),
  external_analysis: nodeOf("external_analysis"),
} satisfies { readonly [Kind in NodeKind]: z.ZodType<{ kind: Kind }> };

const Edge = z.strictObject({ from: nodeId, to: nodeId });

/**
 * What a workflow does: nodes, and edges along which items go. One that passes has exactly one trigger, from which
 * every node can be reached, and no circle. What is wrong is told with its path.
 */
export const Definition = z
  .strictObject({
    nodes: z
      .array(
        z.discriminatedUnion(
          "kind",
          [node.manual_trigger, node.documents, node.wait, node.analyze, node.external_analysis],
          {
            error: ({ code }) =>
              code === "invalid_union" ? `Must be one of ${NODE_KINDS.join(", ")}.` : undefined,
          },
        ),
      )
      .max(NODES_MAX),
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
