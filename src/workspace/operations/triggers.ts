import { setTimeout as wait } from "node:timers/promises";
import type { FastifyRequest } from "fastify";
import type { ClientBase } from "pg";
import { z } from "zod";
import { id } from "../../api/fields.ts";
import { coalesceByTurn } from "../../base/database/coalesce.ts";
import { readCron } from "../../base/database/graphile-worker.ts";
import { refuseBeyondStorage, storageRefusalOf } from "../../base/database/storage.ts";
import { inTransaction } from "../../base/database/transaction.ts";
import { sharerOf } from "../../base/model/account-places.ts";
import { DAY_SECONDS } from "../../base/model/time.ts";
import { digestSecret, newSecret } from "../../http/api-keys.ts";
import { withDeadline } from "../../http/deadline.ts";
import { readIdempotencyKey } from "../../http/idempotent-write.ts";
import type { AddRoutes } from "../../http/kernel.ts";
import { ANSWER_WITHIN_MS, BODY_BYTES_IN_TURN_MIN } from "../../http/limits.ts";
import { emptyResponse, jsonBody, jsonResponse, type Operation } from "../../http/operation.ts";
import { type FieldError, Problem } from "../../http/problems.ts";
import { beginRequest, contextOf, msLeft, readTraceparent } from "../../http/request-context.ts";
import { invalidRequestFrom, parseJsonBody, refuseMediaType } from "../../http/request-validation.ts";
import type { InTurn } from "../../http/turns.ts";
import { SIGNATURE_HEADER, verifySignature, WebhookVerificationError } from "../../signing/index.ts";
import type { Definition } from "../model/definition.ts";
import { nextDue } from "../model/due-times.ts";
import { CreatedHook, TRIGGER_ERRORS } from "../model/triggers.ts";
import { FORGOTTEN_INPUT, roomForRuns } from "../store/runs.ts";
import type { SpaceUser } from "../store/statements.ts";
import {
  type BegunRun,
  beginRuns,
  findHook,
  type Hook,
  lockHooked,
  type NewRun,
  readNow,
  removeHook,
  removeSchedule,
  rotateHook,
  setSchedule,
  signingSecretOf,
} from "../store/triggers.ts";
import { lockWorkflow } from "../store/workflows.ts";
import { input as item } from "./runs.ts";
import { operationsOf, requirePermission, type WorkspaceDependencies } from "./workspace-operation.ts";

/** When a schedule is due next; a string: what is wrong with it. */
async function nextTime(tx: ClientBase, { cron, time_zone: timeZone }: Clock): Promise<Date | string> {
  const times = await readCron(cron);
  if (typeof times === "string") return times;
  const next = nextDue({ cron: times, timeZone }, (await readNow(tx)).getTime());
  return next === null ? "No such day ever comes." : new Date(next);
}
type Clock = { readonly cron: string; readonly time_zone: string };

/** @param place what the definition's paths begin with */
export async function findCronFaults(tx: ClientBase, { nodes }: Definition, place: string) {
  const faults: FieldError[] = [];
  for (const [index, node] of nodes.entries()) {
    const next = node.kind === "schedule_trigger" ? await nextTime(tx, node.parameters) : null;
    const path = `${place}.nodes.${index}.parameters.cron`;
    if (typeof next === "string") faults.push({ path, message: next });
  }
  return faults;
}

/** The version that was just published begins at its own schedule, or at none. The workflow is locked. */
export async function schedulePublished(
  tx: ClientBase,
  accountId: string,
  workflowId: string,
  { nodes }: Definition,
): Promise<void> {
  const node = nodes.find(({ kind }) => kind === "schedule_trigger");
  if (node?.kind !== "schedule_trigger") return void (await removeSchedule(tx, accountId, workflowId));
  const { cron, time_zone, catch_up_seconds } = node.parameters;
  const next = await nextTime(tx, node.parameters);
  const nextAt = next instanceof Date ? next : null;
  await setSchedule(tx, accountId, workflowId, node.id, cron, time_zone, catch_up_seconds, nextAt);
}

