// PostgreSQL over TLS: who reads along is told of, and what is wrong with a certificate says what to do.
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createCommandPool, endedByScope, isReadableOnTheWay } from "../../src/app/database.ts";
import { createReadinessCheck } from "../../src/app/monitoring.ts";
import { createGeneralPool, shareOf } from "../../src/base/database/pools.ts";
import { isDatabaseAway, tlsFaultOf } from "../../src/base/database/transaction.ts";
import {
  createCertificateAuthority,
  type IssuedCertificate,
  sharedAuthority,
} from "../support/certificates.ts";
import { runSealpost } from "../support/command.ts";
import { SECRETS_KEY } from "../support/installation.ts";
import { openDatabase } from "../support/open.ts";
import { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";

const database = await openDatabase();
const folder = mkdtempSync(join(tmpdir(), "sealpost-tls-"));
const fronts: Server[] = [];
const clients = new Set<Socket>();
const caFile = join(folder, "ca.pem");
beforeAll(async () => writeFileSync(caFile, (await sharedAuthority()).caPem));
afterAll(() => {
  for (const front of fronts) front.close();
  rmSync(folder, { recursive: true });
});

/** The test's database, as a server that shows this certificate; null: that has no TLS. */
async function startFront(certificate: IssuedCertificate | null): Promise<number> {
  const { hostname, port, searchParams } = new URL(database.url);
  const folder = searchParams.get("host");
  const front = createServer((client) => {
    clients.add(client.on("error", () => undefined));
    client.once("data", () => {
      // What a client asks for TLS with.
      client.write(certificate === null ? "N" : "S");
      if (certificate === null) return;
      const { certPem: cert, keyPem: key } = certificate;
      const shown = new TLSSocket(client, { isServer: true, cert, key });
      const behind =
        folder === null ? connect(Number(port), hostname) : connect(`${folder}/.s.PGSQL.${port}`);
      shown.pipe(behind).pipe(shown);
      shown.on("error", () => behind.destroy());
      behind.on("error", () => shown.destroy());
    });
  });
  fronts.push(front.listen(0, "127.0.0.1"));
  await once(front, "listening");
  return (front.address() as AddressInfo).port;
}

async function urlOf(
  certificate: IssuedCertificate | null,
  more = `&sslrootcert=${caFile}`,
): Promise<string> {
  const url = new URL(database.url);
  url.searchParams.delete("host");
  const port = await startFront(certificate);
  return `postgres://${url.username}:${url.password}@localhost:${port}${url.pathname}?sslmode=verify-full${more}`;
}

const list = (url: string) => runSealpost(["account", "list"], { env: { DATABASE_URL: url } });
const ours = async (names: readonly string[], more = {}) =>
  (await sharedAuthority()).issue({ names, ...more });

describe("sslmode=verify-full", () => {
  test("reaches a server whose certificate is for the host, and signed by the authority in sslrootcert", async () => {
    const { code, stderr } = await list(await urlOf(await ours(["localhost"])));
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  });

  test.each([
    [
      "another authority's",
      async () => (await createCertificateAuthority()).issue({ names: ["localhost"] }),
      "sslrootcert",
    ],
    [
      "a self-signed one",
      async () => (await sharedAuthority()).selfSigned({ names: ["localhost"] }),
      "sslrootcert",
    ],
    ["one for another host", () => ours(["db.example.com"]), "the host in DATABASE_URL"],
    ["an expired one", () => ours(["localhost"], { notAfter: new Date(Date.now() - 1_000) }), "renew it"],
  ])("says in one line what to do about %s", async (_, issue, what) => {
    const url = await urlOf(await issue());
    const { code, stderr } = await list(url);
    expect([code, stderr]).toEqual([
      2,
      expect.stringMatching(/^The certificate of the database's server [^\n]+\.\n$/),
    ]);
    expect(stderr).toContain(what);
    // A process that runs is not ready, says the same, and tries again.
    await using pool = createCommandPool(url, "test", { cell: null });
    const check = await createReadinessCheck(pool, { areas: [] }, SECRETS_KEY);
    expect((await check()).join()).toBe(stderr.trim());
    expect(isDatabaseAway(await pool.connect().catch((error) => error))).toBe(true);
  });

  test("says so where the server has no TLS", async () => {
    const { code, stderr } = await list(await urlOf(null));
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining("offers no TLS, which DATABASE_URL asks for"),
    ]);
  });

  test("tells a folder from a file", async () => {
    const { code, stderr } = await list(await urlOf(null, `&sslrootcert=${folder}`));
    const told = `DATABASE_URL has sslrootcert=${folder}, which cannot be read (EISDIR): `;
    expect([code, stderr]).toEqual([2, expect.stringContaining(told)]);
  });

  test.each(["sslrootcert", "sslcert", "sslkey"])("names the file of %s that is not there", async (name) => {
    const path = join(folder, "missing.pem");
    for (const command of [["account", "list"], ["serve"], ["dispatch"], ["start"]]) {
      const DATABASE_URL = `postgres://a:hunter2@localhost/b?sslmode=verify-full&${name}=${path}`;
      const { code, stderr } = await runSealpost(command, { env: { DATABASE_URL } });
      expect([code, stderr]).toEqual([
        2,
        `DATABASE_URL has ${name}=${path}, which cannot be read (ENOENT): mount the file, or correct the path.\n`,
      ]);
    }
  });
});

