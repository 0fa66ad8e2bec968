import { sharerOf } from "../base/model/account-places.ts";
import { RECOVERY_SCOPES } from "../base/model/api-keys.ts";
import type { FindSpaces } from "../base/model/reader.ts";
import type { AccountNews } from "./account-news.ts";
import { withDeadline } from "./deadline.ts";
import {
  fingerprintOf,
  type IdempotentWrites,
  type Performed,
  type Write,
  type WriteResult,
} from "./idempotent-write.ts";
import {
  ANSWER_WITHIN_MS,
  BODY_BYTES_IN_TURN_MIN,
  BODY_BYTES_PER_PLACE,
  BODY_PLACES_MAX,
  UPLOAD_ENDS_WITHIN_MS,
} from "./limits.ts";
import type { Caller, ErasedRequest, ErasedResult, Operation, Transaction, Wait, Work } from "./operation.ts";
import { Problem, TemporarilyUnavailable, type TranslateError } from "./problems.ts";
import type { IncomingBody } from "./received-body.ts";
import { compileRequestValidator, type ReceivedRequest } from "./request-validation.ts";
import { type CheckOutcome, compileResponse, isLarge, toStoredResponse } from "./responses.ts";
import { type InTurn, type OnThread, type TransferPlaces, untilGone } from "./turns.ts";
import { type BatchedWrite, createWriteBatches, type PerformEach } from "./write-batches.ts";

/** In whose name an operation runs: a key, or a session that was opened with one. */
export type Principal = {
  readonly caller: Caller;
  /** The account that the request is for; null: none, which only operations across accounts do without. */
  readonly accountId: string | null;
};

/** What is asked of an operation. */
export type Asked = ReceivedRequest & {
  /** Null: none was given, which only reads do without. */
  readonly idempotencyKey: string | null;
  readonly requestId: string;
  /** The caller's trace (W3C Trace Context); null: none. */
  readonly traceparent: string | null;
  /** What is left of the request's time. */
  readonly waitMs: number;
  /** Calls back when nobody waits for the answer any more; absent: whoever asks stays. */
  readonly onGone?: (end: () => void) => void;
  /** Rejects once the caller's key is good no more: for what takes long. Absent: nothing of the kind is asked. */
  readonly confirmKey?: () => Promise<void>;
  /** Of an upload, which only its route asks for. */
  readonly stream?: IncomingBody;
};

/**
 * Runs one operation: scope, validation, idempotency, work. Whoever asks has been identified and counted.
 *
 * @throws Problem that the operation declares, or one of the kernel's
 */
export type Perform = (principal: Principal, asked: Asked) => Promise<WriteResult>;

export type PerformOptions = {
  readonly idempotentWrites: IdempotentWrites;
  /** Of requests at work on the database. */
  readonly inTurn: InTurn;
  /** Of what keeps the thread busy: large bodies and answers. */
  readonly onThread: OnThread;
  /** Of held reads that were told of something. */
  readonly lookAgain: InTurn;
  readonly uploads: TransferPlaces;
  /** Tells reads that are held. */
  readonly news: AccountNews;
  readonly findSpaces: FindSpaces<Transaction>;
  readonly translateError: TranslateError;
  readonly check: CheckOutcome | undefined;
};

type Upload = Extract<Work, { kind: "upload" }>;

/** What must be possible however much is stored: removing, and with a key that acts for no user what helps. */
function isExempt({ method, response, scope }: Operation, { userId }: Caller): boolean {
  return method === "DELETE" || response.kind === "empty" || (userId === null && RECOVERY_SCOPES.has(scope));
}

