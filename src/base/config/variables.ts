import { AREAS } from "../model/areas.ts";
import { CELL_NAME } from "../model/installation.ts";
import { DAY_SECONDS } from "../model/time.ts";
import * as kinds from "./kinds.ts";

/** An environment variable: its kind, its default and its meaning. */
export type Variable<T> = {
  readonly kind: kinds.VariableKind<T>;
  /** Used when the variable is unset or empty. Null: the value is then null. */
  readonly fallback: string | null;
  /** One sentence for docs/configuration.md, with links from there. Says what unset means where `fallback` is null. */
  readonly meaning: string;
};

/**
 * All variables that Sealpost reads; docs/configuration.md groups them. Nothing else reads the environment, but for
 * SEALPOST_SECRET: the receivers' own, in src/app/cli/secrets.ts.
 */
export const variables = {
  DATABASE_URL: optional(
    kinds.secret(
      kinds.address("a PostgreSQL URL such as postgres://user:password@host:5432/name", [
        "postgres:",
        "postgresql:",
      ]),
    ),
    "URL of PostgreSQL 15 to 18. Unset: `start` runs an embedded PostgreSQL in `STATE_DIR`.",
  ),
  READ_DATABASE_URL: optional(
    kinds.secret(
      kinds.address("a PostgreSQL URL such as postgres://user:password@host:5432/name", [
        "postgres:",
        "postgresql:",
      ]),
    ),
    "URL of a streaming standby that lists of the delivery log are read from, while it has all that was committed. " +
      "Unset: they are read from `DATABASE_URL`.",
  ),
  DATABASE_CONNECTIONS_MAX: withDefault(
    kinds.wholeNumber(5, 200),
    "12",
    "Connections to PostgreSQL that `serve` and `dispatch` hold at most, each; at rest half as many.",
  ),
  CELL: optional(
    kinds.text(CELL_NAME.rule, CELL_NAME.pattern),
    "Name of the cell, where there are several ([Scaling](scaling.md)). `migrate` writes it into the database " +
      "once; another cell's database is then refused. Unset: not checked.",
  ),
  AREAS: withDefault(
    kinds.someOf(...AREAS),
    AREAS.join(","),
    "Parts of the service that this installation has: `webhooks` (analyses, deliveries, the console), `workspace` " +
      "(spaces, documents, workflows). Run `migrate` after adding one.",
  ),
  TARGET_DATABASE_URL: optional(
    kinds.secret(
      kinds.address("a PostgreSQL URL such as postgres://user:password@host:5432/name", [
        "postgres:",
        "postgresql:",
      ]),
    ),
    "For `account move` alone: URL of the database that the account moves to, in place of `--to`, which others on " +
      "the machine can read.",
  ),
  TARGET_SECRETS_KEY: optional(
    kinds.aesKey(),
    "For `account move` alone: the `SECRETS_KEY` of that database's cell.",
  ),
  STATE_DIR: withDefault(
    kinds.text("the path of a folder", /^[^\0]+$/),
    ".state",
    "Folder of the embedded database, of the secrets generated in development, and of documents without S3.",
  ),
  OBJECT_STORE_URL: optional(
    kinds.s3Address(),
    "S3, or a server that speaks like it, where documents are stored ([Objects](objects.md)): " +
      "`s3://bucket?region=eu-central-1`, elsewhere also with `endpoint=https://…` and `path_style=true`. Unset: in " +
      "files in `STATE_DIR`.",
  ),
  AWS_ACCESS_KEY_ID: optional(
    kinds.secret(kinds.text("an access key's id", /^\S{1,200}$/)),
    "Access key for it. Required with `OBJECT_STORE_URL`, as is the next.",
  ),
  AWS_SECRET_ACCESS_KEY: optional(
    kinds.secret(kinds.text("an access key's secret", /^\S{1,200}$/)),
    "Its secret.",
  ),
  HOST: withDefault(
    kinds.text("a host name or an IP address to listen on", /^[A-Za-z0-9.:_-]{1,253}$/),
    "127.0.0.1",
    "Address that the API and the metrics listen on. Load balancers and Prometheus on other machines need " +
      "`0.0.0.0`, all addresses.",
  ),
  PORT: withDefault(kinds.wholeNumber(0, 65_535), "8080", "Port of the API; 0 for any free port."),
  METRICS_PORT: withDefault(
    kinds.wholeNumber(0, 65_535),
    "9464",
    "Port of `/metrics`; 0 for any free port. Under `start` the dispatcher uses the next port.",
  ),
  ENVIRONMENT: withDefault(
    kinds.oneOf("development", "production"),
    "development",
    "Decides the class of API keys (`…_test_`, `…_live_`) and whether unsafe settings are allowed.",
  ),
  API_KEY_BRAND: withDefault(
    kinds.text("1 to 16 lowercase letters and digits, starting with a letter", /^[a-z][a-z0-9]{0,15}$/),
    "svc",
    "Prefix of API keys.",
  ),
  API_KEY_BRANDS: optional(
    kinds.list(
      "a comma-separated list of brands, each 1 to 16 lowercase letters and digits, starting with a letter",
      (item) => /^[a-z][a-z0-9]{0,15}$/.test(item),
    ),
    "Prefixes of API keys that are accepted besides `API_KEY_BRAND`: those of all cells, so that an account keeps " +
      "its keys when it moves. Unset: none.",
  ),
  PUBLIC_URL: optional(
    kinds.baseUrl(),
    "URL under which clients reach the API, without `/v1`. Unset: the address it listens on.",
  ),
  PAGES_URL: optional(
    kinds.origin(),
    "Origin under which links to pages of the workspace open, such as `https://pages.example.com`: of another host " +
      "than `PUBLIC_URL` ([how](operating.md#links-to-pages)). Unset: no links to pages.",
  ),
  DOCS_URL: optional(kinds.baseUrl(), "Base URL of the error pages. Unset: `PUBLIC_URL`."),
  SECRETS_KEY: optional(
    kinds.aesKey(),
    "Key that encrypts stored secrets: 32 bytes in base64. Required in production; " +
      "in development one is generated in `STATE_DIR`.",
  ),
  RETRY_WINDOW_SECONDS: withDefault(
    kinds.wholeNumber(1, 5 * DAY_SECONDS),
    "86400",
    "Time over which the attempts of a run are spread, in seconds.",
  ),
  RETRY_ATTEMPTS: withDefault(kinds.wholeNumber(1, 8), "8", "Attempts per run, at most 8."),
  ATTEMPT_DEADLINE_MS: withDefault(
    kinds.wholeNumber(100, 120_000),
    "15000",
    "Deadline of an attempt, from the DNS lookup to the end of the answer.",
  ),
  CONNECT_TIMEOUT_MS: withDefault(
    kinds.wholeNumber(100, 120_000),
    "5000",
    "Time within that deadline for DNS, TCP and TLS together; by default at most the deadline.",
  ),
  ANALYSIS_BYTES_MAX: withDefault(
    kinds.wholeNumber(1_024, 8_388_608),
    "1048576",
    "Maximum size of an analysis. Run `migrate` after changing it.",
  ),
  ACCOUNT_STORAGE_BYTES_MAX: withDefault(
    kinds.wholeNumber(16_777_216, 2 ** 50),
    "17179869184",
    "What an account may store but for analyses, in bytes, shared out by kind " +
      "([Storage](operating.md#storage)). Run `migrate` after changing it.",
  ),
  ACCOUNT_ANALYSES_BYTES_MAX: optional(
    kinds.wholeNumber(1_048_576, 2 ** 50),
    "What an account's analyses may take with their log, in bytes: beyond it publishing is refused, in SQL, too. " +
      "Unset: any amount. Run `migrate` after changing it.",
  ),
  DISPATCH_IN_FLIGHT_MAX: withDefault(
    kinds.wholeNumber(1, 10_000),
    "1000",
    "Maximum number of concurrent attempts per dispatcher.",
  ),
  ACCOUNT_IN_FLIGHT_MAX: optional(
    kinds.wholeNumber(1, 10_000),
    "Of those, attempts of one account, even when no other has any to make. Unset: nearly all.",
  ),
  LANE_IN_FLIGHT_MAX: withDefault(
    kinds.wholeNumber(1, 1_000),
    "128",
    "Of those, attempts at one receiver (an account's endpoint, or the origin of a `webhook_url`), however fast it " +
      "answers.",
  ),
  TARGET_DNS_SERVERS: optional(
    kinds.list(
      "a comma-separated list of name server addresses, such as 10.0.0.2,[fd00::2]:53",
      kinds.isAddressWithPort,
    ),
    "Name servers that resolve targets. Unset: the system's.",
  ),
  TARGET_CA_FILE: optional(
    kinds.text("the path of a file", /^[^\0]+$/),
    "File of CA certificates (PEM) that are trusted for targets, besides the public ones.",
  ),
  OWN_ADDRESSES: optional(
    kinds.list(
      "a comma-separated list of addresses or CIDR blocks, such as 198.51.100.7,2001:db8::/64",
      kinds.isAddressOrBlock,
    ),
    "Public addresses of this installation (`198.51.100.7`, `2001:db8::/64`), which are refused as targets.",
  ),
  UNSAFE_ALLOWED_TARGETS: optional(
    kinds.list("a comma-separated list of `host:port` or `*.name:port`", kinds.isHostWithPort),
    "Targets that are allowed although private, for tests: `host:port`, `*.name:port`. Refused in production.",
  ),
  EGRESS_PROXY_URL: optional(
    kinds.secret(kinds.address("the http or https URL of a proxy", ["http:", "https:"])),
    "Proxy for all attempts. It resolves the names and must itself refuse private addresses; " +
      "`TARGET_DNS_SERVERS` and `OWN_ADDRESSES` have no effect. Unset: attempts go out directly.",
  ),
  SMTP_URL: optional(
    kinds.smtpServer(),
    "Mail server that notices are sent by: `smtp://user:password@mail.example.com:587` (with TLS by STARTTLS) or " +
      "`smtps://…`. Unset: notices are listed by the API, and no mail is sent.",
  ),
  NOTICES_FROM: optional(
    kinds.mailSender(),
    "Sender of those mails: `notices@example.com` or `Example <notices@example.com>`. Required with `SMTP_URL`.",
  ),
  RATE_LIMIT_REQUESTS: withDefault(
    kinds.wholeNumber(1, 1_000_000),
    "600",
    "Requests per window of an API key, and of each session of the console, publishing apart. All of an account " +
      "that act for no user have ten times as many together, and so have those of each user.",
  ),
  RATE_LIMIT_WINDOW_SECONDS: withDefault(
    kinds.wholeNumber(1, 3_600),
    "60",
    "Length of that window, in seconds.",
  ),
  PUBLISH_RATE_PER_SECOND: withDefault(
    kinds.wholeNumber(1, 1_000_000),
    "2000",
    "Analyses an account may publish over HTTP in a second; more are answered 429. Publishing by SQL has no limit.",
  ),
  TRUST_PROXY: withDefault(
    kinds.proxyTrust(),
    "false",
    "Whose `X-Forwarded-For` is trusted: `false` (none), the number of proxies in front, or their addresses.",
  ),
  CONSOLE_ANCESTORS: optional(
    kinds.list("origins such as https://app.example.com, separated by commas", kinds.isOrigin),
    "Origins of pages that may show the console in a frame. Unset: none.",
  ),
  STAFF_JWT_HEADER: optional(
    kinds.text("the name of a header, such as x-goog-iap-jwt-assertion", /^[A-Za-z0-9-]{1,100}$/),
    "Header in which a proxy in front sends a signed assertion (JWT) of who support staff are. Unset: none is " +
      "believed.",
  ),
  STAFF_JWT_ISSUER: optional(
    kinds.text("the assertions' `iss`, without spaces", /^\S{1,500}$/),
    "Their issuer (`iss`). Required with `STAFF_JWT_HEADER`, as are the next three.",
  ),
  STAFF_JWT_AUDIENCE: optional(
    kinds.text("the assertions' `aud`, without spaces", /^\S{1,500}$/),
    "Their audience (`aud`): this installation, as the proxy knows it.",
  ),
  STAFF_JWT_JWKS_URL: optional(
    kinds.address("an https URL of a key set (in development also http)", ["https:", "http:"]),
    "URL of the proxy's public keys (JWKS).",
  ),
  STAFF_JWT_SCOPES: optional(
    kinds.groupScopes(),
    "What members of their `groups` may do, or with `*` whomever the proxy lets through: " +
      "`support=staff:read+webhooks:read+webhooks:replay,leads=staff:read+audit:read`.",
  ),
  REPLAYS_RUNNING_MAX: withDefault(
    kinds.wholeNumber(1, 10_000),
    "5",
    "Bulk replays of one account that still have deliveries to start; another is refused with 409.",
  ),
  REPLAY_DELIVERIES_WAITING_MAX: withDefault(
    kinds.wholeNumber(1, 100_000_000),
    "200000",
    "Deliveries that wait in those bulk replays of one account.",
  ),
  LOG_LEVEL: withDefault(
    kinds.oneOf("trace", "debug", "info", "warn", "error", "fatal", "silent"),
    "info",
    "Minimum level of log lines.",
  ),
  ANALYSIS_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(7 * DAY_SECONDS, 90 * DAY_SECONDS),
    "604800",
    "How long an analysis stays readable, in seconds; at least 7 days.",
  ),
  LOG_RETENTION_DAYS: withDefault(
    kinds.wholeNumber(7, 3_650),
    "30",
    "How long the delivery log is kept, in days; by default at least as long as analyses.",
  ),
  AUDIT_RETENTION_DAYS: withDefault(
    kinds.wholeNumber(1, 3_650),
    "365",
    "How long the audit log is kept, in days.",
  ),
  MOVED_OBJECT_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(300, 90 * DAY_SECONDS),
    "86400",
    "How long the old object of a renamed document is kept, in seconds; longer than a backup takes.",
  ),
  IDEMPOTENCY_RETENTION_SECONDS: withDefault(
    kinds.wholeNumber(60, 30 * DAY_SECONDS),
    "86400",
    "How long an idempotency key is remembered, in seconds.",
  ),
} as const satisfies Record<string, Variable<unknown>>;

function withDefault<T>(kind: kinds.VariableKind<T>, fallback: string, meaning: string): Variable<T> {
  return { kind, fallback, meaning };
}

function optional<T>(kind: kinds.VariableKind<T>, meaning: string): Variable<T | null> {
  return { kind, fallback: null, meaning };
}

/** A row of Markdown for each variable, which docs/configuration.md has in its groups: `npm run docs`. */
export function configurationTable(): string {
  const rows = Object.entries<Variable<unknown>>(variables).map(([name, { fallback, meaning }]) => {
    const shownDefault = fallback === null ? "" : `\`${fallback}\``;
    return `| \`${name}\` | ${shownDefault} | ${meaning.replaceAll("|", "\\|")} |`;
  });
  return ["| variable | default | meaning |", "|---|---|---|", ...rows].join("\n");
}
