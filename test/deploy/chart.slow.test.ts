// deploy/helm, rendered by Helm and held against the schemas of Kubernetes and of the Prometheus Operator.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { variables } from "../../src/base/config/variables.ts";
import { runSealpost } from "../support/command.ts";
import { GRAFANA } from "../support/dashboards.ts";
import { installedGoProgram } from "../support/programs.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const CHART = `${ROOT}deploy/helm`;
/**
 * Of Kubernetes 1.30, the oldest that the chart is for (as kubernetes-validate 1.37.0 has them), and of the Prometheus
 * Operator 0.93, without prose.
 */
const SCHEMAS = `${ROOT}test/deploy/schemas/{{ .ResourceKind }}.json`;
const RUNBOOK = "https://wiki.example.com/runbook";

type Values = Readonly<Record<string, unknown>>;
// biome-ignore lint/suspicious/noExplicitAny: of any kind
type Manifest = any;

const needed: Values = { existingSecret: "sealpost-secret" };
const all: Values = {
  ...needed,
  filesSecret: "sealpost-files",
  documentsClaim: "documents",
  image: { repository: "registry.example.com/sealpost", digest: `sha256:${"a".repeat(64)}` },
  env: { ENVIRONMENT: "production", PUBLIC_URL: "https://api.example.com" },
  serve: { replicas: null, env: { LOG_LEVEL: "warn" } },
  service: { type: "LoadBalancer", annotations: { of: "ours" } },
  pod: { nodeSelector: { disk: "fast" }, imagePullSecrets: [{ name: "registry" }] },
  monitoring: { enabled: true, labels: { release: "prometheus" }, runbookUrl: RUNBOOK },
};

function helm(args: readonly string[], values: Values) {
  const options = { encoding: "utf8", input: JSON.stringify(values), maxBuffer: 2 ** 24 } as const;
  return spawnSync(installedGoProgram("helm"), [...args, "--values=-", "--kube-version=1.30"], options);
}

function render(values: Values, chart = CHART): string {
  const { status, stdout, stderr } = helm(["template", "live", chart], values);
  expect(status, stderr).toBe(0);
  return stdout;
}

function manifestsOf(values: Values): Manifest[] {
  return parseAllDocuments(render(values)).flatMap((one) => one.toJS() ?? []);
}

/** The pod of each process, and of what migrates. */
function podsOf(values: Values): Record<string, Manifest> {
  const owners = manifestsOf(values).filter(({ spec }) => spec?.template !== undefined);
  const pods = owners.map(({ spec }) => spec.template);
  return Object.fromEntries(
    pods.map((pod) => [pod.metadata.labels["app.kubernetes.io/component"], pod.spec]),
  );
}

function validate(text: string) {
  const args = ["-strict", "-summary", "-output=json", `-schema-location=${SCHEMAS}`];
  const { status, stdout } = spawnSync(installedGoProgram("kubeconform"), args, {
    encoding: "utf8",
    input: text,
  });
  return { status, ...JSON.parse(stdout) };
}

