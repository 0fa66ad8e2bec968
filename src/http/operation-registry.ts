import type { FastifyInstance } from "fastify";
import type { Operation } from "./operation.ts";
import type { ProblemCatalogue } from "./problems.ts";

/** The operations of an API, validated as a whole. */
export type OperationRegistry = {
  readonly operations: readonly Operation[];
  readonly problems: ProblemCatalogue;
};

/** Throws, naming the operation, for what types cannot catch: duplicates and contradictions. */
export function createOperationRegistry(
  operations: readonly Operation[],
  problems: ProblemCatalogue,
): OperationRegistry {
  const seen = new Map<string, string>();
  for (const operation of operations) {
    const { key, method, path } = operation;
    refuseTwice(seen, `key ${key}`, key);
    refuseTwice(seen, `${method} ${path.replaceAll(/\{\w+\}/g, "{}")}`, key);
    for (const mistake of mistakesOf(operation, problems)) throw new Error(`Operation ${key}: ${mistake}.`);
  }
  return { operations, problems };
}

function refuseTwice(seen: Map<string, string>, what: string, key: string): void {
  const other = seen.get(what);
  if (other !== undefined) throw new Error(`Operations ${other} and ${key} both have ${what}.`);
  seen.set(what, key);
}

function* mistakesOf(operation: Operation, problems: ProblemCatalogue): Generator<string> {
  const { key, path, params, errors, work, deprecated, response, body } = operation;
  if (!/^[a-z_]+(?:\.[a-z_]+)+$/.test(key)) yield "the key is not dotted snake_case";
  if (!/^\/v1(?:\/(?:[a-z-]+|\{[a-z_]+\}))+$/.test(path))
    yield `the path ${path} is not of words and {params}`;
  const inPath = pathParams(path).sort().join();
  const inSchema = Object.keys(params?.shape ?? {})
    .sort()
    .join();
  if (work.kind !== "retired" && inPath !== inSchema)
    yield `the path has {${inPath}}, the schema {${inSchema}}`;
  for (const code of errors) if (!Object.hasOwn(problems, code)) yield `no catalogue has the code ${code}`;
  if (deprecated && Number.isNaN(Date.parse(deprecated.at))) yield "it is deprecated at no date";
  if (deprecated?.sunsetAt && !(Date.parse(deprecated.sunsetAt) >= Date.parse(deprecated.at))) {
    yield "its sunset is no date, or before its deprecation";
  }
  if (work.kind === "read" && response.kind === "json" && (response.status !== 200 || response.other)) {
    yield "a read answers 200";
  }
  if (response.kind === "json" && response.other?.status === response.status)
    yield "both successes have one status";
  if (body !== null && !(body.bytesMax > 0)) yield "its body has no room";
  if (response.kind === "content" && work.kind !== "read") yield "only reads answer with contents";
}

/** `/v1/boxes/{id}` → `["id"]`. */
export function pathParams(path: string): string[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name ?? "");
}

/** `/v1/boxes/{id}` → `/v1/boxes/:id`, as the router writes it. */
export function routerPath(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ":$1");
}

/**
 * Tells the methods that a path exists for, sorted; none if it does not exist. The router matches one method at a time,
 * so 405 and its Allow header need this: it sees every route that is added from now on. Called only for unmatched
 * paths, so it may be slow.
 */
export function watchAllowedMethods(app: FastifyInstance): (pathname: string) => readonly string[] {
  const routes: { readonly methods: readonly string[]; readonly pattern: RegExp }[] = [];
  app.addHook("onRoute", ({ method, url }) => {
    const source = url.replaceAll(".", "\\.").replaceAll(/:\w+/g, "[^/]+");
    routes.push({ methods: [method].flat(), pattern: new RegExp(`^${source}$`) });
  });
  return (pathname) => {
    const matching = routes.filter(({ pattern }) => pattern.test(pathname));
    return [...new Set(matching.flatMap(({ methods }) => methods))].sort();
  };
}
