import type { IncomingMessage } from "node:http";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Place } from "../base/model/account-places.ts";
import { sendContinue } from "./connections.ts";
import { BUFFERED_BODY_BYTES_FIRST } from "./limits.ts";
import { invalidRequest, Problem } from "./problems.ts";
import { addressBucket } from "./rate-limits.ts";
import { contextOf } from "./request-context.ts";
import { onDisconnectOf, type TransferPlaces } from "./turns.ts";

/**
 * Reads bodies into memory, each within its sharer's share of all bytes in memory; without a key it counts for its
 * address. A body counts in full from its first byte, as long as it was announced or may become, until what an
 * operation does with it has ended, whether its client has gone or not. Those of pages are small, and only read.
 *
 * Losing option: fastify's own parser, which keeps each chunk as it comes. Of bytes that come one by one, each then
 * holds hundreds.
 */
export function createReadBody(places: TransferPlaces) {
  return async (request: FastifyRequest, payload: IncomingMessage): Promise<Buffer> => {
    const bytesMax = request.routeOptions.bodyLimit!;
    const length = request.headers["content-length"];
    const announced = length === undefined ? null : Number(length);
    if (announced !== null && announced > bytesMax) throw new Problem("payload_too_large");
    // It may have gone while its key was looked up, and then nothing more is told of it.
    if (request.raw.socket.destroyed) throw notArrived();
    const context = contextOf(request);
    const { promise: isWhole, resolve, reject } = Promise.withResolvers<void>();
    const place = places.take(ownerOf(request), reject, Math.max(1, announced ?? bytesMax));
    let body = Buffer.allocUnsafe(announced ?? BUFFERED_BODY_BYTES_FIRST);
    let bytes = 0;
    const keep = (chunk: Buffer) => {
      place.moved(chunk.length);
      const before = bytes;
      bytes += chunk.length;
      if (bytes > bytesMax) return reject(new Problem("payload_too_large"));
      if (bytes > body.length) body = Buffer.concat([body], Math.min(bytesMax, Math.max(bytes, 2 * before)));
      chunk.copy(body, before);
    };
    try {
      sendContinue(request.raw);
      payload.on("data", keep);
      payload.once("end", resolve);
      payload.once("close", () => reject(notArrived()));
      await isWhole;
      if (context.worksWithBody) context.bufferedBody = place;
      return body.subarray(0, bytes);
    } finally {
      // What comes after a refusal is not kept.
      payload.off("data", keep);
      place.rest();
      if (context.bufferedBody === null) place.giveBack();
    }
  };
}

const notArrived = () => invalidRequest("body", "The body did not arrive as it was announced.");

/** Whose share of the memory a request takes. */
function ownerOf(request: FastifyRequest): string {
  const { sharer, key } = contextOf(request);
  return sharer ?? key?.id ?? addressBucket(request.ip);
}

export type HoldAnswer = ReturnType<typeof createHoldAnswer>;

/**
 * Holds each answer within its account's share, from when it is made: those in the making are no more than requests are
 * at work on the database. Losing option: to wait for room. An answer that waits is in memory itself.
 */
export function createHoldAnswer(places: TransferPlaces) {
  const held = new WeakMap<FastifyReply, Place>();
  /**
   * Counts an answer's bytes as in memory until they have left, or nobody reads them any more; again does nothing.
   * @throws Problem 429 for an account that has its share
   * @throws TemporarilyUnavailable when there is no room
   */
  return (reply: FastifyReply, bytes: number): Place => {
    const { request } = reply;
    const cut = () => request.raw.socket.destroy();
    const place = held.get(reply) ?? places.take(ownerOf(request), cut, Math.max(1, bytes));
    held.set(reply, place);
    onDisconnectOf(request, reply)(place.giveBack);
    return place;
  };
}
