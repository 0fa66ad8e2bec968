// Histories of writes: under one Idempotency-Key, of one analysis, of one draft.
import { randomUUID } from "node:crypto";
import type { Answer, History } from "./checker.ts";
import type { Told } from "./installation.ts";
import { type Recording, unexpected } from "./recording.ts";

/** For a while, so that not each history makes its own. */
export type Place = {
  readonly accountId: string;
  readonly key: string;
  readonly userKey: string;
  readonly spaceId: string;
};

export async function newPlace(to: Recording): Promise<Place> {
  const { world } = to;
  // Some have an endpoint, which is another way through the SQL.
  const account = await to.prepare(() => world.newAccount(to.chance.isTrue(0.3) ? "/any" : null));
  const userKey = await to.prepare(() => world.newUser(account.accountId));
  const asked = { key: userKey, body: { name: "Histories" } };
  const space = await to.prepare(() =>
    world.ask("POST", "/v1/spaces", { ...asked, idempotencyKey: randomUUID() }),
  );
  if (space.status !== 201) throw unexpected(space);
  return { ...account, userKey, spaceId: String(space.body.id) };
}

/** Different requests under one key, at once and again. */
export async function idempotency(to: Recording, { key }: Place): Promise<History> {
  const { world, chance, name } = to;
  const isBatched = chance.isTrue(0.5);
  const requests = ["a", "b", "c"].slice(0, chance.between(1, 3)).map((value) => {
    return isBatched
      ? { value, body: `{"analysis":{"id":"${name}-${value}","status":"succeeded"}}` }
      : { value, body: { url: world.receiverUrl(`/any/${name}/${value}`) } };
  });
  await to.crowd(6, async (client) => {
    for (let n = 0; n < 3; n++) {
      const { value, body } = chance.pick(requests);
      await to.do(client, { do: "ask", value }, async () => {
        const asking = { key, body, idempotencyKey: name };
        const told = isBatched
          ? await world.ask("POST", "/v1/analyses", asking)
          : await world.ask("PUT", "/v1/webhooks/endpoint", asking);
        if (told === null) return null;
        if (told.body.code === "idempotency_in_progress") return undefined;
        if (told.body.code === "idempotency_key_reused") return { is: "reused" };
        if (told.status >= 300) throw unexpected(told);
        return { is: "done", value: `${told.status} ${told.text}`, replayed: told.isReplayed };
      });
      await to.rest(5);
    }
  });
  return to.done();
}

/** Two texts for one id, published by HTTP and SQL, and read. */
export async function analysis(to: Recording, { key, accountId }: Place): Promise<History> {
  const { world, chance, name } = to;
  const textOf = (value: string) => `{"id":"${name}","status":"succeeded","text":"${value}"}`;
  const published = (told: Told | null): Answer | null => {
    if (told === null) return null;
    if (told.body.code === "analysis_conflict") return { is: "conflict" };
    if (told.status !== 202) throw unexpected(told);
    return { is: "done", value: String(told.body.delivery_id) };
  };
  await to.crowd(5, async (client) => {
    for (let n = 0; n < 5; n++) {
      const value = chance.pick(["a", "a", "b"]);
      const kind = chance.pick(["read", "read", "http", "sql"] as const);
      if (kind === "read")
        await to.do(client, { do: "read" }, async () => {
          const told = await world.ask("GET", `/v1/analyses/${name}`, { key });
          if (told === null) return null;
          if (told.status === 404) return { is: "done", value: "" };
          if (told.status !== 200) throw unexpected(told);
          return { is: "done", value: ["a", "b"].find((one) => textOf(one) === told.text) ?? told.text };
        });
      else
        await to.do(client, { do: "publish", value }, async () => {
          if (kind === "http")
            return published(
              await to.write("POST", "/v1/analyses", { key, body: `{"analysis":${textOf(value)}}` }),
            );
          const answer = await to.publishBySql(accountId, textOf(value));
          if (answer == null) return answer;
          if ("delivery" in answer) return { is: "done", value: answer.delivery };
          if (answer.refused === "SP005") return { is: "conflict" };
          throw new Error(`refused as ${answer.refused}`);
        });
      await to.rest(5);
    }
  });
  return to.done();
}

/** A draft that several save, publish and read, each going by what he saw last. */
export async function draft(to: Recording, { userKey, spaceId }: Place): Promise<History> {
  const { world, chance } = to;
  const created = await to.prepare(async () => {
    const told = await to.write("POST", "/v1/workflows", { key: userKey, body: { space_id: spaceId } });
    return told?.status === 201 ? told : null;
  });
  const path = `/v1/workflows/${created.body.id}`;
  await to.do(0, { do: "create" }, async () => seen(created));
  await to.crowd(6, async (client) => {
    let known = 1;
    for (let n = 0; n < 5; n++) {
      const at = chance.isTrue(0.9) ? known : chance.between(1, known);
      const kind = chance.pick(["get", "save", "save", "publish"] as const);
      const value = `${client} ${n}`;
      const asked =
        kind === "get" ? { do: kind } : kind === "save" ? { do: kind, at, value } : { do: kind, at };
      const answer = await to.do(client, asked, async () => {
        const told =
          kind === "get"
            ? await world.ask("GET", path, { key: userKey })
            : kind === "save"
              ? await to.write("PUT", `${path}/draft`, {
                  key: userKey,
                  body: { revision: at, definition: definitionOf(value) },
                })
              : await to.write("POST", `${path}/publish`, { key: userKey, body: { revision: at } });
        if (told === null) return null;
        if (told.body.code === "draft_revision_outdated") return { is: "outdated" };
        if (told.body.code === "draft_not_changed") return { is: "same" };
        if (told.status !== 200) throw unexpected(told);
        return seen(told);
      });
      known = answer?.at ?? known;
      if (answer?.is === "outdated") known = Math.max(known, at) + chance.below(2);
      await to.rest(5);
    }
  });
  return to.done();
}

function definitionOf(name: string) {
  return { nodes: [{ id: "trigger", kind: "manual_trigger", name, parameters: {} }], edges: [] };
}

type Definition = ReturnType<typeof definitionOf>;

/** The only node's name stands for the whole definition. */
function seen({ body }: Told): Answer {
  const textOf = (definition: unknown) => (definition as Definition).nodes[0]!.name;
  const version = body.current_version as {
    readonly version: number;
    readonly definition: Definition;
  } | null;
  return {
    is: "done",
    at: Number(body.draft_revision),
    value: textOf(body.draft),
    version: version?.version ?? 0,
    published: version === null ? "" : textOf(version.definition),
  };
}
