// Loaded before a program: prints the packages that it has loaded when it ends, on standard error.
import { registerHooks } from "node:module";

const packages = new Set();
registerHooks({
  load: (url, context, nextLoad) => {
    const [, name] = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url) ?? [];
    if (name) packages.add(name);
    return nextLoad(url, context);
  },
});
process.on("exit", () => process.stderr.write(`${JSON.stringify([...packages])}\n`));