test("says which file has no certificate, no key, or another one's key", async () => {
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const [one, other] = [await ours(["one"]), await ours(["other"])];
  const cut = file("cut.pem", one.certPem.slice(0, 300));
  const [cert, key] = [file("cert.pem", one.certPem), file("key.pem", other.keyPem)];
  for (const [given, told] of [
    [
      `sslrootcert=${cut}`,
      `sslrootcert=${cut}, which has no certificate in PEM, or several that do not begin on lines of their own.`,
    ],
    [`sslkey=${cut}&sslcert=${cert}`, `sslkey=${cut}, which has no key in PEM without a passphrase.`],
    [`sslkey=${key}&sslcert=${cert}`, `sslkey=${key}, which is not the key of sslcert=${cert}.`],
  ]) {
    const { code, stderr } = await list(`postgres://a:hunter2@localhost/b?sslmode=verify-full&${given}`);
    expect([code, stderr]).toEqual([2, `DATABASE_URL has ${told}\n`]);
  }
});

test.each([
  ["ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_EXPIRED", "sslcert in DATABASE_URL must be valid"],
  ["ERR_SSL_TLSV1_ALERT_UNKNOWN_CA", "known there"],
  ["ERR_OSSL_BAD_DECRYPT", "A file for TLS that DATABASE_URL names cannot be used"],
])("says what to do about %s, and waits for it", (code, told) => {
  const error = Object.assign(new Error("error:0A000415:SSL routines"), { code });
  expect(tlsFaultOf(error)).toContain(told);
  expect(isDatabaseAway(error)).toBe(true);
});

test("waits for the certificate of a key that was renewed before it", async () => {
  const [front, one, other] = [await ours(["localhost"]), await ours(["one"]), await ours(["one"])];
  const [cert, key] = [join(folder, "client.pem"), join(folder, "client.key")];
  writeFileSync(cert, one.certPem);
  writeFileSync(key, one.keyPem);
  const url = await urlOf(front, `&sslrootcert=${caFile}&sslcert=${cert}&sslkey=${key}`);
  await using pool = createCommandPool(url, "test", { cell: null });
  writeFileSync(key, other.keyPem);
  const check = await createReadinessCheck(pool, { areas: [] }, SECRETS_KEY);
  expect((await check()).join()).toContain("sslkey must be the key of sslcert");
  expect(isDatabaseAway(await pool.connect().catch((error) => error))).toBe(true);
  writeFileSync(cert, other.certPem);
  expect(await check()).toEqual([]);
});

test("is told of for a standby, too", async () => {
  const other = await (await createCertificateAuthority()).issue({ names: ["localhost"] });
  const serve = new SealpostProcess(["serve"], {
    DATABASE_URL: database.url,
    READ_DATABASE_URL: await urlOf(other),
    SECRETS_KEY: SECRETS_KEY.toString("base64"),
    PORT: "0",
  });
  const { problem } = await serve.waitForLine(({ msg }) => /standby cannot be used/.test(String(msg)));
  expect(problem).toContain("in READ_DATABASE_URL, with sslrootcert=FILE");
  await serve.stop();
});

