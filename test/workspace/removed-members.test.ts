// What a member has under way while being removed from a space: it comes first and is told of, or it does not happen.
import type { PoolClient } from "pg";
import { describe, expect, test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { workspaceTests } from "./area-tests.ts";
import { documents, newUser, setRole, type User } from "./membership-world.ts";
import { api, database, useRuns } from "./run-world.ts";

useRuns();

/** A transaction that is open until `work` commits it. */
async function inOpenTransaction(work: (client: PoolClient) => Promise<unknown>): Promise<void> {
  const client = await database.pool.connect();
  try {
    await client.query("begin");
    await work(client);
  } finally {
    client.release(true);
  }
}

/** Until somebody waits for a lock, or `done` has come to its end. */
async function waitsOrEnds(done: Promise<unknown>): Promise<void> {
  let hasEnded = false;
  done.finally(() => {
    hasEnded = true;
  });
  const waiting = async () => {
    const { rowCount } = await database.pool.query(
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    );
    return hasEnded || rowCount! > 0;
  };
  await expect.poll(waiting, { timeout: patience(5_000), interval: 10 }).toBe(true);
}

describe("while a removal is being committed", () => {
  test("no write of the member happens, nor is it an error of ours", async () => {
    const member = await newUser();
    const made: Record<string, string> = { user: (await newUser()).userId };
    const answered: Record<string, number> = {};
    for (const [operation, request] of Object.entries(workspaceTests.writes)) {
      // A document that has its content would refuse another before anybody is looked at.
      if (operation !== "documents.upload") {
        const first = await request(api.ask, made);
        expect([operation, first.status < 300]).toEqual([operation, true]);
        made[operation] = String(first.body?.id);
      }
      if (operation === "spaces.create") continue;
      const space = made["spaces.create"]!;
      await setRole(space, member, "ADMIN");
      await inOpenTransaction(async (client) => {
        await client.query("select from workspace.spaces where id = $1 for no key update", [space]);
        await client.query("delete from workspace.space_members where space_id = $1 and user_id = $2", [
          space,
          member.userId,
        ]);
        const writing = request((...[method, path, options]) => {
          return api.ask(method, path, { ...options, key: member.key });
        }, made).then(({ status }) => {
          answered[operation] = status;
        });
        await waitsOrEnds(writing);
        await client.query("commit");
        await writing;
      });
    }
    expect(answered).toEqual(Object.fromEntries(Object.keys(answered).map((one) => [one, 404])));
    expect(Object.keys(answered).length).toBeGreaterThan(15);
  });
});

test("a link that is made just before its maker is removed is told of", async () => {
  const space = String((await documents.newSpace()).id);
  const member = await newUser();
  await setRole(space, member, "EDITOR");
  const made = { "spaces.create": space } as Record<string, string>;
  for (const operation of ["pages.create", "pages.publish"]) {
    made[operation] = String((await workspaceTests.writes[operation]!(api.ask, made)).body.id);
  }
  let removed: Awaited<ReturnType<typeof setRole>> | undefined;
  await inOpenTransaction(async (client) => {
    // In the way of the link's row.
    await client.query("select from workspace.pages where id = $1 for update", [made["pages.create"]]);
    const linking = linkOf(member, made["pages.create"]!);
    await waitsOrEnds(linking);
    const removing = setRole(space, member, null).then((answer) => {
      removed = answer;
    });
    await Promise.race([removing, new Promise((resolve) => setTimeout(resolve, 200))]);
    await client.query("commit");
    await removing;
    const link = await linking;
    expect(link.status).toBe(201);
    expect(removed!.body).toMatchObject({ open_links: [{ id: link.body.id }], open_links_total: 1 });
  });
});

const linkOf = ({ key }: User, page: string) =>
  api.ask("POST", `/v1/pages/${page}/links`, { key, body: { label: "Late" } });
