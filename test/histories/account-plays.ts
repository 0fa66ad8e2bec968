// Histories of accounts: an endpoint that is paused, a feed that is read, a move to another cell.
import { findMoveHindrance } from "../../src/app/areas.ts";
import type { Move, MoveRefusedError } from "../../src/cells/move.ts";
import { patience } from "../support/time-limits.ts";
import type { Answer, History, Operation } from "./checker.ts";
import { type CellName, DEADLINE_MS, now, type Told } from "./installation.ts";
import { type Recording, unexpected } from "./recording.ts";

/** A POST begins within 3 s of its claim, and reaches its receiver within its deadline, or does not. */
const SENT_WITHIN_NS = (3_000 + DEADLINE_MS) * 1e6;

/**
 * An endpoint that is paused and resumed, while there is always something to send to it. A POST is in flight from its
 * claim on, and ends normally though a pause begins; so what is recorded of it begins when it can have been claimed at
 * the earliest: not before it is committed, nor before the one before it has arrived.
 */
export async function pause(to: Recording): Promise<History> {
  const { world, chance, name } = to;
  const path = `/${name}`;
  const earliest = new Map<string, number>();
  const sends: Operation[] = [];
  let isOver = false;
  world.hear(path, (id, at) => {
    const call = Math.max(earliest.get(id) ?? at, at - SENT_WITHIN_NS);
    earliest.set(id, at);
    if (!isOver) sends.push({ client: 9, call, return: at, in: { do: "send" }, out: { is: "done" } });
    return chance.isTrue(0.3) ? 503 : 200;
  });
  const { accountId, key } = await to.prepare(() => world.newAccount(path));
  const told = (answer: Told | null): Answer | null => {
    if (answer === null) return null;
    if (answer.status !== 200) throw unexpected(answer);
    return { is: "done", value: String(answer.body.paused_at ?? "") };
  };
  const change = async (client: number) => {
    for (let n = 0; n < 4; n++) {
      const what = chance.pick(["pause", "resume"] as const);
      const act = async () => told(await to.write("POST", `/v1/webhooks/endpoint/${what}`, { key }));
      await to.do(client, { do: what }, act);
      await to.rest(300);
    }
  };
  const read = async (client: number) => {
    while (!isOver) {
      await to.do(client, { do: "read" }, async () =>
        told(await world.ask("GET", "/v1/webhooks/endpoint", { key })),
      );
      await to.rest(300);
    }
  };
  const publish = async (client: number) => {
    for (let n = 0; !isOver; n++) {
      const id = `${name}-${client}-${n}`;
      const begin = () => earliest.set(id, now());
      begin();
      const text = `{"id":"${id}","status":"succeeded"}`;
      if (client === 3) await to.write("POST", "/v1/analyses", { key, body: `{"analysis":${text}}` });
      else await to.publishBySql(accountId, text, { heldMs: 200, onCommit: begin });
      await world.up();
      await to.rest(150);
    }
  };
  const others = [read(2), publish(3), publish(4), publish(5)];
  await Promise.all([change(0), change(1)]);
  isOver = true;
  await Promise.all(others);
  to.operations.push(...sends);
  return to.done();
}

/** Once all have published, what was acknowledged is in the feed. */
const COMES_WITHIN_MS = 2_000;
const PUBLISHERS = 4;
const READERS = 3;
const PUBLISHED_EACH = 4;
const PUBLISHED_MAX = PUBLISHERS * PUBLISHED_EACH;

/** Transactions that commit in any order or never, while readers follow the account's feed, each in its own steps. */
export async function feed(to: Recording): Promise<History> {
  const { world, chance, name } = to;
  const { accountId, key } = await to.prepare(() => world.newAccount(chance.isTrue(0.3) ? "/any" : null));
  const acknowledged = new Set<string>();
  let publishing = PUBLISHERS;
  let endsAt = Number.POSITIVE_INFINITY;
  const publish = async (client: number) => {
    for (let n = 0; n < PUBLISHED_EACH; n++) {
      const value = `${client}-${n}`;
      const text = `{"id":"${value}","status":"succeeded"}`;
      const answer = await to.do(client, { do: "publish", value }, async () => {
        const told =
          client < 1
            ? await to.write("POST", "/v1/analyses", { key, body: `{"analysis":${text}}` })
            : await to.publishBySql(accountId, text, { heldMs: 120 });
        if (told == null) return told;
        if ("refused" in told || ("status" in told && told.status !== 202))
          throw new Error(`${name}: ${JSON.stringify(told)}`);
        return { is: "done" };
      });
      if (answer !== null) acknowledged.add(value);
      await to.rest(60);
    }
    if (--publishing === 0) endsAt = performance.now() + patience(COMES_WITHIN_MS);
  };
  const read = async (client: number) => {
    const limit = chance.between(1, 6);
    let at = 0;
    let cursor = "";
    const known = new Set<string>();
    for (let isLast = false; !isLast; ) {
      isLast =
        publishing === 0 && ([...acknowledged].every((one) => known.has(one)) || performance.now() > endsAt);
      const seconds = isLast || chance.isTrue(0.3) ? 0 : 1;
      const answer = await to.do(client, { do: "read", at }, async () => {
        const query = `limit=${limit}&wait=${seconds}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`;
        const told = await world.ask("GET", `/v1/webhooks/events?${query}`, { key });
        if (told === null) return null;
        if (told.status !== 200) throw unexpected(told);
        cursor = String(told.body.next_cursor);
        const events = told.body.items as readonly { readonly body: string }[];
        const items = events.map(({ body }) => (JSON.parse(body) as { data: { id: string } }).data.id);
        return { is: "done", items, isEnd: items.length < limit };
      });
      const items = answer?.items ?? [];
      at += items.length;
      for (const item of items) known.add(item);
      // Of a feed that repeats itself there is no end.
      isLast &&= answer?.isEnd === true || at > PUBLISHED_MAX;
      if (items.length < limit) await to.rest(100);
    }
  };
  await to.crowd(PUBLISHERS + READERS, (client) => (client < PUBLISHERS ? publish(client) : read(client)));
  return to.done();
}

