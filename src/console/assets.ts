import { hash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { FastifyInstance } from "fastify";
import { compressOnce } from "../http/bytes.ts";
import type { Kernel } from "../http/kernel.ts";
import { admitting } from "./guards.ts";

const FILES = ["console.css", "console.mjs", "enter.mjs", "framed.mjs", "idiomorph.mjs"] as const;

/** The address of each file, which changes with its bytes. */
export type Assets = Readonly<Record<(typeof FILES)[number], string>>;

/** Scripts and styles: read once, and kept by browsers for as long as their bytes are the same. */
export async function addAssets(pages: FastifyInstance, kernel: Kernel): Promise<Assets> {
  const add = async (path: string, bytes: Buffer, seconds: string, site: "same-origin" | "cross-origin") => {
    const choose = await compressOnce(bytes);
    const asset = {
      "content-type": `text/${path.endsWith(".css") ? "css" : "javascript"}; charset=utf-8`,
      "cache-control": `public, max-age=${seconds}`,
      "cross-origin-resource-policy": site,
    };
    pages.route({
      method: ["GET", "HEAD"],
      url: path,
      onRequest: admitting(kernel),
      handler: async (request, reply) => {
        const { headers, bytes } = choose(request.headers["accept-encoding"]);
        return reply.headers({ ...headers, ...asset }).send(bytes);
      },
    });
  };
  // The script of pages that show the console in a frame: at one address for good, for every origin.
  await add("/console/embed.js", await bytesOf("embed.mjs"), "3600", "cross-origin");
  const addresses: Partial<Record<keyof Assets, string>> = {};
  for (const name of FILES) {
    const bytes = await bytesOf(name);
    const path = `/console/assets/${hash("sha256", bytes, "hex").slice(0, 12)}/${name}`;
    await add(path, bytes, "31536000, immutable", "same-origin");
    addresses[name] = path;
  }
  return addresses as Assets;
}

async function bytesOf(name: string): Promise<Buffer> {
  if (name !== "idiomorph.mjs") return await readFile(new URL(`./assets/${name}`, import.meta.url));
  // As it is published, small, and made a module: the one that is published has four times the bytes.
  const script = await readFile(new URL(import.meta.resolve("idiomorph/dist/idiomorph.min.js")));
  return Buffer.concat([script, Buffer.from("\nexport { Idiomorph };\n")]);
}