const namesOf = (manifests: readonly Manifest[]) =>
  manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`);
const isFixed = (name: string) => ["PORT", "METRICS_PORT", "STATE_DIR"].includes(name);
const isSecret = (name: string) => variables[name as keyof typeof variables].kind.isSecret;

describe("the chart", () => {
  test("has the project's version, and Helm finds nothing wrong with it", () => {
    const { version } = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8"));
    expect(parse(readFileSync(`${CHART}/Chart.yaml`, "utf8"))).toMatchObject({
      version,
      appVersion: version,
    });
    const { status, stdout } = helm(["lint", "--strict", CHART], all);
    expect(status, stdout).toBe(0);
  });

  test.each([
    ["with what it needs", needed, 6],
    ["with everything", all, 10],
  ])("makes valid manifests %s", (_, values, count) => {
    const { status, resources, summary } = validate(render(values));
    expect(resources ?? []).toEqual([]);
    expect(summary).toMatchObject({ valid: count, invalid: 0, errors: 0, skipped: 0 });
    expect(status).toBe(0);
  });

  test.each([
    ["an unknown field", "    spec:\n", "    spec:\n      hostNetwerk: true\n"],
    ["a wrong type", "runAsNonRoot: true", "runAsNonRoot: 1"],
    ["an unknown field of the operator's", "sourceLabels:", "sourceLabel:"],
  ])("is validated: %s is found", (_, right, wrong) => {
    const text = render(all);
    expect(text).toContain(right);
    expect(validate(text.replace(right, wrong)).summary.invalid).toBe(1);
  });

  test("has two of each process, their budgets, the API's service, and a job that migrates before them", () => {
    const manifests = manifestsOf(needed);
    expect(namesOf(manifests).sort()).toEqual([
      "Deployment live-dispatch",
      "Deployment live-serve",
      "Job live-migrate",
      "PodDisruptionBudget live-dispatch",
      "PodDisruptionBudget live-serve",
      "Service live",
    ]);
    const [job] = manifests.filter(({ kind }) => kind === "Job");
    expect(job.metadata.annotations["helm.sh/hook"]).toBe("pre-install,pre-upgrade");
    const [service] = manifests.filter(({ kind }) => kind === "Service");
    for (const { kind, metadata, spec } of manifests.filter(({ spec }) => spec.selector?.matchLabels)) {
      expect(metadata.labels).toMatchObject(spec.selector.matchLabels);
      if (kind === "PodDisruptionBudget") expect(spec.maxUnavailable).toBe(1);
      else expect(spec).toMatchObject({ replicas: 2, strategy: { rollingUpdate: { maxUnavailable: 0 } } });
      if (metadata.name === "live-serve") expect(service.spec.selector).toEqual(spec.selector.matchLabels);
    }
    const [scaled] = manifestsOf(all).filter(({ metadata }) => metadata.name === "live-serve");
    expect(scaled.spec).not.toHaveProperty("replicas");
  });
});

describe("its pods", () => {
  test("run the program's commands as the image's user, without any right and with nothing to write to", async () => {
    const [, user = ""] =
      /^USER (\d+):\d+$/m.exec(
        readFileSync(`${ROOT}Dockerfile`, "utf8")
          .split(/^FROM /m)
          .at(-1)!,
      ) ?? [];
    for (const [name, pod] of Object.entries(podsOf(all))) {
      const [container] = pod.containers;
      expect(container.args).toEqual([name]);
      expect((await runSealpost([name, "--help"])).code).toBe(0);
      expect(container.image).toBe(`registry.example.com/sealpost@sha256:${"a".repeat(64)}`);
      expect(pod).toMatchObject({
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        securityContext: {
          runAsNonRoot: true,
          runAsUser: Number(user),
          seccompProfile: { type: "RuntimeDefault" },
        },
        nodeSelector: { disk: "fast" },
      });
      expect(container.securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ["ALL"] },
      });
      expect(container.resources.limits.memory).toMatch(/^\d+[GM]i$/);
    }
  });

  test("are asked on the metrics port, and given to an end what an attempt may take", () => {
    for (const [written, deadlineMs] of [
      [undefined, 15_000],
      ["120000", 120_000],
      ["1", 1],
    ] as const) {
      const env = written === undefined ? {} : { ATTEMPT_DEADLINE_MS: written };
      const { migrate, ...processes } = podsOf({ ...needed, env });
      expect(migrate.restartPolicy).toBe("Never");
      expect(Object.keys(processes).sort()).toEqual(["dispatch", "serve"]);
      for (const { containers, terminationGracePeriodSeconds } of Object.values(processes)) {
        const [{ ports, livenessProbe, readinessProbe, lifecycle }] = containers;
        expect(ports).toContainEqual({ name: "metrics", containerPort: 9464 });
        expect(livenessProbe.httpGet).toEqual({ path: "/healthz", port: "metrics" });
        expect(readinessProbe.httpGet).toEqual({ path: "/readyz", port: "metrics" });
        const leftMs = (terminationGracePeriodSeconds - lifecycle.preStop.sleep.seconds) * 1_000;
        expect(leftMs).toBeGreaterThan(deadlineMs + 2_000);
        expect(leftMs).toBeLessThanOrEqual(deadlineMs + 4_000);
      }
    }
  });

  test("get every variable there is, and secrets by their name only", () => {
    const open = Object.keys(variables).filter((name) => !isSecret(name) && !isFixed(name));
    expect(open.length).toBeGreaterThan(25);
    const env = Object.fromEntries(open.map((name) => [name, `19327352832 of ${name}`]));
    const pods = podsOf({ ...needed, env });
    expect(Object.keys(pods).sort()).toEqual(["dispatch", "migrate", "serve"]);
    for (const { containers } of Object.values(pods)) {
      const [container] = containers;
      const given = Object.fromEntries(container.env.map(({ name, value }: Manifest) => [name, value]));
      expect(given).toMatchObject({ ...env, PORT: "8080", METRICS_PORT: "9464" });
      expect(container.envFrom).toEqual([{ secretRef: { name: "sealpost-secret" } }]);
    }
  });

  test.each(Object.keys(variables).filter((name) => isSecret(name) || isFixed(name)))(
    "are not given %s in values",
    (name) => {
      const { status, stderr } = helm(["template", "live", CHART], { ...needed, env: { [name]: "planted" } });
      expect(status).not.toBe(0);
      expect(stderr).toContain(name);
      expect(stderr).not.toContain("planted");
    },
  );

  test.each([
    ["no secret", {}, "existingSecret"],
    [
      "a number that is none in an environment",
      { ...needed, env: { DISPATCH_IN_FLIGHT_MAX: 1e9 } },
      "DISPATCH_IN_FLIGHT_MAX",
    ],
    ["an unknown value", { ...needed, replicas: 3 }, "replicas"],
    ["alerts that lead nowhere", { ...needed, monitoring: { enabled: true } }, "monitoring.runbookUrl"],
  ])("are not made of %s", (_, values, named) => {
    const { status, stderr } = helm(["template", "live", CHART], values);
    expect(status).not.toBe(0);
    expect(stderr).toContain(named);
  });
});

describe("monitoring", () => {
  const manifests = manifestsOf(all);
  const of = (kind: string, name: string) =>
    manifests.find((one) => one.kind === kind && one.metadata.name === name) ??
    expect.unreachable(`${kind} ${name}`);

  test("has the alerts as they are, leading to the runbook", () => {
    const { metadata, spec } = of("PrometheusRule", "live");
    expect(metadata.labels.release).toBe("prometheus");
    const text = readFileSync(`${GRAFANA}prometheus/alerts.yml`, "utf8");
    expect(spec).toEqual(parse(text.replaceAll("docs/runbook.md", RUNBOOK)));
    const urls = spec.groups.flatMap(({ rules }: Manifest) =>
      rules.flatMap(({ annotations }: Manifest) => annotations?.runbook_url ?? []),
    );
    expect(urls.length).toBeGreaterThan(25);
    for (const url of urls) expect(url).toMatch(/^https:\/\/wiki\.example\.com\/runbook#sealpost\w+$/);
  });

  test("scrapes every process under the name of its job", () => {
    const { spec } = of("ServiceMonitor", "live");
    const service = of("Service", "live-metrics");
    expect(service.metadata.labels).toMatchObject(spec.selector.matchLabels);
    const processes = manifests.filter(({ kind }) => kind === "Deployment").map((one) => one.spec.template);
    for (const { metadata } of processes) expect(metadata.labels).toMatchObject(service.spec.selector);
    const [{ relabelings }] = spec.endpoints;
    const component = "app.kubernetes.io/component";
    expect(relabelings[0].sourceLabels).toEqual([
      `__meta_kubernetes_pod_label_${component.replaceAll(/\W/g, "_")}`,
    ]);
    const jobs = processes.map(({ metadata }) =>
      relabelings[0].replacement.replace("$1", metadata.labels[component]),
    );
    const config = parse(readFileSync(`${GRAFANA}prometheus/prometheus.yml`, "utf8"));
    expect(jobs.sort()).toEqual(config.scrape_configs.map((one: Manifest) => one.job_name).sort());
  });

  test("has the dashboards as they are", () => {
    const { data, metadata } = of("ConfigMap", "live-dashboards");
    expect(metadata.labels.grafana_dashboard).toBe("1");
    const files = readdirSync(`${GRAFANA}dashboards`);
    const read = (file: string) => JSON.parse(readFileSync(`${GRAFANA}dashboards/${file}`, "utf8"));
    const found = Object.entries(data).map(([file, text]) => [file, JSON.parse(String(text))]);
    expect(Object.fromEntries(found)).toEqual(Object.fromEntries(files.map((file) => [file, read(file)])));
  });
});