/** The one way to an operation's work, for its route and for the console's pages. */
export function compilePerform(operation: Operation, options: PerformOptions): Perform {
  const { idempotentWrites, inTurn, onThread, lookAgain, uploads, news, findSpaces } = options;
  const { translateError, check } = options;
  const { work, holdsSecret, key: operationKey, audit, judgeRepeat } = operation;
  const validate = compileRequestValidator(operation);
  const toResponse = compileResponse(operation, check);
  const batches = work.kind === "batched_write" ? createWriteBatches(respondEach(work)) : null;

  async function perform(principal: Principal, asked: Asked): Promise<WriteResult> {
    refuseCaller(operation, principal.caller);
    const { waitMs } = asked;
    const startMs = performance.now();
    const leftMs = () => waitMs - (performance.now() - startMs);
    const withWrite = (valid: ErasedRequest) => ({ valid, write: writeOf(valid, asked) });
    switch (work.kind) {
      case "read": {
        const valid = await readInTurn(principal, asked, (valid) => valid);
        const look = (withinMs: number) => {
          const reading = inTurn(valid.sharer, { waitMs: withinMs }, () => work.handle(valid));
          return withDeadline(withinMs, "the read", reading);
        };
        const { waits } = work;
        const result = await (waits === undefined
          ? look(leftMs())
          : holdRead(waits, valid, asked, look, leftMs()));
        // A read that was held may have come to it late.
        const turn = { waitMs: waits === undefined ? leftMs() : waitMs };
        const response = isLarge(result)
          ? await onThread(valid.sharer, turn, () => toResponse(result))
          : toResponse(result);
        return { response, isReplayed: false };
      }
      case "write": {
        const { valid, write } = await readInTurn(principal, asked, withWrite);
        const prepared =
          work.prepare &&
          (await untilGone(asked.onGone, (gone) =>
            withDeadline(leftMs(), "what comes before the transaction", work.prepare!(valid, gone)),
          ));
        const handle = async (tx: Transaction) => performed(await work.handle(valid, tx, prepared));
        return await idempotentWrites.inTransaction(write, leftMs(), handle);
      }
      case "batched_write": {
        const batched = await readInTurn(principal, asked, (valid) => batchedWriteOf(work, valid, asked));
        const write = () => batches!.add(batched, leftMs());
        const { size, claim, caller } = batched;
        const writing =
          size === 1 ? write() : inTurn(sharerOf(claim.accountId, caller), { waitMs: leftMs(), size }, write);
        return await withDeadline(leftMs(), "the transaction", writing);
      }
      case "call_out": {
        const { valid, write } = await readInTurn(principal, asked, withWrite);
        const handle = async () => performed(await work.handle(valid));
        const bounds = { waitMs: leftMs(), deadlineMs: work.callsOut.deadlineMs };
        return await idempotentWrites.aroundCall(write, bounds, handle);
      }
      case "upload":
        return await receiveUpload(work, validRequest(principal, asked), asked);
      case "retired":
        validRequest(principal, asked);
        throw new Problem("route_retired");
      default:
        throw new Error(`Unknown kind of work: ${JSON.stringify(work satisfies never)}`);
    }
  }

  /**
   * Looks, and where there is nothing to read, waits to be told and looks again. Watching begins before the first look,
   * so nothing is missed between the two; whoever is told nothing looks once. Each look has the time that any answer
   * has; the waiting is on top of it, and so is a turn to look again. Who gets none in time has found nothing, and asks
   * again.
   */
  async function holdRead(
    waits: Wait<ErasedRequest, ErasedResult>,
    valid: ErasedRequest,
    { onGone, confirmKey }: Asked,
    look: (withinMs: number) => Promise<ErasedResult>,
    firstWithinMs: number,
  ): Promise<ErasedResult> {
    const waitMs = waits.waitMs(valid);
    const watch = waitMs > 0 ? news.watch(valid.accountId, valid.sharer) : null;
    if (watch === null) return await look(firstWithinMs);
    onGone?.(() => watch.end());
    try {
      const endsAtMs = performance.now() + waitMs;
      const leftMs = () => endsAtMs - performance.now();
      let result = await look(firstWithinMs);
      while (waits.isEmpty(result)) {
        if (leftMs() <= 0 || !(await watch.news(leftMs()))) return result;
        const again = await lookAgain(valid.sharer, { waitMs: leftMs() }, async () => {
          await confirmKey?.();
          return await look(ANSWER_WITHIN_MS);
        }).catch((error: unknown) => {
          if (translateError(error) instanceof TemporarilyUnavailable) return null;
          throw error;
        });
        if (again === null) return result;
        result = again;
      }
      return result;
    } finally {
      watch.end();
    }
  }

  /** Before the body is taken, it has the time of any request; then it has to move; then it ends soon. */
  async function receiveUpload(work: Upload, valid: ErasedRequest, asked: Asked): Promise<WriteResult> {
    const { stream, waitMs } = asked;
    if (stream === undefined) throw new Error(`Operation ${operationKey} takes a stream.`);
    const place = uploads.take(valid.sharer, (reason) => stream.cut(reason));
    stream.movesFor(place);
    const uploading = idempotentWrites.aroundUpload(writeOf(valid, asked), waitMs, {
      receive: () => receiveAll(work, valid, stream),
      recheck: (tx) => work.recheck(valid, tx),
      cut: (reason) => stream.cut(reason),
      perform: async (tx, received) => performed(await work.handle(valid, tx, received)),
      refused: (received) => work.refused(valid, received),
    });
    uploading.then(place.giveBack, place.giveBack);
    try {
      await withDeadline(waitMs, "what comes before a body", Promise.race([uploading, stream.opened]));
      const ending = stream.complete.then(() =>
        withDeadline(UPLOAD_ENDS_WITHIN_MS, "an upload's end", uploading),
      );
      return await Promise.race([uploading, ending]);
    } finally {
      stream.close();
    }
  }

  function respondEach({ handleEach }: Extract<Work, { kind: "batched_write" }>): PerformEach {
    // Of results that there may be, made before it is known which there are.
    const toAnswer = compileResponse(operation);
    const respond = (result: ErasedResult) => toStoredResponse(toAnswer(result), holdsSecret);
    return async (writes, lockWaitMs) => {
      const claimed = writes.map(({ claim, item, caller: { userId } }) => ({ claim, item, userId, respond }));
      const outcomes = await handleEach(claimed, lockWaitMs).catch((error: unknown) => {
        throw translateError(error);
      });
      return outcomes.map((outcome) =>
        outcome instanceof Problem || (outcome !== undefined && "earlier" in outcome)
          ? outcome
          : toResponse(outcome),
      );
    };
  }

  function performed(result: ErasedResult): Performed {
    return { result, response: toResponse(result) };
  }

  /** A large body is not even read before its account's turn: that alone holds up everybody. */
  async function readInTurn<T>(
    principal: Principal,
    asked: Asked,
    use: (valid: ErasedRequest) => T,
  ): Promise<T> {
    const read = () => use(validRequest(principal, asked));
    if ((asked.body?.length ?? 0) < BODY_BYTES_IN_TURN_MIN) return read();
    return await untilGone(asked.onGone, (gone) =>
      onThread(sharerOf(accountOf(principal), principal.caller), { waitMs: asked.waitMs, gone }, read),
    );
  }

  /** Across accounts it takes its turns as an account of its own. */
  function accountOf({ caller, accountId }: Principal): string {
    const account = operation.isAcrossAccounts ? caller.keyId : accountId;
    if (account === null) throw new Problem("account_required");
    return account;
  }

  function validRequest(principal: Principal, asked: Asked): ErasedRequest {
    const { caller } = principal;
    const accountId = accountOf(principal);
    return {
      ...validate(asked),
      accountId,
      caller,
      sharer: sharerOf(accountId, caller),
      get user() {
        return userOf(accountId, caller);
      },
      reader: async (tx) => {
        const { userId } = caller;
        const spaceIds = userId === null ? null : await findSpaces(accountId, userId, tx ?? null);
        return { accountId, spaceIds };
      },
      requestId: asked.requestId,
      traceparent: asked.traceparent,
      problem: (code, errors = []) => new Problem(code, { errors }),
    };
  }

  function writeOf(valid: ErasedRequest, asked: Asked): Write {
    const { idempotencyKey } = asked;
    if (idempotencyKey === null) throw new Problem("idempotency_key_required");
    const { params, query, body, accountId, caller, requestId } = valid;
    const fingerprint = fingerprintOf({ operationKey, params, query, body: asked.stream?.announced ?? body });
    const claim = { accountId, keyId: caller.keyId, idempotencyKey, operationKey, fingerprint };
    const details = (result: ErasedResult) => (typeof audit === "function" ? audit(valid, result) : null);
    const judge = judgeRepeat !== null && caller.userId !== null ? judgeRepeat : null;
    return {
      claim,
      size: sizeOf(asked.body),
      holdsSecret,
      isExempt: isExempt(operation, caller),
      caller,
      requestId,
      details,
      judgeRepeat: judge && ((tx, told) => judge(valid, tx, told)),
    };
  }

  function batchedWriteOf(
    { prepare }: Extract<Work, { kind: "batched_write" }>,
    valid: ErasedRequest,
    asked: Asked,
  ): BatchedWrite<unknown> {
    const bytes = Buffer.isBuffer(valid.body) ? valid.body.length : 0;
    const write = writeOf(valid, asked);
    try {
      return { ...write, ...prepare(valid), bytes };
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      return { ...write, item: error, name: null, bytes };
    }
  }

  return (principal, asked) =>
    perform(principal, asked).catch((cause: unknown) => {
      const error = translateError(cause);
      check?.(operation, { error });
      throw error;
    });
}

