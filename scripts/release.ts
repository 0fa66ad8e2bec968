// Makes what a release consists of, in dist/release: the packages and the chart (scripts/pack.ts), an SBOM of the
// packages in the image, the image where Docker or podman is at hand, what all of it was made from, and checksums. The
// same commit makes the same bytes, the image's aside, whose base is what NODE_IMAGE, or the Dockerfile, names.
// `npm run release`; `-- --no-image` leaves it out, and an argument is the output folder.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { createSbom } from "./sbom.ts";

const repository = join(import.meta.dirname, "..");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "no-image": { type: "boolean" } },
});
const folder = resolve(positionals[0] ?? join(repository, "dist", "release"));
const { version } = JSON.parse(readFileSync(join(repository, "package.json"), "utf8"));
const commit = run("git", ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
const secondsOfCommit = run("git", ["log", "-1", "--format=%ct"]);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
for (const what of ["all", "chart"]) {
  run(process.execPath, [join(repository, "scripts", "pack.ts"), what, folder]);
}
write(`sealpost-${version}.cdx.json`, createSbom(new Date(Number(secondsOfCommit) * 1_000)));
if (!values["no-image"]) saveImage();
write(`sealpost-${version}.provenance.json`, provenance());
const sums = readdirSync(folder).map((name) => `${digestOf(join(folder, name))}  ${name}\n`);
writeFileSync(join(folder, "SHA256SUMS"), sums.join(""));
console.log(`${sums.join("")}\n${version} of ${commit}, in ${folder}`);

/** As SLSA has it, unsigned: who publishes signs. */
function provenance(): object {
  const subject = readdirSync(folder).map((name) => ({
    name,
    digest: { sha256: digestOf(join(folder, name)) },
  }));
  const lockFile = {
    uri: "package-lock.json",
    digest: { sha256: digestOf(join(repository, "package-lock.json")) },
  };
  const source = { uri: "git", digest: { gitCommit: commit } };
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject,
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: "urn:sealpost:release:1",
        externalParameters: {
          command: "npm run release",
          version,
          nodeImage: process.env.NODE_IMAGE ?? null,
        },
        resolvedDependencies: [source, lockFile],
      },
      runDetails: { builder: { id: "urn:sealpost:scripts/release.ts" } },
    },
  };
}

function saveImage(): void {
  const engine = ["docker", "podman"].find((name) => {
    try {
      return run(name, ["info"]) !== "";
    } catch {
      return false;
    }
  });
  if (engine === undefined) {
    console.log("No image: neither Docker nor podman answers.");
    return;
  }
  const { NODE_IMAGE: base, IMAGE_BUILD_FLAGS: flags = "" } = process.env;
  const tag = `sealpost:${version}`;
  const labels = Object.entries({ version, revision: commit }).map(
    ([name, value]) => `--label=org.opencontainers.image.${name}=${value}`,
  );
  const more = [
    ...(base === undefined ? [] : [`--build-arg=NODE_IMAGE=${base}`]),
    ...(engine === "podman" ? ["--format=docker", `--timestamp=${secondsOfCommit}`] : []),
    ...flags.split(" ").filter(Boolean),
  ];
  run(engine, ["build", "--quiet", `--tag=${tag}`, ...labels, ...more, repository]);
  run(engine, ["save", `--output=${join(folder, `sealpost-${version}-image.tar`)}`, tag]);
}

function run(program: string, args: readonly string[]): string {
  return execFileSync(program, args, {
    cwd: repository,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 64 * 1024 * 1024,
  }).trim();
}

function write(name: string, value: object): void {
  writeFileSync(join(folder, name), `${JSON.stringify(value, null, 2)}\n`);
}

function digestOf(path: string): string {
  return createHash("sha256").update(readFileSync(path)).digest("hex");
}
