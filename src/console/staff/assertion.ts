import type { FastifyRequest } from "fastify";

/** Whom a proxy in front vouches for, by its signature. */
export type StaffPerson = {
  /** The assertion's subject. */
  readonly id: string;
  /** For people: who it was stands in the audit log. */
  readonly name: string;
  /** What the person's groups may do; none, perhaps. */
  readonly scopes: ReadonlySet<string>;
};

/**
 * Null: the request has no assertion, or none that holds. Nothing else in a request is believed.
 *
 * @throws TemporarilyUnavailable where the proxy's keys cannot be had
 */
export type ReadAssertion = (headers: FastifyRequest["headers"]) => Promise<StaffPerson | null>;
