import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { ApiKey } from "./api-keys.ts";
import type { HoldAnswer } from "./buffered-bodies.ts";
import type { WriteResult } from "./idempotent-write.ts";
import type { Asked, Principal } from "./perform.ts";
import type { ExplainedProblem, FieldError } from "./problems.ts";
import type { CountedSession } from "./request-guards.ts";
import type { InTurn, OnThread } from "./turns.ts";

/** A problem as a page describes it. */
export type DescribedProblem = ExplainedProblem & {
  readonly errors: readonly FieldError[];
  readonly headers: Readonly<Record<string, string>>;
};

/** What routes other than the operations' own get of the API: the same operations, limits and problems. */
export type Kernel = {
  /**
   * Runs an operation in a principal's name, whom the route has identified and counted.
   * @throws Problem, and whatever the operation throws
   */
  ask(operationKey: string, principal: Principal, asked: Asked): Promise<WriteResult>;
  /** Of all work on the database that requests ask for: what a route does there itself takes its turn. */
  readonly inTurn: InTurn;
  /** Of what keeps the thread that serves everybody: a large body. */
  readonly onThread: OnThread;
  /** For an answer that is kept for a while before it is sent; all others are counted then. */
  readonly holdAnswer: HoldAnswer;
  /** Counts a request by its address. @throws Problem that refuses it */
  admit(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts a request by its session, whose limit is a key's, and its account. @throws Problem that refuses it */
  countSession(request: FastifyRequest, reply: FastifyReply, session: CountedSession): Promise<void>;
  /** The key of this text, for a page that it was typed into; null: there is none, or it is not valid here. */
  identify(key: string, request: FastifyRequest): Promise<ApiKey | null>;
  /** Any error as a problem; an internal one is logged, and its reader learns nothing of it. */
  describe(error: unknown, request: FastifyRequest): DescribedProblem;
};

/** Adds routes beside the operations'. */
export type AddRoutes = (app: FastifyInstance, kernel: Kernel) => Promise<void>;
