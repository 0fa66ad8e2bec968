import * as kinds from "./kinds.ts";

/** An environment variable: its kind, its default and its meaning. */
export type Variable<T> = {
  readonly kind: kinds.VariableKind<T>;
  /** Used when the variable is unset or empty. Null: the value is then null. */
  readonly fallback: string | null;
  /** One sentence for the README's table. Says what unset means where `fallback` is null. */
  readonly meaning: string;
};

export const DAY_SECONDS = 86_400;

/** All variables that Sealpost reads, in the order of the README's table. Nothing else reads the environment. */
export const variables = {
  DATABASE_URL: optional(
    kinds.secret(
      kinds.address("a PostgreSQL address such as postgres://user:password@host:5432/name", [
        "postgres:",
        "postgresql:",
      ]),
    ),
    "PostgreSQL 15 to 18. Unset: `start` runs an embedded one in `STATE_DIR`.",
  ),
  STATE_DIR: withDefault(
    kinds.text("a folder's path", /^[^\0]+$/),
    ".state",
    "Folder of the embedded database and of the secrets made for development.",
  ),
  HOST: withDefault(
    kinds.text("a host name or an address to listen on", /^[A-Za-z0-9.:_-]{1,253}$/),
    "127.0.0.1",
    "Address that the API and the metrics listen on; `0.0.0.0` for all, which load balancers and Prometheus on " +
      "other machines need.",
  ),
  PORT: withDefault(kinds.wholeNumber(0, 65_535), "8080", "Port of the API; 0 takes any free one."),
  METRICS_PORT: withDefault(
    kinds.wholeNumber(0, 65_535),
    "9464",
    "Port of `/metrics`; 0 takes any free one. Under `start` the dispatcher's is the next one.",
  ),
  ENVIRONMENT: withDefault(
    kinds.oneOf("development", "production"),
    "development",
    "Decides the class of API keys (`…_test_`, `…_live_`) and whether anything unsafe may start.",
  ),
  API_KEY_BRAND: withDefault(
    kinds.text("1 to 16 small letters and digits, a letter first", /^[a-z][a-z0-9]{0,15}$/),
    "svc",
    "What API keys begin with.",
  ),
  PUBLIC_URL: optional(
    kinds.baseUrl(),
    "Address that others reach the API under, without `/v1`. Unset: the address listened on.",
  ),
  DOCS_URL: optional(kinds.baseUrl(), "Address of the pages on errors. Unset: `PUBLIC_URL`."),
  SECRETS_KEY: optional(
    kinds.aesKey(),
    "Key that stored secrets are encrypted with: 32 bytes in base64. Needed in production; " +
      "in development one is made in `STATE_DIR`.",
  ),
  RETRY_WINDOW_SECONDS: withDefault(
    kinds.wholeNumber(1, 5 * DAY_SECONDS),
    "86400",
    "Time over which the attempts of a run are spread.",
  ),
  RETRY_ATTEMPTS: withDefault(kinds.wholeNumber(1, 8), "8", "Attempts of a run; never more than 8."),
  ATTEMPT_DEADLINE_MS: withDefault(
    kinds.wholeNumber(100, 120_000),
    "15000",
    "Time that one attempt may take, from the name's lookup to the answer.",
  ),
  CONNECT_TIMEOUT_MS: withDefault(
    kinds.wholeNumber(100, 120_000),
    "5000",
    "Part of it that lookup, TCP and TLS may take together.",
  ),
  ANALYSIS_BYTES_MAX: withDefault(
    kinds.wholeNumber(1_024, 8_388_608),
    "1048576",
    "Bytes of the largest analysis that can be published. Run `migrate` after a change.",
  ),
  DISPATCH_IN_FLIGHT_MAX: withDefault(
    kinds.wholeNumber(1, 10_000),
    "1000",
    "Attempts that one dispatcher makes at the same time.",
  ),
  TARGET_DNS_SERVERS: optional(
    kinds.list(
      "addresses of name servers with commas, such as 10.0.0.2,[fd00::2]:53",
      kinds.isAddressWithPort,
    ),
    "Name servers asked for targets. Unset: the system's.",
  ),
  TARGET_CA_FILE: optional(
    kinds.text("a file's path", /^[^\0]+$/),
    "File of certificates (PEM) that targets may be signed by, besides the public ones.",
  ),
  OWN_ADDRESSES: optional(
    kinds.list(
      "addresses or blocks of them with commas, such as 198.51.100.7,2001:db8::/64",
      kinds.isAddressOrBlock,
    ),
    "Public addresses of this installation (`198.51.100.7`, `2001:db8::/64`), which no target may have.",
  ),
  UNSAFE_ALLOWED_TARGETS: optional(
    kinds.list("`host:port` or `*.name:port`, with commas", kinds.isHostWithPort),
    "Targets that may be private, for tests: `host:port`, `*.name:port`. Refused in production.",
  ),
  EGRESS_PROXY_URL: optional(
    kinds.secret(kinds.address("an http or https address of a proxy", ["http:", "https:"])),
    "Proxy that all attempts go through; it resolves the names, and must itself refuse private addresses: " +
      "`TARGET_DNS_SERVERS` and `OWN_ADDRESSES` have no effect. Unset: they go out directly.",
  ),
  RATE_LIMIT_REQUESTS: withDefault(
    kinds.wholeNumber(1, 1_000_000),
    "600",
    "Requests that one API key may make in a window.",
  ),
  RATE_LIMIT_WINDOW_SECONDS: withDefault(kinds.wholeNumber(1, 3_600), "60", "Length of that window."),
  TRUST_PROXY: withDefault(
    kinds.proxyTrust(),
    "false",
    "Whose `X-Forwarded-For` is believed: `false`, how many proxies are in front, or their addresses.",
  ),
  LOG_LEVEL: withDefault(
    kinds.oneOf("trace", "debug", "info", "warn", "error", "fatal", "silent"),
    "info",
    "The least important lines that are still logged.",
  ),
  ANALYSIS_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(7 * DAY_SECONDS, 90 * DAY_SECONDS),
    "604800",
    "Time that an analysis stays readable; never less than 7 days.",
  ),
  LOG_RETENTION_DAYS: withDefault(
    kinds.wholeNumber(7, 3_650),
    "30",
    "Time that the delivery log reaches back.",
  ),
  AUDIT_RETENTION_DAYS: withDefault(
    kinds.wholeNumber(1, 3_650),
    "365",
    "Time that the audit log reaches back.",
  ),
  IDEMPOTENCY_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(60, 30 * DAY_SECONDS),
    "86400",
    "Time that an idempotency key is remembered.",
  ),
} as const satisfies Record<string, Variable<unknown>>;

function withDefault<T>(kind: kinds.VariableKind<T>, fallback: string, meaning: string): Variable<T> {
  return { kind, fallback, meaning };
}

function optional<T>(kind: kinds.VariableKind<T>, meaning: string): Variable<T | null> {
  return { kind, fallback: null, meaning };
}

/** The README's table of variables in Markdown. A test compares the two. */
export function configurationTable(): string {
  const rows = Object.entries<Variable<unknown>>(variables).map(([name, { fallback, meaning }]) => {
    const shownDefault = fallback === null ? "" : `\`${fallback}\``;
    return `| \`${name}\` | ${shownDefault} | ${meaning.replaceAll("|", "\\|")} |`;
  });
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
