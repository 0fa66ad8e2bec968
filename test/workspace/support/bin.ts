// What is deleted and restored, and steps of deleting for good.
import type { Pool } from "pg";
import { BIN_KINDS, type BinKind } from "../../../src/workspace/model/bin.ts";
import { deleteGone } from "../../../src/workspace/store/bin.ts";
import type { Asked, AskOptions, Json } from "../../support/sealpost-api.ts";
import { documentsOf } from "./documents.ts";

type Ask = (method: string, path: string, options?: AskOptions) => Promise<Asked>;

export const KINDS = BIN_KINDS;
const FIRST = "00000000-0000-0000-0000-000000000000";

/** A thing of a kind, and the path that deletes it. */
export type Thing = {
  readonly kind: BinKind;
  readonly id: string;
  readonly path: string;
  readonly name: string;
};

export function binOf(ask: Ask) {
  const documents = documentsOf(ask);
  const made = async (path: string, body: object): Promise<Json> => {
    const answer = await ask("POST", path, { body });
    if (answer.status !== 201) throw new Error(`${path}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const newFolder = async (space_id: unknown, name: string, parent_id?: unknown) =>
    String((await made(`/v1/spaces/${space_id}/folders`, { name, parent_id })).id);
  const thingAt = (kind: BinKind, path: string, { id, ...named }: Json): Thing => {
    return {
      kind,
      id: String(id),
      path: `${path}/${id}`,
      name: String(named.name ?? named.file_name ?? named.title),
    };
  };
  /** In the space; of the kind space, it is. */
  const newThing = async (kind: BinKind, space_id: unknown, name: string): Promise<Thing> => {
    switch (kind) {
      case "space":
        return thingAt(kind, "/v1/spaces", (await ask("GET", `/v1/spaces/${space_id}`)).body);
      case "folder": {
        const path = `/v1/spaces/${space_id}/folders`;
        return thingAt(kind, path, await made(path, { name }));
      }
      case "document":
        return thingAt(kind, "/v1/documents", await documents.uploaded({ space_id, file_name: name }));
      case "page":
        return thingAt(
          kind,
          "/v1/pages",
          await made("/v1/pages", { space_id, title: name, markdown: "Text." }),
        );
      case "workflow":
        return thingAt(kind, "/v1/workflows", await made("/v1/workflows", { space_id }));
      default:
        throw new Error(kind satisfies never);
    }
  };
  const remove = ({ path }: Pick<Thing, "path">, options: AskOptions = {}) => ask("DELETE", path, options);
  const removeForGood = ({ path }: Pick<Thing, "path">, options: AskOptions = {}) =>
    ask("DELETE", `${path}?permanently=true`, options);
  const restore = ({ path }: Pick<Thing, "path">, options: AskOptions = {}) =>
    ask("POST", `${path}/restore`, options);
  const listed = async (space_id: unknown) => {
    const { status, body } = await ask("GET", `/v1/spaces/${space_id}/bin`);
    return status === 200 ? (body.items as Json[]) : status;
  };
  return { newFolder, newThing, remove, removeForGood, restore, listed };
}

/** As if the bin's time were over. */
export async function endBin(pool: Pool): Promise<void> {
  await pool.query("update workspace.bin set gone_at = now(), next_at = now() where gone_at > now()");
}

/** As if the steps of killed processes were over; takes steps until nothing is left to do now. Returns how many. */
export async function deleteAllGone(pool: Pool): Promise<number> {
  // Several do this at once: they wait for no rows of each other, and for none of a step that is taken.
  await pool.query(`update workspace.bin set next_at = now()
    where id = any (array(select id from workspace.bin where gone_at <= now() for update skip locked))`);
  let steps = 0;
  while ((await deleteGone(pool, FIRST)) !== null) steps++;
  return steps;
}
