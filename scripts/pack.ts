// Packs what others install as packages of their own, without the service's web framework and database: the receiver
// library and the pipeline's library. `npm run pack:receiver`, `npm run pack:publish`; the optional argument is the
// output folder. What a package holds is what its entries import.
import { execFileSync } from "node:child_process";
import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const repository = new URL("../", import.meta.url);
const compiler = fileURLToPath(new URL("node_modules/typescript/bin/tsc", repository));
const { version, license, dependencies } = JSON.parse(read("package.json"));

type Package = {
  /** The folder of `src/` whose README it has and whose paths are its own. */
  readonly folder: string;
  /** Its import paths, each with the file in `src/` that is there. */
  readonly entries: Readonly<Record<string, string>>;
  readonly manifest: Readonly<Record<string, unknown>>;
};

const PACKAGES: Readonly<Record<string, Package>> = {
  receiver: {
    folder: "signing",
    entries: { ".": "signing/index", "./web": "signing/web" },
    manifest: {
      name: "sealpost-receiver",
      description: "Verifies Sealpost webhooks: raw bytes and a header in, a typed event out.",
      engines: { node: ">=18" },
    },
  },
  publish: {
    folder: "publish",
    entries: { ".": "publish/publish-analyses" },
    manifest: {
      name: "sealpost-publish",
      description: "Publishes completed analyses to Sealpost in your own PostgreSQL transaction.",
      engines: { node: ">=20" },
      // The same major as the service's: the driver is the pipeline's own.
      peerDependencies: { pg: `^${/\d+/.exec(dependencies.pg)?.[0]}.0.0` },
    },
  },
};

const [name = "", folder = fileURLToPath(new URL("dist/", repository))] = process.argv.slice(2);
const wanted = PACKAGES[name];
if (wanted === undefined)
  throw new Error(`There is no package "${name}": ${Object.keys(PACKAGES).join(", ")}.`);
const outputFolder = resolve(folder);
mkdirSync(outputFolder, { recursive: true });
console.log(join(outputFolder, build(wanted)));

/** Returns the archive's file name. */
function build(one: Package): string {
  const packageFolder = mkdtempSync(join(tmpdir(), "sealpost-pack-"));
  try {
    emit(one, packageFolder, "esm");
    emit(one, packageFolder, "cjs");
    writeJson(join(packageFolder, "cjs", "package.json"), { type: "commonjs" });
    writeJson(join(packageFolder, "package.json"), manifestOf(one));
    writeFileSync(join(packageFolder, "README.md"), readmeOf(one));
    return pack(packageFolder);
  } finally {
    rmSync(packageFolder, { recursive: true });
  }
}

/** Twice, because a CommonJS program on Node 20.18 or earlier cannot load ECMAScript modules. */
function emit({ entries }: Package, packageFolder: string, format: "esm" | "cjs"): void {
  const output = join(packageFolder, format);
  const project = join(packageFolder, "tsconfig.json");
  const paths = Object.values(entries).map((entry) => fileURLToPath(new URL(`src/${entry}.ts`, repository)));
  writeJson(project, {
    extends: fileURLToPath(new URL("pack.tsconfig.json", import.meta.url)),
    compilerOptions: {
      outDir: output,
      module: format === "esm" ? "esnext" : "commonjs",
      typeRoots: [fileURLToPath(new URL("node_modules/@types", repository))],
    },
    files: paths,
  });
  execFileSync(process.execPath, [compiler, "--project", project], { stdio: "inherit" });
  rmSync(project);
  // The compiler rewrites .ts extensions in the JavaScript but not in the declarations, where TypeScript before 5.7
  // rejects them.
  for (const file of globSync(join(output, "**/*.d.ts"))) {
    writeFileSync(file, readFileSync(file, "utf8").replaceAll(/(from "\.[^"]+)\.ts"/g, '$1.js"'));
  }
}

function manifestOf({ entries, manifest }: Package): object {
  const filesOf = (entry: string, format: string) => ({
    types: `./${format}/${entry}.d.ts`,
    default: `./${format}/${entry}.js`,
  });
  const exported = Object.entries(entries).map(([path, entry]) => {
    return [path, { require: filesOf(entry, "cjs"), default: filesOf(entry, "esm") }] as const;
  });
  const [, { require: main }] = exported[0]!;
  return {
    ...manifest,
    version,
    license,
    type: "module",
    sideEffects: false,
    main: main.default,
    types: main.types,
    exports: Object.fromEntries(exported),
  };
}

/** Without the comments that say which file of this repository a block shows. */
function readmeOf({ folder }: Package): string {
  return read(`src/${folder}/README.md`).replaceAll(/^<!-- .* -->\n/gm, "");
}

function pack(packageFolder: string): string {
  const report = execFileSync("npm", ["pack", packageFolder, "--pack-destination", outputFolder, "--json"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return JSON.parse(report)[0].filename;
}

function read(path: string): string {
  return readFileSync(new URL(path, repository), "utf8");
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
