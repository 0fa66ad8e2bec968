// Whatever clients and movers do, in whatever order, and wherever movers die: every document has its own bytes.
import { fc, test } from "@fast-check/vitest";
import { afterAll, beforeAll, expect } from "vitest";
import type { ObjectStore } from "../../src/workspace/objects/object-store.ts";
import type { Json } from "../support/sealpost-api.ts";
import { patience } from "../support/time-limits.ts";
import {
  endKeeping,
  endLeases,
  keysInRows,
  keysInStore,
  moveOnce,
  removeAll,
  type StillApi,
  settle,
  startStillApi,
} from "./support/moving.ts";
import { passedOn } from "./support/object-stores.ts";

const SEQUENCES = 25;
const ACTIONS_MAX = 30;

let still: StillApi;
let { database, documents, objects } = {} as StillApi;
beforeAll(async () => {
  still = await startStillApi();
  ({ database, documents, objects } = still);
});
afterAll(() => still.close());

/** Where a mover stands still: for ever, if it was killed, or until much later. */
const places = fc.constantFrom("before a copy", "after a copy", "before a removal", "after a removal");
const which = fc.nat(7);
const action = fc.oneof(
  fc.record({ does: fc.constant("create" as const) }),
  fc.record({ does: fc.constant("upload" as const), which, isRight: fc.boolean() }),
  fc.record({ does: fc.constant("rename" as const), which, name: fc.nat(20) }),
  fc.record({ does: fc.constant("rename space" as const), name: fc.nat(2) }),
  fc.record({ does: fc.constant("move" as const) }),
  fc.record({ does: fc.constant("stand still" as const), place: places }),
  fc.record({ does: fc.constant("wake one" as const) }),
  fc.record({ does: fc.constant("sweep" as const), isLate: fc.boolean() }),
  fc.record({ does: fc.constant("download" as const), which }),
);
type Action = typeof action extends fc.Arbitrary<infer Value> ? Value : never;

class Run {
  readonly #space: Json;
  readonly #made: { readonly id: unknown; readonly bytes: Buffer; isUploaded: boolean }[] = [];
  readonly #still: { readonly wake: () => void; readonly ended: Promise<unknown> }[] = [];

  constructor(space: Json) {
    this.#space = space;
  }

  async do(step: Action): Promise<void> {
    switch (step.does) {
      case "create": {
        const n = this.#made.length;
        const bytes = Buffer.from(`document ${n} of ${this.#space.id}`);
        const name = { space_id: this.#space.id, file_name: `made ${n}`, file_size: bytes.length };
        this.#made.push({ id: (await documents.created(name)).id, bytes, isUploaded: false });
        return;
      }
      case "upload": {
        const one = this.#made[step.which];
        if (one === undefined) return;
        const headers = step.isRight
          ? {}
          : { "content-digest": `sha-256=:${Buffer.alloc(32).toString("base64")}:` };
        const { status } = await documents.put(one.id, one.bytes, { headers });
        expect(status).toBe(one.isUploaded ? 409 : step.isRight ? 200 : 400);
        if (step.isRight) one.isUploaded = true;
        return;
      }
      case "rename": {
        const one = this.#made[step.which];
        if (one === undefined) return;
        expect([200, 409]).toContain((await documents.rename(one.id, `renamed ${step.name}`)).status);
        return;
      }
      case "rename space":
        expect((await documents.renameSpace(this.#space.id, `space ${step.name}`)).status).toBe(200);
        return;
      case "move":
        await endLeases(database.pool);
        await moveOnce(database.pool, objects);
        return;
      case "stand still":
        return await this.#standStill(step.place);
      case "wake one": {
        const one = this.#still.shift();
        one?.wake();
        await one?.ended;
        return;
      }
      case "sweep":
        await endKeeping(database.pool, step.isLate);
        await removeAll(database.pool, objects);
        return;
      case "download": {
        const one = this.#made[step.which];
        if (one?.isUploaded) expect((await documents.download(one.id)).bytes).toEqual(one.bytes);
        return;
      }
      default:
        throw new Error(`Unknown action: ${JSON.stringify(step satisfies never)}`);
    }
  }

  /** Returns once it does, or has found nothing to do. */
  async #standStill(place: string): Promise<void> {
    const gate = Promise.withResolvers<void>();
    const arrived = Promise.withResolvers<void>();
    const wait = async (here: string) => {
      if (here !== place) return;
      arrived.resolve();
      await gate.promise;
    };
    const stopping: ObjectStore = {
      ...passedOn(objects),
      copy: async (...args) => {
        await wait("before a copy");
        await objects.copy(...args);
        await wait("after a copy");
      },
      remove: async (...args) => {
        await wait("before a removal");
        const wasThere = await objects.remove(...args);
        await wait("after a removal");
        return wasThere;
      },
    };
    const isMove = place.endsWith("copy");
    if (isMove) await endLeases(database.pool);
    else await endKeeping(database.pool, false);
    const ended = isMove ? moveOnce(database.pool, stopping) : removeAll(database.pool, stopping);
    this.#still.push({ wake: gate.resolve, ended });
    await Promise.race([arrived.promise, ended]);
  }

  async check(): Promise<void> {
    // Half of those that stand still were killed; the others wake after everybody else.
    const late = this.#still.filter((_, index) => index % 2 === 0);
    for (const { wake } of late) wake();
    await Promise.all(late.map(({ ended }) => ended));
    await settle(database.pool, objects);
    for (const { id, bytes, isUploaded } of this.#made) {
      const { status, bytes: got } = await documents.download(id);
      expect(status).toBe(isUploaded ? 200 : 409);
      if (isUploaded) expect(got).toEqual(bytes);
    }
    expect(await keysInStore(objects)).toEqual(await keysInRows(database.pool));
    const { rows } = await database.pool.query(
      `select d.storage_key from workspace.documents d join workspace.spaces s on s.id = d.space_id
       where d.storage_key not like s.storage_prefix || d.id || '-%/' || d.file_name`,
    );
    expect(rows).toEqual([]);
  }
}

test.prop([fc.array(action, { minLength: 10, maxLength: ACTIONS_MAX })], { numRuns: SEQUENCES })(
  "every document that was uploaded has its own bytes, and the store nothing else",
  async (actions) => {
    const run = new Run(await documents.newSpace("space"));
    for (const step of actions) await run.do(step);
    await run.check();
  },
  patience(60_000),
);
