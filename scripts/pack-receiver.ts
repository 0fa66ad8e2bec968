// Packs the receiver library as its own package, without the service's web framework and database driver.
// `npm run pack:receiver`; the optional argument is the output folder.
import { execFileSync } from "node:child_process";
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const repository = new URL("../", import.meta.url);
const outputFolder = resolve(process.argv[2] ?? fileURLToPath(new URL("dist/", repository)));
const packageFolder = join(outputFolder, "receiver");

rmSync(packageFolder, { recursive: true, force: true });
mkdirSync(packageFolder, { recursive: true });
emitJavaScript();
writeFileSync(join(packageFolder, "package.json"), `${JSON.stringify(manifest(), null, 2)}\n`);
writeFileSync(join(packageFolder, "README.md"), readme());
console.log(join(outputFolder, pack()));

function emitJavaScript(): void {
  const compiler = fileURLToPath(new URL("node_modules/typescript/bin/tsc", repository));
  const project = fileURLToPath(new URL("pack-receiver.tsconfig.json", import.meta.url));
  execFileSync(process.execPath, [compiler, "--project", project, "--outDir", packageFolder], {
    stdio: "inherit",
  });
  // The compiler rewrites .ts extensions in the JavaScript but not in the declarations, where TypeScript before 5.7
  // rejects them.
  for (const file of globSync(join(packageFolder, "*.d.ts"))) {
    writeFileSync(file, readFileSync(file, "utf8").replaceAll(/(from "\.\/[^"]+)\.ts"/g, '$1.js"'));
  }
}

/** The README up to the recipes: users of the package do not need other languages. */
function readme(): string {
  const text = readFileSync(new URL("src/signing/README.md", repository), "utf8");
  const end = text.indexOf("## In other languages");
  if (end < 0) throw new Error('src/signing/README.md has no section "In other languages".');
  return `${text
    .slice(0, end)
    .replaceAll(/^<!-- .* -->\n/gm, "")
    .trimEnd()}\n`;
}

function manifest(): object {
  const { version, license } = JSON.parse(readFileSync(new URL("package.json", repository), "utf8"));
  return {
    name: "sealpost-receiver",
    version,
    description: "Verifies Sealpost webhooks: raw bytes and a header in, a typed event out.",
    license,
    type: "module",
    sideEffects: false,
    engines: { node: ">=18" },
    main: "./index.js",
    types: "./index.d.ts",
    exports: {
      ".": { types: "./index.d.ts", default: "./index.js" },
      "./web": { types: "./web.d.ts", default: "./web.js" },
    },
  };
}

/** Returns the archive's file name. */
function pack(): string {
  const report = execFileSync("npm", ["pack", packageFolder, "--pack-destination", outputFolder, "--json"], {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  return JSON.parse(report)[0].filename;
}
