import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";

const read = (name: string) => readFileSync(new URL(`../../${name}`, import.meta.url), "utf8");
const dockerfile = read("Dockerfile");
const stages = dockerfile.split(/^FROM /m).slice(1);

test("the image asks no registry for its syntax, and is made in stages, the last of which only copies", () => {
  expect(dockerfile).not.toMatch(/^#\s*syntax=/m);
  expect(stages).toHaveLength(3);
  expect(stages[0]).toMatch(/^RUN npm ci --omit=dev --omit=optional --ignore-scripts$/m);
  expect(stages[2]).not.toMatch(/^(?:RUN|ADD) /m);
});

test("it runs as nobody in particular, and is asked how it is", () => {
  expect(dockerfile).toMatch(/^USER 1000:1000$/m);
  expect(dockerfile).toMatch(/^HEALTHCHECK .* CMD \["node", "scripts\/healthcheck\.mjs"\]$/m);
  // Node strips no types below node_modules.
  expect(dockerfile.match(/^WORKDIR (.*)$/gm)).toEqual(stages.map(() => "WORKDIR /app"));
});

test("what it copies is what the build is given, and nothing else", () => {
  const given = read(".dockerignore")
    .split("\n")
    .filter((line) => line.startsWith("!"))
    .map((line) => line.slice(1));
  const copied = [...dockerfile.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(([, names = ""]) =>
    names.split(" "),
  );
  expect(new Set(copied)).toEqual(new Set(given));
});

test("it has the packages that the service hands out, from a stage that nothing else is taken of", () => {
  expect(stages[1]).toMatch(/^RUN node scripts\/pack\.ts all$/m);
  expect(dockerfile.match(/--from=libraries .*/g)).toEqual(["--from=libraries /app/dist ./dist"]);
});

test("documents are in a folder of the image's user, which is a volume of all processes", () => {
  const [, parent = ""] =
    /^COPY --from=packages --chown=1000:1000 \/state\/ (\S+)\/$/m.exec(dockerfile) ?? [];
  const [, folder = ""] = /^RUN mkdir -p \/state\/(\S+)$/m.exec(dockerfile) ?? [];
  const stateDir = `${parent}/${folder}`;
  const compose = parse(read("compose.yaml"), { merge: true });
  for (const { environment, volumes } of [compose.services.api, compose.services.dispatcher]) {
    expect(environment.STATE_DIR).toBe(stateDir);
    expect(volumes).toEqual([`documents:${stateDir}`]);
  }
  expect(compose.volumes).toHaveProperty("documents");
  expect(read("docs/operating.md")).toContain(`--env STATE_DIR=${stateDir} --volume documents:${stateDir}`);
});
