import { spawn } from "node:child_process";
import { chmod, lstat, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { FolderInUseError } from "../../../src/base/embedded/account.ts";
import { type EmbeddedPostgresOptions, startEmbeddedPostgres } from "../../../src/base/embedded/embedded.ts";
import { connect, createEmbeddedServers, readRow, writeRow } from "../../support/embedded-servers.ts";
import type { OwnerOptions } from "../../support/owner.ts";
import { makeThrowAwayFolder } from "../../support/throw-away-folder.ts";

const isRoot = process.getuid?.() === 0;
const isLinux = process.platform === "linux";

describe("startEmbeddedPostgres", () => {
  let folder: string;
  /** One cluster serves most of the tests, as making one takes a second. */
  let dataDir: string;
  const servers = createEmbeddedServers();
  const start = (more: Partial<EmbeddedPostgresOptions> = {}) => servers.start({ dataDir, ...more });
  const own = (more: Partial<OwnerOptions> = {}) => servers.own({ dataDir, ...more });
  const serverPid = async () =>
    Number.parseInt(await readFile(join(dataDir, "data/postmaster.pid"), "utf8"), 10);

  beforeAll(async () => {
    folder = await makeThrowAwayFolder();
    await chmod(folder, 0o755);
    dataDir = join(folder, "db");
  });

  afterEach(servers.stopAll);

  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  test("makes a UTF-8 database with checksums, for this machine and account alone", async () => {
    const { value } = await connect(await start());
    expect(await value("show server_encoding")).toBe("UTF8");
    expect(await value("select datcollate from pg_database where datname = 'postgres'")).toBe("C");
    expect(await value("show data_checksums")).toBe("on");
    expect(await value("show listen_addresses")).toBe("");
    expect(await value("select 'z' < 'é'")).toBe(true);
    for (const name of ["", "run", "data"]) {
      const { mode, uid } = await lstat(join(dataDir, name));
      expect(mode & 0o777).toBe(0o700);
      expect(uid === 0).toBe(false);
    }
  });

  test.runIf(isLinux)("gives the server none of our environment", async () => {
    await start();
    const environment = await readFile(`/proc/${await serverPid()}/environ`, "utf8");
    const names = environment.split("\0").map((entry) => entry.split("=")[0]);
    // PWD and its like are the shell's own, PG_… the server's.
    expect(names.filter((name) => name && !/^(PATH|LC_.*|TZ|PWD|OLDPWD|SHLVL|_|PG.*)$/.test(name))).toEqual(
      [],
    );
  });

  test("keeps its data from one start to the next", async () => {
    const first = await start();
    await writeRow(await connect(first));
    await first.stop();
    await first.ended;
    expect(await readRow(await start())).toBe(7);
  });

  test("logs errors without the values they are about", async () => {
    const lines: string[] = [];
    const { promise: logged, resolve: seen } = Promise.withResolvers<void>();
    const log = (line: string) => {
      lines.push(line);
      if (line.includes("duplicate key")) seen();
    };
    const server = await start({ log });
    const { value } = await connect(server);
    await value("create temporary table secrets (s text primary key)");
    await value("insert into secrets values ('whisper'), ('whisper')").catch(() => undefined);
    await logged;
    await server.stop();
    expect(lines.join("\n")).not.toContain("whisper");
  });

  test("refuses a folder that a running process has, and leaves that one alone", async () => {
    const owner = await own();
    const error = await startEmbeddedPostgres({ dataDir }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(FolderInUseError);
    expect((error as Error).message).toBe(
      `The database in ${dataDir} is in use by another running process (process ${owner.pid}). ` +
        "Stop it, or choose another folder.",
    );
    expect(await (await connect(owner)).value("select 1")).toBe(1);
  });

  test("lets at most one of several starts at the same moment win", async () => {
    const outcomes = await Promise.allSettled([own(), own(), own(), own()]);
    const refused = outcomes.filter((outcome) => outcome.status === "rejected");
    expect(refused.length).toBeGreaterThanOrEqual(3);
    for (const outcome of refused) expect(String(outcome.reason)).toMatch(/FolderInUseError/);
    if (refused.length === 4) await own();
  });

  test("ends the server when its owner is killed, and loses nothing", async () => {
    const owner = await own({ settings: {} });
    const client = await connect(owner);
    await writeRow(client);
    await owner.kill();
    await client.lost;
    expect(await readRow(await start())).toBe(7);
  });

  test.runIf(isLinux)("stops a server that was left over, and starts its own on the same data", async () => {
    const owner = await own({ settings: {} });
    const orphan = await connect(owner);
    await writeRow(orphan);
    const orphanPid = await serverPid();
    await owner.killWithKeeper();
    expect(await orphan.value("select 1"), "the orphan must still run").toBe(1);

    const lines: string[] = [];
    const next = await start({ log: (line) => lines.push(line) });
    await orphan.lost;
    expect(lines[0]).toContain(`stopping a PostgreSQL server (process ${orphanPid})`);
    expect(await readRow(next)).toBe(7);
  });

  test.runIf(isLinux)("starts again at once after the server alone was killed", async () => {
    const first = await start();
    const client = await connect(first);
    await writeRow(client);
    process.kill(await serverPid(), "SIGKILL");
    await Promise.all([client.lost, first.ended]);
    await first.stop();
    expect(await readRow(await start())).toBe(7);
  });

  test.runIf(isLinux)("waits for the last session of a server that was killed", async () => {
    const first = await start();
    const client = await connect(first);
    await writeRow(client);
    const session = Number(await client.value("select pg_backend_pid()"));
    process.kill(session, "SIGSTOP");
    process.kill(await serverPid(), "SIGKILL");
    await first.ended;
    await first.stop();
    // The stopped session still holds the server's shared memory, and PostgreSQL says so before it gives up.
    const log = (line: string) => {
      if (line.includes("shared memory block")) process.kill(session, "SIGKILL");
    };
    expect(await readRow(await start({ log }))).toBe(7);
  });

  test("is not fooled by a process id that was given out again", async () => {
    await (await start()).stop();
    // Another's of the same user: PostgreSQL takes no notice of a process that it may not signal.
    const { uid } = await lstat(join(dataDir, "data"));
    const other = spawn("sleep", ["600"], { uid, stdio: "ignore" });
    onTestFinished(() => void other.kill());
    const left = `${other.pid}\n${dataDir}\n0\n5432\n\n\n`;
    for (const name of ["data/postmaster.pid", "run/.s.PGSQL.5432.lock"]) {
      await writeFile(join(dataDir, name), left);
    }
    expect(await (await connect(await start())).value("select 1")).toBe(1);
  });

  test("says what PostgreSQL said when it does not start, and lets go of the folder", async () => {
    const failure = start({ settings: { fsync: "off", shared_buffers: "no number" } });
    await expect(failure).rejects.toThrow(/invalid value for parameter "shared_buffers"/);
    await start();
  });

  test("finishes what a start cut short during initdb left behind", async () => {
    const cutShort = join(folder, "cut-short");
    await mkdir(join(cutShort, "data.new", "base"), { recursive: true });
    await writeFile(join(cutShort, "data.new", "PG_VERSION"), "18\n");
    expect(await (await connect(await start({ dataDir: cutShort }))).value("select 1")).toBe(1);
  });

  test("takes a folder whose path is too long for a socket", async () => {
    const long = join(folder, "long".repeat(20));
    await mkdir(long);
    await rename(dataDir, join(long, "db"));
    onTestFinished(() => rename(join(long, "db"), dataDir));
    await worksAway(join(long, "db"));
  });

  test.runIf(isRoot && isLinux)("takes a folder that the lent account may not reach", async () => {
    const home = join(folder, "home");
    await mkdir(home, { mode: 0o700 });
    await worksAway(join(home, "db"));
  });

  /** With its sockets outside of its folder, a server keeps its data and its owner all the same. */
  async function worksAway(away: string): Promise<void> {
    const first = await start({ dataDir: away });
    const sockets = new URL(first.databaseUrl).searchParams.get("host") ?? "";
    expect(sockets).toMatch(/^\/tmp\/sealpost-[0-9a-f]{16}$/);
    await writeRow(await connect(first));
    await expect(startEmbeddedPostgres({ dataDir: away })).rejects.toThrow(FolderInUseError);
    await first.stop();
    expect(await readRow(await start({ dataDir: away }))).toBe(7);
    await servers.stopAll();
    await expect(lstat(sockets), "its folder goes with it").rejects.toThrow("ENOENT");
  }
});
