import type { Deprecation, Effect, ErasedAudit, Operation, OperationDefiners, Work } from "./operation.ts";
import { emptyResponse } from "./operation-io.ts";

/** `const { read, write, callOut, upload, retired } = operationDefiners<DomainCode>()`. */
export function operationDefiners<DomainCode extends string = never>(): OperationDefiners<DomainCode> {
  return {
    read: (declaration) => {
      const { handle, waits = null } = declaration;
      const work = { kind: "read", handle, waits } as Work;
      return operation({ ...declaration, risk: "none", mode: "sync" }, "read", work);
    },
    staffRead: (declaration) => {
      const work = { kind: "read", handle: declaration.handle, waits: null } as Work;
      const declared = { ...declaration, isAcrossAccounts: true, risk: "none", mode: "sync" } as const;
      return operation(declared, "read", work);
    },
    write: (declaration) => {
      const { handle, prepare = null } = declaration;
      const work = { kind: "write", handle, prepare } as Work;
      return operation(declaration, "write", work, declaration.audit as ErasedAudit);
    },
    batchedWrite: (declaration) => {
      const { prepare, handleEach, audit } = declaration;
      const work = { kind: "batched_write", prepare, handleEach } as Work;
      return operation(declaration, "write", work, audit as ErasedAudit);
    },
    callOut: (declaration) => {
      const { handle, callsOut, audit } = declaration;
      const work = { kind: "call_out", handle, deadlineMs: callsOut.deadlineMs } as Work;
      return operation(declaration, "write", work, audit as ErasedAudit);
    },
    upload: (declaration) => {
      const { receive, handle, refused, audit } = declaration;
      const work = { kind: "upload", receive, handle, refused } as Work;
      return operation(declaration, "write", work, audit as ErasedAudit);
    },
    retired: (declaration) => {
      const effect = declaration.method === "GET" ? "read" : "write";
      return operation({ ...declaration, response: emptyResponse() }, effect, { kind: "retired" });
    },
  };
}

type Declared = Pick<
  Operation,
  "key" | "tag" | "summary" | "description" | "method" | "path" | "scope" | "risk" | "mode" | "response"
> & {
  readonly [Name in "params" | "query" | "body"]?: Operation[Name] | undefined;
} & {
  readonly isAcrossAccounts?: true;
  readonly needsUser?: true;
  readonly isOfAccount?: true;
  readonly errors?: readonly string[];
  readonly judgeRepeat?: unknown;
  readonly holdsSecret?: true;
  readonly deprecated?: Deprecation;
};

function operation(
  declared: Declared,
  effect: Effect,
  work: Work,
  audit: ErasedAudit | null = null,
): Operation {
  return Object.freeze({
    key: declared.key,
    tag: declared.tag,
    summary: declared.summary,
    description: declared.description,
    method: declared.method,
    path: declared.path,
    scope: declared.scope,
    isAcrossAccounts: declared.isAcrossAccounts ?? false,
    needsUser: declared.needsUser ?? false,
    isOfAccount: declared.isOfAccount ?? false,
    risk: declared.risk,
    effect,
    mode: declared.mode,
    // The platform's rule: the flag speaks of the operation without a key, so reads have it and writes do not.
    isIdempotent: effect === "read",
    params: declared.params ?? null,
    query: declared.query ?? null,
    body: declared.body ?? null,
    response: declared.response,
    errors: declared.errors ?? [],
    holdsSecret: declared.holdsSecret ?? false,
    deprecated: declared.deprecated ?? null,
    audit,
    judgeRepeat: (declared.judgeRepeat as Operation["judgeRepeat"]) ?? null,
    work,
  });
}
