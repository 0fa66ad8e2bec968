import { execFileSync } from "node:child_process";
import { hash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { installedGoProgram, wheelMakingPython } from "../support/programs.ts";
import { patience } from "../support/time-limits.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

const folder = mkdtempSync(join(tmpdir(), "sealpost-release-"));
const [one, other] = [join(folder, "one"), join(folder, "other")] as const;

/** The files of a release, made where others have another clock's zone, other rights and another folder. */
function release(into: string, umask: string, env: Readonly<Record<string, string>>): Map<string, Buffer> {
  const script = [process.execPath, join(ROOT, "scripts/release.ts"), "--no-image", into];
  execFileSync("sh", ["-c", `umask ${umask}; exec "$@"`, "sh", ...script], {
    cwd: folder,
    env: { ...process.env, PATH: [dirname(wheelMakingPython()), process.env.PATH].join(delimiter), ...env },
    stdio: "pipe",
  });
  return new Map(readdirSync(into).map((name) => [name, readFileSync(join(into, name))]));
}

let files: Map<string, Buffer>;
beforeAll(() => {
  files = release(one, "022", {});
}, patience(60_000));
afterAll(() => rmSync(folder, { recursive: true }));

test("the same commit makes the same bytes", { timeout: patience(60_000) }, () => {
  expect(release(other, "077", { TZ: "Pacific/Auckland", LC_ALL: "C" })).toEqual(files);
});

test("it has the packages, the chart, an SBOM, what it was made from, and a sum of each", () => {
  const names = [
    `sealpost-${version}.cdx.json`,
    `sealpost-${version}.provenance.json`,
    `sealpost-${version}.tgz`,
    `sealpost-publish-${version}.tgz`,
    `sealpost-receiver-${version}.tgz`,
    `sealpost-receiver-go-${version}.tgz`,
    `sealpost_receiver-${version}-py3-none-any.whl`,
  ];
  expect([...files.keys()].sort()).toEqual([...names, "SHA256SUMS"].sort());
  const digests = new Map(names.map((name) => [name, hash("sha256", files.get(name)!, "hex")]));
  const sums = files.get("SHA256SUMS")!.toString().trimEnd().split("\n");
  expect(sums.sort()).toEqual([...digests].map(([name, digest]) => `${digest}  ${name}`).sort());

  const { subject, predicate } = JSON.parse(files.get(`sealpost-${version}.provenance.json`)!.toString());
  for (const { name, digest } of subject) expect(digest.sha256, name).toBe(digests.get(name));
  expect(subject).toHaveLength(names.length - 1);
  const commit = execFileSync("git", ["rev-parse", "HEAD"], { cwd: ROOT, encoding: "utf8" }).trim();
  expect(predicate.buildDefinition.resolvedDependencies[0].digest.gitCommit).toMatch(
    new RegExp(`^${commit}(?:-dirty)?$`),
  );
});

test("the SBOM has what the image installs, and nothing else", () => {
  const { components, serialNumber, bomFormat } = JSON.parse(
    files.get(`sealpost-${version}.cdx.json`)!.toString(),
  );
  expect(bomFormat).toBe("CycloneDX");
  expect(serialNumber).toMatch(/^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
  const found = components.map(({ purl }: { purl: string }) => decodeURIComponent(purl)).sort();
  const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  const installed = Object.entries<Record<string, unknown>>(packages)
    .filter(([path, { dev, optional, devOptional }]) => path !== "" && !(dev || optional || devOptional))
    .map(([path, each]) => `pkg:npm/${path.split("node_modules/").at(-1)}@${each.version}`);
  expect(found).toEqual([...new Set(installed)].sort());
  for (const name of ["zod", "pg", "fastify"]) expect(found.join("\n")).toContain(`pkg:npm/${name}@`);
  for (const name of ["vitest", "typescript", "node"])
    expect(found.join("\n")).not.toContain(`pkg:npm/${name}@`);
});

test("its chart renders what that of the checkout renders", () => {
  const values = {
    existingSecret: "of-a-test",
    monitoring: { enabled: true, runbookUrl: "https://example.com/r" },
  };
  const render = (chart: string) =>
    execFileSync(
      installedGoProgram("helm"),
      ["template", "live", chart, "--values=-", "--kube-version=1.30"],
      {
        input: JSON.stringify(values),
        encoding: "utf8",
        stdio: "pipe",
      },
    );
  expect(render(join(one, `sealpost-${version}.tgz`))).toBe(render(join(ROOT, "deploy/helm")));
});
