/** Says which methods an address exists for, sorted; none where it does not exist at all. */
export type AllowedMethods = (pathname: string) => readonly string[];

/**
 * The router knows the routes of one method only, so 405 and its Allow header need this look over all of them. It
 * is asked for addresses that no route answered, so it may take its time.
 */
export function createAllowedMethods(
  routes: readonly { readonly method: string; readonly path: string }[],
): AllowedMethods {
  const patterns = routes.map(({ method, path }) => {
    const source = path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+");
    return { methods: method === "GET" ? ["GET", "HEAD"] : [method], pattern: new RegExp(`^${source}$`) };
  });
  return (pathname) => {
    const matching = patterns.filter(({ pattern }) => pattern.test(pathname));
    return [...new Set(matching.flatMap(({ methods }) => methods))].sort();
  };
}
