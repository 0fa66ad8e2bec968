// Prints an SBOM (CycloneDX JSON) of the packages in the image: `npm run -s sbom`. It is npm's, of a lock file without
// all others: asked to omit development's, npm leaves out those as well that the service shares with it, such as zod.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const repository = join(import.meta.dirname, "..");

/** Its number follows from what is in it. @param at when what it describes was made */
export function createSbom(at: Date): object {
  const temporary = mkdtempSync(join(tmpdir(), "sealpost-sbom-"));
  // npm takes the folder's name for the project's.
  const folder = join(temporary, "sealpost");
  try {
    mkdirSync(folder);
    const lock = JSON.parse(readFileSync(join(repository, "package-lock.json"), "utf8"));
    const root = onlyProduction(lock.packages[""]);
    const installed = Object.entries<{ dev?: true; optional?: true; devOptional?: true }>(
      lock.packages,
    ).filter(([path, { dev, optional, devOptional }]) => path !== "" && !(dev || optional || devOptional));
    const manifest = onlyProduction(JSON.parse(readFileSync(join(repository, "package.json"), "utf8")));
    writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
    const packages = { "": root, ...Object.fromEntries(installed) };
    writeFileSync(join(folder, "package-lock.json"), JSON.stringify({ ...lock, packages }));
    const form = ["--package-lock-only", "--sbom-format=cyclonedx", "--sbom-type=application"];
    const made = JSON.parse(execFileSync("npm", ["sbom", ...form], { cwd: folder, encoding: "utf8" }));
    made.metadata.timestamp = at.toISOString();
    const { serialNumber: _, ...content } = made;
    const hex = createHash("sha256").update(JSON.stringify(content)).digest("hex");
    const number = [hex.slice(0, 8), hex.slice(8, 12), `8${hex.slice(12, 15)}`, `8${hex.slice(15, 18)}`];
    return { ...made, serialNumber: `urn:uuid:${[...number, hex.slice(18, 30)].join("-")}` };
  } finally {
    rmSync(temporary, { recursive: true });
  }
}

function onlyProduction({
  devDependencies: _,
  optionalDependencies: __,
  ...manifest
}: Record<string, unknown>) {
  return manifest;
}

if (import.meta.main) console.log(JSON.stringify(createSbom(new Date()), null, 2));