export function userOf(accountId: string, { userId }: Pick<Caller, "userId">) {
  if (userId === null) throw new Error("An operation without `needsUser` asks for the user.");
  return { accountId, userId };
}

/** All of the body has to be taken: that it is right is known at its end. */
async function receiveAll(work: Upload, valid: ErasedRequest, stream: IncomingBody): Promise<unknown> {
  try {
    const received = await work.receive(valid);
    if (!stream.isComplete) throw stream.failure ?? new Error("An upload was not read to its end.");
    return received;
  } catch (error) {
    throw stream.failure ?? error;
  }
}

/** @throws Problem unless the caller's scopes are enough, and it is staff or a user where it has to be */
export function refuseCaller(
  { scope, isAcrossAccounts, needsUser, isOfAccount }: Operation,
  { scopes, isStaff, userId }: Pick<Caller, "scopes" | "isStaff" | "userId">,
): void {
  const lacks = [
    ...(scopes.has(scope) ? [] : [`It lacks the scope ${scope}.`]),
    ...(isAcrossAccounts && !isStaff ? ["It is not a staff key."] : []),
    ...(needsUser && userId === null ? ["It acts for no user."] : []),
    ...(isOfAccount && userId !== null ? ["It acts for a user, and this covers the whole account."] : []),
  ];
  if (lacks.length === 0) return;
  const path = "header.authorization";
  throw new Problem("access_denied", { errors: lacks.map((message) => ({ path, message })) });
}

function sizeOf(body: Buffer | undefined): number {
  return Math.min(BODY_PLACES_MAX, 1 + Math.floor((body?.length ?? 0) / BODY_BYTES_PER_PLACE));
}
