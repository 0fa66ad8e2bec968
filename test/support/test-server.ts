import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { startEmbeddedPostgres } from "../../src/base/embedded/embedded.ts";
import { makeThrowAwayFolder } from "./throw-away-folder.ts";

/** A PostgreSQL server for tests, benchmarks and fault runs. */
type TestServer = {
  /** What it is, for people. */
  readonly kind: string;
  /** The URL of a database on this server; `postgres` always exists. */
  url(databaseName: string): string;
  stop(): Promise<void>;
};

type TestServerOptions = {
  /** The `native` folder of another PostgreSQL version; only for the embedded server. */
  readonly nativeFolder?: string;
  readonly settings?: Readonly<Record<string, string>>;
};

const CONTAINER_IMAGE = "postgres:18-alpine";
const ENGINE_ANSWER_MS = 500;

/** These databases may be lost in a crash. With `fsync` off, creating one takes a fifth of the time. */
const THROW_AWAY_SETTINGS = {
  fsync: "off",
  full_page_writes: "off",
  max_connections: "300",
};

/** The server at TEST_DATABASE_URL, else a container if an engine has the image, else an embedded one. */
export async function startTestServer(options: TestServerOptions = {}): Promise<TestServer> {
  const settings = { ...THROW_AWAY_SETTINGS, ...options.settings };
  const nativeFolder = options.nativeFolder ?? process.env.TEST_POSTGRES_NATIVE_FOLDER;
  if (nativeFolder !== undefined) return await startEmbedded({ settings, nativeFolder });
  const given = process.env.TEST_DATABASE_URL;
  if (given) {
    return {
      kind: "of TEST_DATABASE_URL",
      url: (name) => withDatabase(given, name),
      stop: async () => undefined,
    };
  }
  if (await hasContainerImage()) return await startContainer(settings);
  return await startEmbedded({ settings });
}

async function startEmbedded(options: TestServerOptions): Promise<TestServer> {
  // A benchmark that asks for fsync wants a disk, too.
  const mayBeLost = options.settings?.fsync === "off";
  const dataDir = mayBeLost ? await makeThrowAwayFolder() : await mkdtemp("/tmp/sealpost-test-");
  const removeData = () => rm(dataDir, { recursive: true, force: true });
  try {
    const server = await startEmbeddedPostgres({ dataDir, ...options });
    return {
      kind: "embedded",
      url: (name) => withDatabase(server.databaseUrl, name),
      stop: async () => {
        await server.stop();
        await removeData();
      },
    };
  } catch (error) {
    await removeData();
    throw error;
  }
}

async function startContainer(settings: Readonly<Record<string, string>>): Promise<TestServer> {
  // We stop the container ourselves; testcontainers' own sweeper would be another image to fetch.
  process.env.TESTCONTAINERS_RYUK_DISABLED ??= "true";
  const { PostgreSqlContainer } = await import("@testcontainers/postgresql");
  const options = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const container = await new PostgreSqlContainer(CONTAINER_IMAGE)
    .withCommand(["postgres", ...options])
    .start();
  return {
    kind: `in a container of ${CONTAINER_IMAGE}`,
    url: (name) => withDatabase(container.getConnectionUri(), name),
    stop: async () => {
      await container.stop();
    },
  };
}

/** Checks for the image too: an engine that must pull it first is slower than the embedded server, or offline. */
function hasContainerImage(): Promise<boolean> {
  return new Promise((resolve) => {
    const call = request(
      {
        socketPath: "/var/run/docker.sock",
        path: `/images/${CONTAINER_IMAGE}/json`,
        timeout: ENGINE_ANSWER_MS,
      },
      (response) => {
        response.resume();
        resolve(response.statusCode === 200);
      },
    );
    call.on("timeout", () => call.destroy());
    call.on("error", () => resolve(false));
    call.end();
  });
}

function withDatabase(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}
