import { existsSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { readConfig } from "../../src/base/config/config.ts";
import { variables } from "../../src/base/config/variables.ts";

const root = new URL("../../", import.meta.url);
const read = (path: string) => parse(readFileSync(new URL(path, root), "utf8"), { merge: true });
const { services } = read("compose.yaml");
const ours = ["migrate", "api", "dispatcher"] as const;

/** What compose takes a text for, by the variables of `.env`. */
function filledIn(text: string, env: Readonly<Record<string, string>>): string {
  const innermost = /\$\{(\w+)(?::([-?])([^${}]*))?\}/;
  const filled = text.replace(innermost, (_, name: string, sign: string, rest: string) => {
    const value = env[name] ?? "";
    if (value === "" && sign === "?") throw new Error(`${name}: ${rest}`);
    return value === "" && sign === "-" ? rest : value;
  });
  return filled === text ? text : filledIn(filled, env);
}

/** The environment of a service's processes. */
function environmentOf(service: (typeof ours)[number], env: Readonly<Record<string, string>>) {
  const { env_file: files, environment } = services[service];
  expect(files).toEqual([".env"]);
  const own = Object.entries(environment).map(
    ([name, value]) => [name, filledIn(String(value), env)] as const,
  );
  return { ...env, ...Object.fromEntries(own) };
}

const secretsKey = Buffer.alloc(32, 1).toString("base64");
const least = { POSTGRES_PASSWORD: "of-postgres", GRAFANA_PASSWORD: "of-grafana", SECRETS_KEY: secretsKey };

test.each(ours)("every variable of .env reaches %s, but for four that the file is made for", (service) => {
  const env = Object.fromEntries(Object.keys(variables).map((name) => [name, `text of ${name}`]));
  const given = environmentOf(service, { ...env, ...least, SECRETS_KEY: "text of SECRETS_KEY" });
  const changed = Object.keys(env).filter((name) => given[name] !== env[name]);
  expect(changed.sort()).toEqual(["HOST", "METRICS_PORT", "PORT", "STATE_DIR"]);
});

test.each(ours)(
  "%s starts with the three lines that the documents give, and without Grafana's password",
  (service) => {
    const given = environmentOf(service, least);
    const { port, metricsPort, host } = readConfig(given);
    expect({ port, metricsPort, host }).toEqual({ port: 8080, metricsPort: 9464, host: "0.0.0.0" });
    expect(given.DATABASE_URL).toBe("postgres://sealpost:of-postgres@postgres:5432/sealpost");
    expect(given.GRAFANA_PASSWORD).toBe("");
    expect(() => environmentOf(service, { ...least, SECRETS_KEY: "" })).toThrow(
      "SECRETS_KEY: set it in .env",
    );
  },
);

test("two of each run, read-only and without rights; nothing is open to others, and no secret is in the file", () => {
  for (const name of ["api", "dispatcher"]) {
    const locked = { read_only: true, cap_drop: ["ALL"], security_opt: ["no-new-privileges:true"] };
    expect(services[name]).toMatchObject({ deploy: { replicas: 2 }, ...locked });
  }
  for (const { environment = {}, ports = [] } of Object.values<Record<string, object>>(services)) {
    const secrets = Object.entries(environment).filter(([name]) => /PASSWORD|SECRETS_KEY/.test(name));
    for (const [name, value] of secrets) expect(value, name).toMatch(/^(?:\$\{\w+:\?.*\})?$/);
    for (const port of Object.values(ports)) expect(port).toMatch(/^127\.0\.0\.1:/);
  }
});

test("Prometheus and Grafana are given what they read", () => {
  const mountsOf = (service: string): Map<string, string> =>
    new Map(services[service].volumes.map((volume: string) => volume.split(":").slice(0, 2).reverse()));
  const [prometheus, grafana] = [mountsOf("prometheus"), mountsOf("grafana")];
  for (const [, source] of [...prometheus, ...grafana]) {
    if (source.startsWith("./")) expect(existsSync(new URL(source, root)), source).toBe(true);
  }
  const { scrape_configs: jobs, rule_files: files } = read("grafana/prometheus/prometheus.yml");
  for (const file of files)
    expect(existsSync(new URL(`${prometheus.get("/etc/prometheus")}/${file}`, root))).toBe(true);
  for (const { dns_sd_configs: targets } of jobs) {
    for (const { names, port } of targets) {
      for (const name of names) expect(environmentOf(name, least).METRICS_PORT).toBe(String(port));
    }
  }
  const { providers } = read("grafana/provisioning/dashboards/sealpost.yaml");
  expect(grafana.get(providers[0].options.path)).toBe("./grafana/dashboards");
  const { datasources } = read("grafana/provisioning/datasources/prometheus.yaml");
  expect(services).toHaveProperty(new URL(datasources[0].url).hostname);
});
