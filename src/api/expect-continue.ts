import type { IncomingMessage, Server, ServerResponse } from "node:http";

/** Requests whose client sends the body only when it is told to go on. */
const waiting = new WeakMap<IncomingMessage, ServerResponse>();
/** Those of them whose operation says when. */
const postponed = new WeakSet<IncomingMessage>();

/**
 * `Expect: 100-continue` is answered when the body is wanted, so that a request that is refused before never sends it.
 * Node closes a connection whose client was not told to go on. Any other expectation is ignored, not answered with a
 * bare 417.
 */
export function answerExpectations(server: Server): void {
  server.on("checkContinue", (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response);
    server.emit("request", request, response);
  });
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
}

/** The operation itself says when it wants the body. */
export function postponeContinue(request: IncomingMessage): void {
  postponed.add(request);
}

/** Before a body is parsed: sends 100 Continue, unless the operation does so later. */
export function continueUnlessPostponed(request: IncomingMessage): void {
  if (!postponed.has(request)) sendContinue(request);
}

export function sendContinue(request: IncomingMessage): void {
  waiting.get(request)?.writeContinue();
  waiting.delete(request);
}
