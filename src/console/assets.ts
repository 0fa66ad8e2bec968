import { hash } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { FastifyInstance } from "fastify";
import { compressOnce } from "../http/bytes.ts";
import type { Kernel } from "../http/kernel.ts";
import { admitting } from "./guards.ts";

const FILES = {
  "console.css": "text/css; charset=utf-8",
  "console.mjs": "text/javascript; charset=utf-8",
  "enter.mjs": "text/javascript; charset=utf-8",
  "framed.mjs": "text/javascript; charset=utf-8",
  "idiomorph.mjs": "text/javascript; charset=utf-8",
} as const;

/** The address of each file, which changes with its bytes. */
export type Assets = { readonly [Name in keyof typeof FILES]: string };

/** Scripts and styles: read once, and kept by browsers for as long as their bytes are the same. */
export async function addAssets(pages: FastifyInstance, kernel: Kernel): Promise<Assets> {
  const addresses: Record<string, string> = {};
  for (const [name, type] of Object.entries(FILES)) {
    const bytes = await bytesOf(name);
    const choose = await compressOnce(bytes);
    const path = `/console/assets/${hash("sha256", bytes, "hex").slice(0, 12)}/${name}`;
    addresses[name] = path;
    pages.route({
      method: ["GET", "HEAD"],
      url: path,
      onRequest: admitting(kernel),
      handler: async (request, reply) => {
        const { headers, bytes } = choose(request.headers["accept-encoding"]);
        reply.headers({
          ...headers,
          "content-type": type,
          "cache-control": "public, max-age=31536000, immutable",
          "cross-origin-resource-policy": "same-origin",
        });
        return reply.send(bytes);
      },
    });
  }
  return addresses as Assets;
}

async function bytesOf(name: string): Promise<Buffer> {
  if (name !== "idiomorph.mjs") return await readFile(new URL(`./assets/${name}`, import.meta.url));
  // As it is published, small, and made a module: the one that is published has four times the bytes.
  const script = await readFile(new URL(import.meta.resolve("idiomorph/dist/idiomorph.min.js")));
  return Buffer.concat([script, Buffer.from("\nexport { Idiomorph };\n")]);
}
