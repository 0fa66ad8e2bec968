// Archives a release as test/upgrade/release-<version>.tar.gz. The upgrade test runs the last version before the
// working copy's beside it. The archive is committed because shallow clones and images have no history for
// `git archive`.
// `npm run keep-release -- <revision>`
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { archiveOf, keptVersions } from "../test/upgrade/release.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
/** What runs, and what `npm ci` needs if dependencies differ from the working copy's. */
const contents = ["src", "sql", "package.json", "package-lock.json"];

const revision = process.argv[2];
if (revision === undefined) {
  console.error("Which revision? npm run keep-release -- <revision>");
  process.exit(2);
}

const { version } = JSON.parse(git("show", `${revision}:package.json`).toString());
// Reproducible: sorted, dated by the commit and naming it (`git get-tar-commit-id`); a fixed umask.
const archive = gzipSync(
  git("-c", "tar.umask=0022", "archive", "--format=tar", revision, "--", ...contents),
  {
    level: 9,
  },
);
writeFileSync(archiveOf(version), archive);
// The one before it is upgraded from until the working copy has the next version; it has all earlier SQL files.
for (const old of keptVersions().slice(0, -2)) rmSync(archiveOf(old));
console.log(
  `${version}: ${archive.length} bytes, SHA-256 ${createHash("sha256").update(archive).digest("hex")}`,
);

function git(...args: readonly string[]): Buffer {
  return execFileSync("git", args, { cwd: root, maxBuffer: 256 * 1024 * 1024 });
}
