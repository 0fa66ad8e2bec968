// Packs what others install as packages of their own, without the service's web framework and database: the receiver
// library in each language, and the pipeline's library. `npm run pack:receiver`, `npm run pack:publish`, and
// `npm run pack:all` for what the service hands out at /packages; `chart` is Helm's. The optional argument is the
// output folder. The same sources make the same bytes. What a package for npm holds is what its entries import.
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const repository = new URL("../", import.meta.url);
const pathOf = (path: string) => fileURLToPath(new URL(path, repository));
const compiler = pathOf("node_modules/typescript/bin/tsc");
const { version, license, dependencies } = JSON.parse(read("package.json"));

type Package = {
  /** The folder of `src/` whose README it has and whose paths are its own. */
  readonly folder: string;
  /** Its import paths, each with the file in `src/` that is there. */
  readonly entries: Readonly<Record<string, string>>;
  /** Whether it is for browsers and edge runtimes, too, which have no node:crypto. */
  readonly isPortable: boolean;
  readonly manifest: Readonly<Record<string, unknown>>;
};

const RECEIVER: Package = {
  folder: "signing",
  entries: { ".": "signing/index", "./web": "signing/web" },
  isPortable: true,
  manifest: {
    name: "sealpost-receiver",
    description: "Verifies Sealpost webhooks: raw bytes and a header in, a typed event out.",
    engines: { node: ">=18" },
  },
};

const PUBLISH: Package = {
  folder: "publish",
  entries: { ".": "publish/publish-analyses" },
  isPortable: false,
  manifest: {
    name: "sealpost-publish",
    description: "Publishes completed analyses to Sealpost in your own PostgreSQL transaction.",
    engines: { node: ">=20" },
    // The same major as the service's: the driver is the pipeline's own.
    peerDependencies: { pg: `^${/\d+/.exec(dependencies.pg)?.[0]}.0.0` },
  },
};

/** Each puts an archive into the output folder, and returns its name. */
const PACKERS: Readonly<Record<string, (workFolder: string) => string | Promise<string>>> = {
  receiver: (workFolder) => packForNpm(RECEIVER, workFolder),
  publish: (workFolder) => packForNpm(PUBLISH, workFolder),
  python: packWheel,
  go: (workFolder) => packFolder("packages/go", "sealpost-receiver", `-go-${version}`, workFolder),
  chart: (workFolder) => packFolder("deploy/helm", "sealpost", `-${version}`, workFolder),
};
/** What the service hands out. */
const ALL = ["receiver", "publish", "python", "go"];

type Format = "esm" | "cjs";

/** The name by which the package's own files import what is node:crypto on Node. */
const CRYPTO = "#crypto";
/** What those runtimes ask for that have none. */
const WITHOUT_NODE = ["workerd", "edge-light", "browser"];

const [wanted = "", folder = pathOf("dist/")] = process.argv.slice(2);
const names = wanted === "all" ? ALL : [wanted];
const outputFolder = resolve(folder);
// Archives have it in them.
process.umask(0o022);
mkdirSync(outputFolder, { recursive: true });
for (const name of names) {
  const pack = PACKERS[name];
  if (pack === undefined)
    throw new Error(`There is no package "${name}": ${Object.keys(PACKERS).join(", ")}, all.`);
  const workFolder = mkdtempSync(join(tmpdir(), "sealpost-pack-"));
  try {
    console.log(join(outputFolder, await pack(workFolder)));
  } finally {
    rmSync(workFolder, { recursive: true });
  }
}

