import { hash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { addPage, asJson, escapeHtml, type PageGuard, sendPage } from "../http/html-page.ts";
import type { AddRoutes } from "../http/kernel.ts";
import { Problem } from "../http/problems.ts";
import { beginRequest } from "../http/request-context.ts";

/** Where `npm run pack:all` puts them. An image is built with them. */
const FOLDER = new URL("../../dist/", import.meta.url);
const ARCHIVE = /^sealpost[\w.-]+\.(?:tgz|whl)$/;
const NONE = "None was packed with this installation. In a checkout, `npm run pack:all` does that.";

/** An archive that others install from here. */
type Packed = {
  readonly name: string;
  readonly bytes: number;
  /** As package-lock.json has it. */
  readonly integrity: string;
  readonly install: string;
};

/**
 * `/packages` lists the packages for receivers and pipelines, and `/packages/{name}` is the archive: they are installed
 * from the service that they are for, in its version. They are read as they are asked for, which is seldom.
 */
export function createPackageRoutes(publicUrl: string, folder = FOLDER): AddRoutes {
  return async (app, kernel) => {
    const admit: PageGuard = async (request, reply) => {
      beginRequest(request, "page");
      await kernel.admit(request, reply);
    };
    addPage(app, "/packages", admit, async (request, reply) => {
      const names = (await orNull(readdir(folder))) ?? [];
      const items = await Promise.all(
        names.filter((name) => ARCHIVE.test(name)).map((name) => describePackage(name, folder, publicUrl)),
      );
      const links = ['<a href="guide">Guide for receivers</a>', '<a href="reference/">Reference</a>'];
      const page = { title: "Packages", body: `<h1>Packages</h1>\n${listHtml(items)}`, links };
      return sendPage(request, reply, page, asJson(items.length === 0 ? { items, hint: NONE } : { items }));
    });
    addPage(app, "/packages/:name", admit, async (request, reply) => {
      const { name } = request.params as { name: string };
      const archive = ARCHIVE.test(name) ? await orNull(readFile(new URL(name, folder))) : null;
      if (archive === null) throw new Problem("not_found");
      reply.headers({ "cache-control": "public, max-age=300", "content-type": "application/octet-stream" });
      return reply.send(archive);
    });
  };
}

async function describePackage(name: string, folder: URL, publicUrl: string): Promise<Packed> {
  const archive = await readFile(new URL(name, folder));
  const url = `${publicUrl}/packages/${name}`;
  const isModule = name.includes("-go-");
  const install = name.endsWith(".whl") ? `pip install ${url}` : `npm install ${url}`;
  return {
    name,
    bytes: archive.length,
    integrity: `sha512-${hash("sha512", archive, "base64")}`,
    install: isModule ? `curl -fsS ${url} | tar -xz` : install,
  };
}

function listHtml(items: readonly Packed[]): string {
  if (items.length === 0) return `<p>${escapeHtml(NONE)}</p>`;
  const sections = items.map(
    ({ name, bytes, integrity, install }) =>
      `<h2><a href="packages/${escapeHtml(name)}">${escapeHtml(name)}</a></h2>
<pre tabindex="0"><code>${escapeHtml(install)}</code></pre>
<p>${bytes} bytes, <code>${escapeHtml(integrity)}</code></p>`,
  );
  return sections.join("\n");
}

/** Null: there is none. */
async function orNull<T>(reading: Promise<T>): Promise<T | null> {
  return await reading.catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return null;
    throw error;
  });
}