/** Of a move that is not killed any more; a right one needs one or two. */
const RUNS_MAX = 8;

/** What moves accounts, of this tree or of a copy of it. */
export type Mover = Pick<typeof import("../../src/cells/move-account.ts"), "moveAccount"> &
  Pick<typeof import("../../src/cells/calling-off.ts"), "callOffMove">;

/** An account that is written to in both cells, while its move is killed, taken up again, and called off. */
export async function cell(to: Recording, mover: Mover): Promise<History> {
  const { world, chance, name } = to;
  const { accountId, key } = await to.prepare(() => world.newAccount());
  let isOver = false;
  let n = 0;
  const write = async (client: number) => {
    for (let left = 2; left > 0; left -= isOver ? 1 : 0) {
      const value = chance.pick<CellName>(["source", "target"]);
      const text = `{"id":"${name}-${n++}","status":"succeeded"}`;
      await to.do(client, { do: "write", value }, async () => {
        if (client < 2) {
          const told = await to.write("POST", "/v1/analyses", {
            key,
            body: `{"analysis":${text}}`,
            cell: value,
          });
          if (told === null) return null;
          if (told.status === 202) return { is: "done" };
          if (told.status === 401 || told.body.code === "account_moved") return { is: "refused" };
          throw unexpected(told);
        }
        const level = chance.pick(["read committed", "repeatable read"]);
        const told = await to.publishBySql(accountId, text, { cell: value, level });
        if (told == null) return told;
        if ("delivery" in told) return { is: "done" };
        if (told.refused === "SP007" || told.refused === "SP001") return { is: "refused" };
        throw new Error(`${name}: refused as ${told.refused}`);
      });
      await to.rest(200);
    }
  };
  const move = async () => {
    await to.rest(100);
    for (let kills = chance.between(0, 4); kills > -RUNS_MAX; kills--) {
      if (await moveOnce(to, mover, accountId, kills > 0)) return;
      if (chance.isTrue(0.4)) await callOff(to, mover, accountId);
      await world.up();
      await to.rest(50);
    }
  };
  const moving = move().finally(() => {
    isOver = true;
  });
  await Promise.all([to.crowd(4, write), moving]);
  return to.done();
}

/** It closes the account and opens it, each at some moment; killed, perhaps. False: it was, and there is more to do. */
async function moveOnce(to: Recording, mover: Mover, accountId: string, isKilled: boolean) {
  const { world, chance } = to;
  let left = isKilled ? chance.between(1, 30) : Number.POSITIVE_INFINITY;
  // Open at the target, and the source does not know it.
  const isLate = isKilled && chance.isTrue(0.3);
  const move: Move = {
    accountId,
    source: world.cell("source"),
    target: world.cell("target"),
    sourceName: "source",
    targetName: "target",
    findHindrance: findMoveHindrance,
    waitMaxMs: patience(60_000),
    onProgress: (part) => {
      if (isLate ? part === "finish" : left-- === 0) throw new Error("killed");
    },
  };
  let isOver = false;
  const act = mover.moveAccount(move).then(
    (): Answer => ({ is: "done" }),
    async (error: unknown) => {
      if (!isRefusal(error)) return null;
      // It found that not everything had been copied.
      if (error.message.includes("Run the same command again")) return null;
      // It is open in both cells, as only in a twin; whoever writes will see that.
      if (error.message.includes("already has an account")) {
        isOver = true;
        return null;
      }
      // Calling it off was killed, too, when the target knew of it and the source did not, or the other way round.
      if (!/with --cancel|was called off/.test(error.message)) throw error;
      await callOff(to, mover, accountId);
      return null;
    },
  );
  const both = ["close", "open"].map((what, n) => to.do(6 + n, { do: what }, () => act));
  return (await Promise.all(both)).every((answer) => answer !== null) || isOver;
}

/** The source is open again, unless the target is. */
async function callOff(to: Recording, { callOffMove }: Mover, accountId: string): Promise<void> {
  const cells = { source: to.world.cell("source"), target: to.world.cell("target") };
  await to.do(8, { do: "reopen" }, () =>
    callOffMove({ accountId, ...cells }).then(
      () => ({ is: "done" }),
      (error: unknown) => {
        if (!isRefusal(error)) return null;
        if (error.message.includes("already open")) return { is: "refused" };
        if (error.message.includes("no move in progress")) return undefined;
        throw error;
      },
    ),
  );
}

/** Of this tree, or of a copy of it. */
function isRefusal(error: unknown): error is MoveRefusedError {
  return error instanceof Error && error.name === "MoveRefusedError";
}
