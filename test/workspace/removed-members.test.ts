// What a member has under way while being removed from a space: it comes first and is told of, or it does not happen.
import type { PoolClient } from "pg";
import { describe, expect, test } from "vitest";
import { patience } from "../support/time-limits.ts";
import { workspaceTests } from "./area-tests.ts";
import { documents, newUser, runIn, setRole, type User } from "./membership-world.ts";
import { api, database, useRuns } from "./run-world.ts";

useRuns();

/** A transaction that is open until `work` commits it. */
async function inOpenTransaction<T>(work: (client: PoolClient) => Promise<T>): Promise<T> {
  const client = await database.pool.connect();
  try {
    await client.query("begin");
    return await work(client);
  } finally {
    client.release(true);
  }
}

/** Until so many wait for a lock, or `done` has come to its end. */
async function waitsOrEnds(done: Promise<unknown>, waiters = 1): Promise<void> {
  let hasEnded = false;
  done.finally(() => {
    hasEnded = true;
  });
  const waiting = async () => {
    const { rowCount } = await database.pool.query(
      "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
    );
    return hasEnded || rowCount! >= waiters;
  };
  await expect.poll(waiting, { timeout: patience(5_000), interval: 10 }).toBe(true);
}

describe("while a removal is being committed", () => {
  test("no write of the member happens, nor is it an error of ours", async () => {
    const member = await newUser();
    const made: Record<string, string> = { user: (await newUser()).userId };
    const answered: Record<string, number> = {};
    for (const [operation, request] of Object.entries(workspaceTests.writes)) {
      // A document that has its content would refuse another before anybody is looked at; what is deleted, all.
      if (operation !== "documents.upload" && !/^\w+\.(?:delete|restore)$/.test(operation)) {
        const first = await request(api.ask, made);
        expect([operation, first.status < 300]).toEqual([operation, true]);
        made[operation] = String(first.body?.id);
      }
      if (operation === "spaces.create") continue;
      const space = made["spaces.create"]!;
      await setRole(space, member, "ADMIN");
      const deleting = workspaceTests.writes[operation.replace("restore", "delete")];
      const isRestored = operation.endsWith(".restore") && deleting !== undefined;
      if (isRestored) await deleting(api.ask, made);
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
      if (isRestored) expect((await request(api.ask, made)).status).toBe(200);
    }
    expect(answered).toEqual(Object.fromEntries(Object.keys(answered).map((one) => [one, 404])));
    expect(Object.keys(answered).length).toBeGreaterThan(15);
  });
});

/** A space with a published page, and a member who may make links to it. */
async function withPage() {
  const space = String((await documents.newSpace()).id);
  const member = await newUser();
  await setRole(space, member, "EDITOR");
  const made: Record<string, string> = { "spaces.create": space };
  for (const operation of ["pages.create", "pages.publish"]) {
    made[operation] = String((await workspaceTests.writes[operation]!(api.ask, made)).body.id);
  }
  return { space, member, page: made["pages.create"]! };
}

test("a link that is made just before its maker is removed is told of", async () => {
  const { space, member, page } = await withPage();
  let removed: Awaited<ReturnType<typeof setRole>> | undefined;
  await inOpenTransaction(async (client) => {
    // In the way of the link's row.
    await client.query("select from workspace.pages where id = $1 for update", [page]);
    const linking = linkOf(member, page);
    await waitsOrEnds(linking);
    const removing = setRole(space, member, null).then((answer) => {
      removed = answer;
    });
    await waitsOrEnds(removing, 2);
    await client.query("commit");
    await removing;
    const link = await linking;
    expect(link.status).toBe(201);
    expect(removed!.body).toMatchObject({ open_links: [{ id: link.body.id }], open_links_total: 1 });
  });
});

describe("what a member replays while being removed", () => {
  /** Its space, and a delivery of it that can be replayed. */
  async function ofMember() {
    const space = String((await documents.newSpace()).id);
    const member = await newUser();
    await setRole(space, member, "EDITOR");
    return { space, member, ...(await runIn(space, "secret.txt")) };
  }

  /** Begins the removal while `replaying` waits for what `lock` takes; resolves when both are done. */
  async function whileRemoved(
    { space, member }: Awaited<ReturnType<typeof ofMember>>,
    lock: readonly [text: string, id: string],
    path: string,
    body: object = {},
  ) {
    let removed = false;
    return await inOpenTransaction(async (client) => {
      await client.query(lock[0], [lock[1]]);
      const replaying = api.ask("POST", path, { key: member.key, body });
      await waitsOrEnds(replaying);
      const removing = setRole(space, member, null).then(() => {
        removed = true;
      });
      await waitsOrEnds(removing, 2);
      expect(removed, "before the replay").toBe(false);
      await client.query("commit");
      await removing;
      return await replaying;
    });
  }

  test("a bulk replay is made, and stops with the removal", async () => {
    const world = await ofMember();
    const account = "select from sealpost.accounts where id = $1 for no key update";
    const lock = [account, api.account.accountId] as const;
    const made = await whileRemoved(world, lock, "/v1/webhooks/replays", { filter: {} });
    expect([made.status, Number(made.body.matched) > 0]).toEqual([202, true]);
    const { body } = await api.ask("GET", `/v1/webhooks/replays/${made.body.id}`);
    expect(body).toMatchObject({ status: "cancelled", replayed: 0 });
  });

  test("a replay comes before the removal", async () => {
    const world = await ofMember();
    const { deliveryId } = world;
    const delivery = "select from sealpost.deliveries where id = $1 for update";
    const path = `/v1/webhooks/deliveries/${deliveryId}/replay`;
    expect((await whileRemoved(world, [delivery, deliveryId], path)).status).toBe(202);
    expect((await api.ask("POST", path, { key: world.member.key })).status).toBe(404);
  });
});

test("whoever has made thousands of links can be removed all the same", async () => {
  const { space, member, page } = await withPage();
  await database.pool.query(
    `insert into workspace.page_links (account_id, page_id, token_digest, label, created_by)
     select $1, $2, sha256(n::text::bytea), 'many', $3 from generate_series(1, 12000) as n`,
    [api.account.accountId, page, member.userId],
  );
  const { body } = await setRole(space, member, null);
  expect([(body.open_links as unknown[]).length, body.open_links_total]).toEqual([100, 10_001]);
});

const linkOf = ({ key }: User, page: string) =>
  api.ask("POST", `/v1/pages/${page}/links`, { key, body: { label: "Late" } });
