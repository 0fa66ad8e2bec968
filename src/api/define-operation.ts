import type { z } from "zod";
import type {
  Deprecation,
  Effect,
  ExecutionMode,
  Method,
  Operation,
  OperationDefiners,
  Risk,
  Work,
} from "./operation.ts";
import { type AnswerShape, emptyAnswer, type JsonBody, type RawBody } from "./operation-io.ts";

/** `const { read, write, callOut, retired } = operationDefiners<Transaction, DomainCode>()`. */
export function operationDefiners<Tx, DomainCode extends string = never>(): OperationDefiners<
  Tx,
  DomainCode
> {
  return {
    read: (declaration) => {
      const work = { kind: "read", handle: declaration.handle } as Work<Tx>;
      return operation({ ...declaration, risk: "none", mode: "sync" }, "read", work);
    },
    write: (declaration) => {
      const work = { kind: "write", handle: declaration.handle } as Work<Tx>;
      return operation(declaration, "write", work);
    },
    callOut: (declaration) => {
      const { handle, callsOut } = declaration;
      const work = { kind: "call_out", handle, deadlineMs: callsOut.deadlineMs } as Work<Tx>;
      return operation(declaration, "write", work);
    },
    retired: (declaration) => {
      const effect = declaration.method === "GET" ? "read" : "write";
      return operation({ ...declaration, answer: emptyAnswer() }, effect, { kind: "retired" });
    },
  };
}

type Declared = {
  readonly key: string;
  readonly tag: string;
  readonly summary: string;
  readonly description: string;
  readonly method: Method;
  readonly path: string;
  readonly scope: string;
  readonly risk: Risk;
  readonly mode: ExecutionMode;
  readonly params?: z.ZodObject | undefined;
  readonly query?: z.ZodObject | undefined;
  readonly body?: JsonBody | RawBody | undefined;
  readonly answer: AnswerShape;
  readonly errors?: readonly string[];
  readonly holdsSecret?: true;
  readonly deprecated?: Deprecation;
};

function operation<Tx>(declared: Declared, effect: Effect, work: Work<Tx>): Operation<Tx> {
  return Object.freeze({
    key: declared.key,
    tag: declared.tag,
    summary: declared.summary,
    description: declared.description,
    method: declared.method,
    path: declared.path,
    scope: declared.scope,
    risk: declared.risk,
    effect,
    mode: declared.mode,
    // The platform's rule: the flag speaks of the operation without a key, so reads have it and writes do not.
    isIdempotent: effect === "read",
    params: declared.params ?? null,
    query: declared.query ?? null,
    body: declared.body ?? null,
    answer: declared.answer,
    errors: declared.errors ?? [],
    holdsSecret: declared.holdsSecret ?? false,
    deprecated: declared.deprecated ?? null,
    work,
  });
}