const HOOKS_PATH = "/v1/workflows/hooks";
const { write } = operationsOf("Workflows");
const path = "/v1/workflows/{workflow_id}/hook";
const params = z.strictObject({ workflow_id: id });
const Rotation = z.strictObject({
  overlap_seconds: z
    .int()
    .min(0)
    .max(DAY_SECONDS)
    .default(0)
    .describe("How long the hook before it still works. 0: it ends at once."),
});

type Dependencies = Pick<WorkspaceDependencies, "pool" | "publicUrl" | "secretsKey">;

type OfWorkflow = Parameters<typeof requirePermission>[0] & {
  readonly user: SpaceUser;
  readonly params: z.output<typeof params>;
};
const lockPublishable = (tx: ClientBase, request: OfWorkflow) =>
  requirePermission(request, "publish_workflows", lockWorkflow(tx, request.user, request.params.workflow_id));

/** URLs at which others run a workflow. */
export function hookOperations({ publicUrl, secretsKey }: Dependencies): readonly Operation[] {
  return [
    write({
      key: "workflows.hook.create",
      summary: "Make or rotate a workflow's hook",
      description:
        "Makes a URL for the workflow, which is shown only once, and ends the one before. If the current version " +
        "begins at a `hook_trigger`, whoever knows the URL can POST a JSON object to it (with Content-Type: " +
        "application/json, and an Idempotency-Key if you like): that starts a run, with the object for its input, in " +
        "the name of whoever published the version, and is answered 202 with its `run_id`. For members who may " +
        "publish workflows: others get 403.",
      method: "POST",
      path,
      scope: "workflows:write",
      holdsSecret: true,
      params,
      body: jsonBody(Rotation, { isOptional: true }),
      audit: ({ params: { workflow_id } }, { body: { id: hook_id, previous_ends_at } }) => {
        return { workflow_id, hook_id, previous_ends_at };
      },
      response: jsonResponse(201, CreatedHook),
      errors: ["not_found", "access_denied"],
      judgeRepeat: async (request, tx) => {
        await lockPublishable(tx, request);
        return "again";
      },
      handle: async (request, tx) => {
        const { id: workflowId } = await lockPublishable(tx, request);
        const key = newSecret();
        const next = { digest: digestSecret(key), overlapSeconds: request.body.overlap_seconds };
        const made = await rotateHook(tx, request.user, workflowId, next, secretsKey);
        return { body: { ...made, url: `${publicUrl}${HOOKS_PATH}/${key}` } };
      },
    }),
    write({
      key: "workflows.hook.delete",
      summary: "End a workflow's hook",
      description:
        "Its URL works no more, nor does one that a rotation has left for a while. For members who may publish " +
        "workflows: others get 403. 404 if it has none.",
      method: "DELETE",
      path,
      scope: "workflows:write",
      params,
      audit: ({ params }) => params,
      response: emptyResponse(),
      errors: ["not_found", "access_denied"],
      handle: async (request, tx) => {
        const { id: workflowId } = await lockPublishable(tx, request);
        if (!(await removeHook(tx, request.user.accountId, workflowId))) throw request.problem("not_found");
      },
    }),
  ];
}

/** What a hook has of an API key: nothing but a name in logs, and a limit. */
const NO_KEY = { accountId: null, userId: null, scopes: new Set<string>(), expiresAt: null, revokedAt: null };

type KnownHook = Hook & { readonly digest: Buffer };

/** What was posted to a hook. `input`: what the body says, as it is stored. `begunFor` null: it has its own run. */
type Posted = Required<Pick<NewRun, "begunFor">> &
  Pick<FastifyRequest, "headers"> & { readonly body: Buffer; readonly input: string };
type WaitingPost = Posted & { end(begun: BegunRun | Problem | Promise<never>): void };

/** At a hook: all that it is let send in a minute by default begins within 4 s, and takes little from others then. */
const TOGETHER_MAX = 16;
const BEGIN_EVERY_MS = 100;

