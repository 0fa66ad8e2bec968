import type { z } from "zod";
import type {
  BatchedWriteDeclaration,
  CallOutDeclaration,
  Effect,
  HandlerCode,
  Operation,
  ReadDeclaration,
  RetiredDeclaration,
  StaffReadDeclaration,
  UploadDeclaration,
  Work,
  WriteDeclaration,
} from "./operation.ts";
import {
  emptyResponse,
  type JsonBody,
  type RawBody,
  type ResponseSchema,
  type StorableResponse,
} from "./operation-io.ts";

type MaybeObject = z.ZodObject | undefined;
type MaybeBody = JsonBody | RawBody | undefined;

/** The ways to declare an operation. `DomainCode`: the codes that the operations add to the standard ones. */
export function operationDefiners<DomainCode extends string = never>() {
  type Codes = DomainCode | HandlerCode;
  return {
    read<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      const Code extends Codes = never,
    >(declaration: ReadDeclaration<Params, Query, Response, Code>): Operation {
      const { handle, waits = null } = declaration;
      return operation({ ...declaration, ...AS_READ }, "read", { kind: "read", handle, waits });
    },
    staffRead<
      Response extends ResponseSchema,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
    >(declaration: StaffReadDeclaration<Params, Query, Response>): Operation {
      const declared = { ...declaration, ...AS_READ, isAcrossAccounts: true } as const;
      return operation(declared, "read", { kind: "read", handle: declaration.handle, waits: null });
    },
    write<
      Response extends StorableResponse,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
      Prepared = undefined,
    >(declaration: WriteDeclaration<Params, Query, Body, Response, Code, Prepared>): Operation {
      const { handle, prepare = null } = declaration;
      return operation(declaration, "write", { kind: "write", handle, prepare });
    },
    batchedWrite<
      Response extends StorableResponse,
      Item,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
    >(declaration: BatchedWriteDeclaration<Params, Query, Body, Response, Code, Item>): Operation {
      const { prepare, handleEach } = declaration;
      return operation(declaration, "write", { kind: "batched_write", prepare, handleEach });
    },
    callOut<
      Response extends StorableResponse,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      Body extends MaybeBody = undefined,
      const Code extends Codes = never,
    >(declaration: CallOutDeclaration<Params, Query, Body, Response, Code>): Operation {
      const { handle, callsOut } = declaration;
      return operation(declaration, "write", { kind: "call_out", handle, deadlineMs: callsOut.deadlineMs });
    },
    upload<
      Response extends StorableResponse,
      Received,
      Params extends MaybeObject = undefined,
      Query extends MaybeObject = undefined,
      const Code extends Codes = never,
    >(declaration: UploadDeclaration<Params, Query, Response, Code, Received>): Operation {
      const { receive, recheck, handle, refused } = declaration;
      return operation(declaration, "write", { kind: "upload", receive, recheck, handle, refused });
    },
    retired(declaration: RetiredDeclaration): Operation {
      const effect = declaration.method === "GET" ? "read" : "write";
      return operation({ ...declaration, response: emptyResponse() }, effect, { kind: "retired" });
    },
  };
}

const AS_READ = { risk: "none", mode: "sync" } as const;

/** What a declaration leaves out. */
const DEFAULTS = {
  isAcrossAccounts: false,
  needsUser: false,
  isOfAccount: false,
  params: null,
  query: null,
  body: null,
  errors: [],
  holdsSecret: false,
  deprecated: null,
  audit: null,
  judgeRepeat: null,
} as const satisfies Partial<Operation>;

/** What a declaration says by itself. Its types say what its functions take, which is what was read by its schemas. */
type Declared = Omit<Operation, keyof typeof DEFAULTS | "effect" | "isIdempotent" | "work">;
type ErasedWork = { readonly kind: Work["kind"]; readonly [name: string]: unknown };

function operation(declared: Declared, effect: Effect, work: ErasedWork): Operation {
  // The platform's rule: the flag speaks of the operation without a key, so reads have it and writes do not.
  const isIdempotent = effect === "read";
  return Object.freeze({ ...DEFAULTS, ...declared, effect, isIdempotent, work: work as Work });
}