describe("a file that cannot be read for a while", () => {
  const file = join(folder, "renewed.pem");
  const give = async () => {
    rmSync(file, { recursive: true, force: true });
    writeFileSync(file, (await sharedAuthority()).caPem);
  };
  const cutAll = () => {
    for (const client of clients) client.destroy();
  };

  test.each(["serve", "dispatch"])(
    "is told of in /readyz of %s, which goes on with the file",
    async (name) => {
      await give();
      const DATABASE_URL = await urlOf(await ours(["localhost"]), `&sslrootcert=${file}`);
      const keys = {
        DATABASE_URL,
        SECRETS_KEY: SECRETS_KEY.toString("base64"),
        PORT: "0",
        STATE_DIR: folder,
      };
      const running = new SealpostProcess([name], keys);
      await running.ready;
      const readyz = async () => (await fetch(new URL("/readyz", running.metricsUrl))).text();
      const normal = await readyz();

      for (const [lose, code] of [
        [() => undefined, "ENOENT"],
        [() => mkdirSync(file), "EISDIR"],
      ] as const) {
        rmSync(file);
        lose();
        cutAll();
        const told = `DATABASE_URL names a file for TLS that cannot be read (${code}: `;
        await expect.poll(readyz, { timeout: patience(20_000) }).toContain(told);
        await give();
        await expect.poll(readyz, { timeout: patience(20_000) }).toBe(normal);
      }
      expect(await running.stop()).toBe(0);
    },
    patience(60_000),
  );

  test("leaves a share of a pool, and who waits for a connection, as they were", async () => {
    await give();
    const databaseUrl = await urlOf(await ours(["localhost"]), `&sslrootcert=${file}`);
    const options = { databaseUrl, connectionsMax: 1, applicationName: "test", onError: () => undefined };
    await using pool = endedByScope(createGeneralPool(options));
    const share = shareOf(pool, 1);
    const ask = async () => (await share.query("select 1 as one")).rows;
    const held = await pool.connect();
    const waiting = pool.query("select 1 as one");
    rmSync(file);
    held.release(true);
    await expect(waiting).rejects.toThrow("a file for TLS that cannot be read (ENOENT");
    await expect(ask()).rejects.toThrow("a file for TLS that cannot be read (ENOENT");
    await give();
    expect(await ask()).toEqual([{ one: 1 }]);
  });
});

describe("a database without TLS", () => {
  test.each([
    ["postgres://a@db.internal/b", true],
    ["postgres://a@10.0.0.2/b?sslmode=disable", true],
    ["postgres://a@db.internal/b?sslmode=no-verify", true],
    ["postgres://a@db.internal/b?uselibpqcompat=true&sslmode=require", true],
    ["postgres://a@localhost/b?host=db.internal", true],
    ["postgres://a@127.evil.example/b", true],
    ["postgres://a@127.0.0.1.evil.example/b", true],
    ["postgres://a@db.internal/b?sslmode=verify-full", false],
    ["postgres://a@db.internal/b?ssl=true", false],
    ["postgres://a@localhost/b", false],
    ["postgres://a@127.0.0.1/b", false],
    ["postgres://a@[::1]/b", false],
    ["postgres://a@localhost/b?host=%2Frun%2Fpostgresql", false],
  ])("%s can be read on the way: %s", (url, isReadable) => {
    expect(isReadableOnTheWay(url)).toBe(isReadable);
  });

  test.each(["serve", "dispatch"])(
    "is warned of when %s starts in production, and not in development",
    async (name) => {
      // Of this machine, by a name that does not say so.
      const url = "postgres://a:hunter2@0.0.0.0:1/b";
      for (const ENVIRONMENT of ["production", "development"]) {
        const keys = { ENVIRONMENT, SECRETS_KEY: SECRETS_KEY.toString("base64"), PORT: "0" };
        const running = new SealpostProcess([name], { ...keys, DATABASE_URL: url });
        await running.waitForLine(({ metrics_url }) => metrics_url !== undefined);
        const warnings = running.lines.filter(({ level }) => level === "warn").map(({ msg }) => msg);
        const warning = "DATABASE_URL leads to another host without TLS: set sslmode=verify-full";
        expect(warnings.includes(warning)).toBe(ENVIRONMENT === "production");
        await running.stop();
      }
    },
    patience(30_000),
  );
});