/** The first and what begins with it, in one transaction: no two for the same. */
function takeTogether(waiting: Set<WaitingPost>): readonly WaitingPost[] {
  const keys = new Set<string>();
  const isOne = ({ begunFor: key }: Posted) => key === null || (!keys.has(key) && Boolean(keys.add(key)));
  const together = [...waiting].filter(isOne).slice(0, TOGETHER_MAX);
  for (const post of together) waiting.delete(post);
  return together;
}

/** `POST /v1/workflows/hooks/{hook_key}` runs a workflow. Whoever has the key needs no other. */
export function createHookRoutes({ pool, secretsKey }: Dependencies): AddRoutes {
  const find = coalesceByTurn((digest) => findHook(pool, Buffer.from(digest, "latin1")));
  const hooks = new WeakMap<FastifyRequest, KnownHook>();
  /** By hook, of which a transaction is under way. */
  const waiting = new Map<string, Set<WaitingPost>>();

  /** What each comes to, in their order. @throws what refuses all of them, or one for want of storage */
  async function begin(tx: ClientBase, hook: KnownHook, posts: readonly Posted[]) {
    const { accountId } = hook;
    const workflow = await lockHooked(tx, accountId, hook.workflowId);
    // It may have been ended by whoever had the workflow before.
    if ((await findHook(tx, hook.digest)) === null) throw new Problem("unauthorized");
    if (workflow === null)
      throw inactive("Its current version begins elsewhere. Publish one with a hook_trigger.");
    const { authMode, refusal, ...triggered } = workflow;
    const secret = authMode === "signature" ? signingSecretOf(hook, secretsKey) : null;
    const fault = refusal === null ? null : inactive(TRIGGER_ERRORS[refusal]);
    const faults = posts.map((post) => (secret === null ? null : signatureFaultOf(post, secret)) ?? fault);
    const of = { ...triggered, webhookId: hook.id };
    const runs = posts
      .filter((_, index) => faults[index] === null)
      .map(({ headers, input, begunFor }) => {
        return { ...of, input, begunFor, traceparent: readTraceparent(headers.traceparent) };
      });
    if (runs.length === 0) return faults as readonly Problem[];
    const user = { accountId, userId: triggered.userId };
    await refuseBeyondStorage(tx, accountId, user.userId, null);
    const room = await roomForRuns(tx, user, runs.length);
    const begun = (await beginRuns(tx, accountId, JSON.stringify(runs), room)).values();
    return posts.map(({ input }, index) => {
      if (faults[index]) return faults[index];
      const run = begun.next().value;
      if (!run?.id) return new Problem("too_many_workflow_runs");
      const isSame = run.input === input || run.input === FORGOTTEN_INPUT;
      return isSame ? run : new Problem("idempotency_key_reused");
    });
  }

  /** Never rejects. */
  async function beginTogether(hook: KnownHook, posts: readonly WaitingPost[]): Promise<void> {
    try {
      const begun = await inTransaction(pool, (tx) => begin(tx, hook, posts));
      for (const [index, post] of posts.entries()) post.end(begun[index]!);
    } catch (error) {
      // There may be room for some of them.
      const isTooMuch = posts.length > 1 && storageRefusalOf(error) !== null;
      for (const post of posts)
        if (isTooMuch) await beginTogether(hook, [post]);
        else post.end(Promise.reject(error));
    }
  }

  /** Until none waits. Never rejects. */
  async function beginAll(hook: KnownHook, own: Set<WaitingPost>, inTurn: InTurn): Promise<void> {
    const sharer = sharerOf(hook.accountId, { userId: hook.workflowId });
    for (const first of own) {
      const rest = wait(BEGIN_EVERY_MS);
      const turn = inTurn(sharer, { waitMs: ANSWER_WITHIN_MS }, () => beginTogether(hook, takeTogether(own)));
      await turn.catch((error: unknown) => first.end(Promise.reject(error)));
      own.delete(first);
      if (own.size > 0) await rest;
    }
    waiting.delete(hook.id);
  }

  /**
   * At once, or together with what else is posted to the hook before its next transaction. Losing options: one for
   * each, and as many in one as have come. Others' webhooks waited longer.
   */
  async function beginSoon(hook: KnownHook, posted: Posted, waitMs: number, inTurn: InTurn) {
    const { promise, resolve: end } = Promise.withResolvers<BegunRun | Problem>();
    const post = { ...posted, end };
    const own = waiting.get(hook.id) ?? new Set();
    own.add(post);
    if (!waiting.has(hook.id)) {
      waiting.set(hook.id, own);
      beginAll(hook, own, inTurn);
    }
    const begun = await withDeadline(waitMs, "the transaction", promise).finally(() => own.delete(post));
    if (begun instanceof Problem) throw begun;
    return begun;
  }

  return async (app, kernel) => {
    app.route<{ Params: { hook_key?: string } }>({
      url: `${HOOKS_PATH}/:hook_key?`,
      method: "POST",
      onRequest: async (request, reply) => {
        const context = beginRequest(request, "hook", true);
        const digest = digestSecret(request.params.hook_key ?? "");
        const finding = find(digest.toString("latin1"));
        const { answer: hook } = await withDeadline(ANSWER_WITHIN_MS, "authentication", finding);
        if (hook === null) {
          await kernel.admit(request, reply);
          throw new Problem("unauthorized");
        }
        const { accountId, workflowId } = hook;
        // Each has the limits of a user of its own, so that one that is flooded takes nothing from others.
        const sharer = sharerOf(accountId, { userId: workflowId });
        Object.assign(context, { accountId, sharer, key: { ...NO_KEY, id: hook.id, accountId } });
        await kernel.countSession(request, reply, { ...NO_KEY, id: workflowId });
        hooks.set(request, { ...hook, digest });
        refuseMediaType(request.headers, Number(request.headers["content-length"] ?? 0));
      },
      handler: async (request, reply) => {
        const context = contextOf(request);
        const { headers } = request;
        const body = (request.body as Buffer | undefined) ?? Buffer.alloc(0);
        try {
          refuseMediaType(headers, body.length);
          const hook = hooks.get(request)!;
          const waitMs = msLeft(context);
          const read = () => inputOf(body);
          const isLarge = body.length >= BODY_BYTES_IN_TURN_MIN;
          const input = isLarge ? await kernel.onThread(context.sharer!, { waitMs }, read) : read();
          const key = headers["idempotency-key"];
          const begunFor = key === undefined ? null : `key ${readIdempotencyKey(key)}`;
          const posted = { headers, body, input, begunFor };
          const { id: run_id, isNew } = await beginSoon(hook, posted, waitMs, kernel.inTurn);
          if (!isNew) reply.header("idempotent-replayed", "true");
          reply.code(202).header("content-type", "application/json");
          return reply.send(Buffer.from(JSON.stringify({ run_id })));
        } finally {
          context.bufferedBody?.giveBack();
        }
      },
    });
  };
}

function inactive(message: string): Problem {
  return new Problem("hook_inactive", { errors: [{ path: "path.hook_key", message }] });
}

function inputOf(body: Buffer): string {
  const { data, error } = item.safeParse(body.length === 0 ? {} : parseJsonBody(body));
  if (error !== undefined) throw invalidRequestFrom("body", error);
  return JSON.stringify(data);
}

/** Null: the secret has signed it now. */
function signatureFaultOf({ body, headers }: Posted, secret: string): Problem | null {
  try {
    verifySignature({ body, header: headers[SIGNATURE_HEADER], secrets: [secret] });
    return null;
  } catch (error) {
    if (!(error instanceof WebhookVerificationError) || error.kind === "misuse") throw error;
    const { code, message } = error;
    const errors = [{ path: `header.${SIGNATURE_HEADER}`, message: `${code}: ${message}` }];
    return new Problem("hook_signature_invalid", { errors });
  }
}
