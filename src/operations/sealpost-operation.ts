import type { ClientBase } from "pg";
import type { Operation } from "../api/declarations.ts";
import { operationDefiners } from "../api/define-operation.ts";
import type { DomainCode } from "./problems.ts";

/** A connection that has begun a transaction: what writes happen in. */
export type Transaction = ClientBase;

export type SealpostOperation = Operation<Transaction>;

/** The ways to declare an operation of this service. */
export const { read, write, callOut } = operationDefiners<Transaction, DomainCode>();