async function packForNpm(one: Package, packageFolder: string): Promise<string> {
  emit(one, packageFolder, "esm");
  emit(one, packageFolder, "cjs");
  if (one.isPortable) await writeCrypto(packageFolder);
  // What is imported by a name is looked for in the nearest of them.
  writeJson(join(packageFolder, "cjs", "package.json"), { type: "commonjs", ...importsOf(one, ".") });
  writeJson(join(packageFolder, "package.json"), manifestOf(one));
  for (const path of Object.keys(one.entries)) writeFolder(one, packageFolder, path);
  writeFileSync(join(packageFolder, "README.md"), readmeOf(one));
  // None is granted yet.
  if (existsSync(pathOf("LICENSE"))) cpSync(pathOf("LICENSE"), join(packageFolder, "LICENSE"));
  const args = ["pack", packageFolder, "--pack-destination", outputFolder, "--json"];
  const report = execFileSync("npm", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  return JSON.parse(report)[0].filename;
}

/** Twice, because a CommonJS program on Node 20.18 or earlier cannot load ECMAScript modules. */
function emit({ entries, isPortable }: Package, packageFolder: string, format: Format): void {
  const output = join(packageFolder, format);
  const project = join(packageFolder, "tsconfig.json");
  const paths = Object.values(entries).map((entry) => pathOf(`src/${entry}.ts`));
  writeJson(project, {
    extends: fileURLToPath(new URL("pack.tsconfig.json", import.meta.url)),
    compilerOptions: {
      outDir: output,
      module: format === "esm" ? "esnext" : "commonjs",
      typeRoots: [pathOf("node_modules/@types")],
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
  for (const file of isPortable ? globSync(join(output, "**/*.js")) : []) {
    writeFileSync(file, readFileSync(file, "utf8").replaceAll('"node:crypto"', JSON.stringify(CRYPTO)));
  }
}

/** What is imported as CRYPTO: Node's own functions, and those that stand in for them with all that they need. */
async function writeCrypto(packageFolder: string): Promise<void> {
  // Imported here: the other packages are made without it.
  const { rolldown } = await import("rolldown");
  const portable = pathOf("scripts/portable-crypto.ts");
  const bundle = await rolldown({ input: portable, platform: "neutral" });
  for (const format of ["esm", "cjs"] as const)
    await bundle.write({ file: join(packageFolder, format, "portable-crypto.js"), format, minify: true });
  await bundle.close();
  cpSync(pathOf("node_modules/@noble/hashes/LICENSE"), join(packageFolder, "LICENSE-noble-hashes"));
  const names = Object.keys(await import(portable)).join(", ");
  const write = (format: Format, text: string) =>
    writeFileSync(join(packageFolder, format, "node-crypto.js"), `${text};\n`);
  write("esm", `export { ${names} } from "node:crypto"`);
  write("cjs", 'module.exports = require("node:crypto")');
}

/** For resolvers that know nothing of `exports` (TypeScript's node10), which look for a folder of the path's name. */
function writeFolder({ entries }: Package, packageFolder: string, path: string): void {
  if (path === ".") return;
  mkdirSync(join(packageFolder, path));
  const entry = `../cjs/${entries[path]}`;
  writeJson(join(packageFolder, path, "package.json"), { main: `${entry}.js`, types: `${entry}.d.ts` });
}

/** The same functions under every condition: what returns a value on Node returns no promise elsewhere. */
function importsOf({ isPortable }: Package, base: string): object {
  if (!isPortable) return {};
  const portable = WITHOUT_NODE.map((condition) => [condition, `${base}/portable-crypto.js`] as const);
  return { imports: { [CRYPTO]: { ...Object.fromEntries(portable), default: `${base}/node-crypto.js` } } };
}

function manifestOf(one: Package): object {
  const { entries, manifest } = one;
  const filesOf = (entry: string, format: Format) => ({
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
    ...importsOf(one, "./esm"),
  };
}

/** Without the comments that say which file of this repository a block shows. */
function readmeOf({ folder }: Package): string {
  return read(`src/${folder}/README.md`).replaceAll(/^<!-- .* -->\n/gm, "");
}

/** Of a copy, beside which setuptools writes. Needs Python's pip and setuptools, and no network. */
function packWheel(workFolder: string): string {
  const copy = join(workFolder, "package");
  cpSync(pathOf("packages/python"), copy, { recursive: true });
  const how = ["--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", outputFolder];
  // The first moment that a wheel can name.
  const env = { ...process.env, SOURCE_DATE_EPOCH: "315532800", PIP_DISABLE_PIP_VERSION_CHECK: "1" };
  execFileSync("python3", ["-m", "pip", "wheel", ...how, copy], {
    env,
    stdio: ["ignore", "ignore", "inherit"],
  });
  return `sealpost_receiver-${version}-py3-none-any.whl`;
}

/** Links in it become what they lead to. Needs GNU tar. */
function packFolder(folder: string, name: string, suffix: string, workFolder: string): string {
  cpSync(pathOf(folder), join(workFolder, name), { recursive: true, dereference: true });
  const same = [
    "--sort=name",
    "--mtime=@0",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--mode=u=rwX,go=rX",
  ];
  const archive = execFileSync("tar", [...same, "-C", workFolder, "-cf", "-", name]);
  const file = `${name}${suffix}.tgz`;
  writeFileSync(join(outputFolder, file), gzipSync(archive));
  return file;
}

function read(path: string): string {
  return readFileSync(pathOf(path), "utf8");
}

function writeJson(path: string, value: unknown): void {
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
