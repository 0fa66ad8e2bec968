// The image that .ci/image has built. What follows from its Dockerfile alone is in test/docs/image.long.test.ts.
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createSbom } from "../../scripts/sbom.ts";
import { until } from "../faults/harness/scenario.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { SECRETS_KEY } from "../support/installation.ts";
import { SealpostProcess } from "../support/sealpost-process.ts";
import { patience } from "../support/time-limits.ts";
import { PODMAN, RUN } from "./containers.ts";

const { SEALPOST_IMAGE: image = "", SEALPOST_BASE_IMAGE: base = "" } = process.env;
const MB = 1_000_000;

function podman(...args: readonly string[]): string {
  return execFileSync("podman", args, { encoding: "utf8" }).trim();
}

const sizeOf = (name: string) => Number(podman("image", "inspect", "--format={{.Size}}", name));
/** What a program of ours prints that runs in it. */
const printed = (program: string) => podman(...RUN, "--entrypoint=node", image, "--eval", program);

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(async () => {
  await database.drop();
});

test("it takes at most 250 MB more than Node's own", () => {
  const [whole, own] = [sizeOf(image), sizeOf(image) - sizeOf(base)];
  console.log(`image: ${Math.round(whole / MB)} MB, ${Math.round(own / MB)} MB of it ours`);
  expect(own).toBeLessThan(250 * MB);
});

test("it runs as a user with a number, who can write nothing in it", () => {
  expect(podman("image", "inspect", "--format={{.User}}", image)).toBe("1000:1000");
  const tried = `try { fs.writeFileSync("/app/src/x", ""); } catch ({ code }) { console.log(process.getuid(), code); }`;
  expect(printed(tried)).toBe("1000 EROFS");
  const own = `console.log(fs.globSync("/app/**", { withFileTypes: true }).length > 1_000,
    fs.globSync("/app/{src,sql,node_modules,dist}/**").filter((path) => fs.statSync(path).uid !== 0))`;
  expect(printed(own)).toBe("true []");
});

test("the SBOM has what is installed in it", () => {
  const packages = `JSON.parse(fs.readFileSync("/app/node_modules/.package-lock.json")).packages`;
  const names = `path.split("node_modules/").at(-1) + "@" + version`;
  const installed = printed(
    `for (const [path, { version }] of Object.entries(${packages})) console.log(${names})`,
  );
  const { components } = createSbom(new Date(0)) as { components: { "bom-ref": string }[] };
  const listed = new Set(components.map((one) => one["bom-ref"]));
  expect(listed).toEqual(new Set(installed.split("\n")));
});

test("it is ready within three seconds, says so, and hands out its packages", async () => {
  const env = { DATABASE_URL: database.url, SECRETS_KEY: SECRETS_KEY.toString("base64"), PORT: "0" };
  const main = fileURLToPath(new URL("in-container.ts", import.meta.url));
  const serve = new SealpostProcess(["serve"], { ...env, SEALPOST_IMAGE: image }, { main });
  try {
    await serve.ready;
    await until(async () => (await fetch(`${serve.metricsUrl}/readyz`)).ok);
    const readyAt = Date.now();
    const [id = ""] = podman("ps", "--quiet", "--filter=label=sealpost-test").split("\n");
    const startedAt = JSON.parse(podman("inspect", "--format={{json .State.StartedAt}}", id));
    const readyMs = readyAt - Date.parse(startedAt);
    console.log(`image: ready after ${readyMs} ms`);
    expect(readyMs).toBeLessThan(patience(3_000));

    const port = new URL(serve.metricsUrl).port;
    const [, ...check] = JSON.parse(podman("image", "inspect", "--format={{json .HealthCheck.Test}}", image));
    const health = (own: string) => podman(...PODMAN, "exec", `--env=METRICS_PORT=${own}`, id, ...check);
    health(port);
    expect(() => health("1")).toThrow();
    const { items } = (await (await fetch(`${serve.url}/packages`)).json()) as { items: { name: string }[] };
    expect(items).toHaveLength(4);
  } finally {
    expect(await serve.stop()).toBe(0);
  }
});
