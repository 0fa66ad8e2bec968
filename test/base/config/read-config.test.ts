import { describe, expect, expectTypeOf, test } from "vitest";
import { type Config, plainSettings, readConfig } from "../../../src/base/config/config.ts";
import { removedVariables, variables } from "../../../src/base/config/variables.ts";
import { problemsOf } from "./problems.ts";

const secretsKey = Buffer.alloc(32, 7).toString("base64");

describe("an empty environment", () => {
  test("gives the documented defaults", () => {
    expect(readConfig({})).toMatchObject({
      databaseUrl: null,
      port: 8080,
      metricsPort: 9464,
      environment: "development",
      apiKeyBrand: ["svc"],
      secretsKey: null,
      retryWindowSeconds: 86_400,
      attemptDeadlineMs: 15_000,
      analysisBytesMax: 1_048_576,
      accountStorageBytesMax: 19_327_352_832,
      dispatchInFlightMax: 1_000,
      rateLimitRequests: 600,
      publishRatePerSecond: 2_000,
      trustProxy: false,
      analysisRetentionSeconds: 604_800,
      logRetentionDays: 30,
      movedObjectRetentionSeconds: 86_400,
      databaseConnectionsMax: 12,
      unsafeAllowedTargets: null,
    });
  });

  test("is frozen, lists included", () => {
    const config = readConfig({ TARGET_DNS_SERVERS: "10.0.0.2" });
    expect(Object.isFrozen(config)).toBe(true);
    expect(Object.isFrozen(config.targetDnsServers)).toBe(true);
  });

  test("counts an empty variable as unset", () => {
    expect(readConfig({ PORT: "", DATABASE_URL: "" })).toMatchObject({ port: 8080, databaseUrl: null });
  });

  test("is typed field by field", () => {
    expectTypeOf<Config["attemptDeadlineMs"]>().toEqualTypeOf<number>();
    expectTypeOf<Config["databaseUrl"]>().toEqualTypeOf<string | null>();
    expectTypeOf<Config["environment"]>().toEqualTypeOf<"development" | "production">();
    expectTypeOf<Config["trustProxy"]>().toEqualTypeOf<false | number | readonly string[]>();
  });
});

describe("a problem", () => {
  test("is reported with the variable, what was found and what is expected", () => {
    expect(problemsOf({ DATABASE_CONNECTIONS_MAX: "4" })).toEqual([
      'DATABASE_CONNECTIONS_MAX is "4" but must be a whole number from 5 to 200.',
    ]);
  });

  test("is reported together with all others, conflicts included", () => {
    const problems = problemsOf({
      PORT: "http",
      RETRY_WINDOW_SECONDS: "0",
      ENVIRONMENT: "production",
      UNSAFE_ALLOWED_TARGETS: "localhost:8443",
      ANALYSIS_RETENTION_SECONDS: "2592001",
      LOG_RETENTION_DAYS: "30",
    });
    expect(problems.map((problem) => problem.split(" ")[0])).toEqual([
      "PORT",
      "RETRY_WINDOW_SECONDS",
      "SECRETS_KEY",
      "UNSAFE_ALLOWED_TARGETS",
      "LOG_RETENTION_DAYS",
    ]);
  });

  test.each(["DATABASE_URL", "SECRETS_KEY", "EGRESS_PROXY_URL", "SMTP_URL", "OBJECT_STORE_URL"])(
    "in %s does not show the value",
    (name) => {
      const [problem, ...others] = problemsOf({ [name]: "hunter2" });
      expect(others).toEqual([]);
      expect(problem).toContain(name);
      expect(problem).not.toContain("hunter2");
    },
  );

  test("shows only the beginning of a long value", () => {
    expect(problemsOf({ LOG_LEVEL: "x".repeat(1_000) })[0]?.length).toBeLessThan(200);
  });
});

describe.each([
  ["PORT", ["0", "65535"], ["-1", "65536", "80.5", "0x50", "1e3", " 80", "٣"]],
  ["DATABASE_CONNECTIONS_MAX", ["5", "200"], ["4", "201"]],
  ["ANALYSIS_RETENTION_SECONDS", ["604800"], ["604799"]],
  ["MOVED_OBJECT_RETENTION_SECONDS", ["300"], ["299"]],
  ["API_KEY_BRAND", ["svc", "a1", "c2,svc"], ["1a", "Svc", "a_b", "a".repeat(17), "svc,", "svc;c2"]],
  ["DATABASE_URL", ["postgres://a@b/c", "postgresql://localhost/db?host=%2Fsock"], ["mysql://a@b/c", "db"]],
  ["PUBLIC_URL", ["https://api.example.com", "http://localhost:8080/"], ["ftp://a", "https://a/?b", "a"]],
  [
    "PAGES_URL",
    ["https://pages.example.com", "http://localhost:8080"],
    ["pages.example.com", "https://pages.example.com/", "https://a.example/b", "ftp://a"],
  ],
  ["TARGET_DNS_SERVERS", ["10.0.0.2", "10.0.0.2:53, ::1,[::1]:53"], ["dns.example.com", "10.0.0.2:0", ","]],
  ["OWN_ADDRESSES", ["198.51.100.7, 2001:db8::/64"], ["198.51.100.0/33", "localhost"]],
  [
    "UNSAFE_ALLOWED_TARGETS",
    ["localhost:8443", " *.localhost:8443 ,127.0.0.1:1, [::1]:65535"],
    ["localhost", "*:443", "https://localhost:8443", "localhost:65536", "localhost:0", "a b:1", "a:1,", ","],
  ],
  [
    "TRUST_PROXY",
    ["false", "1", "10", "10.0.0.0/8, fd00::/8", "127.0.0.1"],
    ["true", "0", "11", "10.0.0.0/33", "proxy"],
  ],
  ["LOG_LEVEL", ["silent", "info"], ["INFO", "verbose"]],
  ["LOG_FORMAT", ["json", "pretty"], ["JSON", "text"]],
  ["OTEL_EXPORTER_OTLP_ENDPOINT", ["http://localhost:4318", "https://x.example/otlp/"], ["localhost:4318"]],
  ["OTEL_EXPORTER_OTLP_HEADERS", ["a=b", "authorization=Bearer%20x,b=c"], ["authorization", "=x", "a=b,c"]],
  ["OTEL_TRACES_SAMPLER_ARG", ["0", "0.05", "1", "1.0"], ["1.1", "-1", "5%", ".5"]],
  ["SECRETS_KEY", [secretsKey], [Buffer.alloc(31).toString("base64"), Buffer.alloc(33).toString("base64")]],
])("%s", (name, good, bad) => {
  test.each(good)("takes %j", (value) => {
    expect(problemsOf({ [name]: value })).toEqual([]);
  });

  test.each(bad)("refuses %j", (value) => {
    expect(problemsOf({ [name]: value })).toHaveLength(1);
  });
});

describe("production", () => {
  test("starts with a key for its secrets", () => {
    const config = readConfig({ ENVIRONMENT: "production", SECRETS_KEY: secretsKey });
    expect(config.secretsKey?.export().toString("base64")).toBe(secretsKey);
  });

  test("does not start without one", () => {
    expect(problemsOf({ ENVIRONMENT: "production" })).toEqual([
      "SECRETS_KEY is unset but required when ENVIRONMENT is production: " +
        "generate one with `openssl rand -base64 32`.",
    ]);
  });

  test("does not start with targets that are allowed unsafely", () => {
    const env = { SECRETS_KEY: secretsKey, UNSAFE_ALLOWED_TARGETS: "localhost:8443" };
    expect(problemsOf({ ...env, ENVIRONMENT: "development" })).toEqual([]);
    expect(problemsOf({ ...env, ENVIRONMENT: "production" })).toHaveLength(1);
  });
});

describe("PAGES_URL is of another host than the console", () => {
  test.each([
    { PAGES_URL: "http://127.0.0.1:9090" },
    { PAGES_URL: "https://api.example.com:8443", PUBLIC_URL: "https://API.example.com/service" },
  ])("as %j is not", (env) => {
    const [problem = "", ...others] = problemsOf(env);
    expect(others).toEqual([]);
    expect(problem).toContain("must have a different one");
    expect(problem).toContain("PUBLIC_URL" in env ? "PUBLIC_URL" : "HOST");
  });

  test.each([
    { PAGES_URL: "http://localhost:8080" },
    { PAGES_URL: "https://pages.example.com", PUBLIC_URL: "https://api.example.com" },
  ])("as %j is", (env) => {
    expect(problemsOf(env)).toEqual([]);
  });

  test("and in production has TLS", () => {
    const env = { ENVIRONMENT: "production", SECRETS_KEY: secretsKey };
    expect(problemsOf({ ...env, PAGES_URL: "http://pages.example.com" })).toEqual([
      "PAGES_URL must be an https URL when ENVIRONMENT is production.",
    ]);
    expect(problemsOf({ ...env, PAGES_URL: "https://pages.example.com" })).toEqual([]);
  });
});

test("the delivery log reaches back at least as far as analyses are kept", () => {
  expect(problemsOf({ LOG_RETENTION_DAYS: "7" })).toEqual([]);
  expect(problemsOf({ LOG_RETENTION_DAYS: "7", ANALYSIS_RETENTION_SECONDS: "604801" })).toHaveLength(1);
});

describe("mails", () => {
  const mail = {
    SMTP_URL: "smtp://ada:p%40ss@mail.example.com:587",
    NOTICES_FROM: "Sealpost <notices@example.com>",
    PUBLIC_URL: "https://api.example.com",
  };

  test("need a sender, and where their links lead", () => {
    expect(problemsOf(mail)).toEqual([]);
    expect(problemsOf({ ...mail, NOTICES_FROM: "" })).toEqual([
      "NOTICES_FROM is unset but required when SMTP_URL is set.",
    ]);
    expect(problemsOf({ ...mail, PUBLIC_URL: "" })).toHaveLength(1);
    expect(problemsOf({ NOTICES_FROM: mail.NOTICES_FROM })).toEqual([]);
  });

  test.each(["smtp://mail.example.com", "smtps://mail.example.com:465/", "smtp://[::1]:25"])(
    "go by %j",
    (SMTP_URL) => {
      expect(problemsOf({ ...mail, SMTP_URL })).toEqual([]);
    },
  );

  test.each([
    "mail.example.com:587",
    "http://mail.example.com",
    "smtp://",
    "smtp://mail.example.com/path",
    "smtp://mail.example.com?tls.rejectUnauthorized=false",
    "smtp://a:%zz@mail.example.com",
  ])("do not go by %j", (SMTP_URL) => {
    expect(problemsOf({ ...mail, SMTP_URL })).toHaveLength(1);
  });

  test.each(["notices@example.com", "Müller & Söhne <notices@example.com>"])(
    "come from %j",
    (NOTICES_FROM) => {
      expect(problemsOf({ ...mail, NOTICES_FROM })).toEqual([]);
    },
  );

  test.each([
    "notices",
    "<notices@example.com>",
    "a@example.com, b@example.com",
    '"A, B" <a@example.com>',
    "Eve <a@example.com>\r\nBcc: b@example.com",
    "A\nB <a@example.com>",
  ])("do not come from %j", (NOTICES_FROM) => {
    expect(problemsOf({ ...mail, NOTICES_FROM })).toHaveLength(1);
  });
});

describe("the object store", () => {
  const keys = { AWS_ACCESS_KEY_ID: "AKIAEXAMPLE", AWS_SECRET_ACCESS_KEY: "planted-secret" };

  test("is a bucket of Amazon's or of another server", () => {
    const amazon = readConfig({
      ...keys,
      OBJECT_STORE_URL: "s3://documents.example.com?region=eu-central-1",
    });
    expect(amazon.objectStoreUrl).toEqual({
      bucket: "documents.example.com",
      endpoint: null,
      region: "eu-central-1",
      isPathStyle: false,
    });
    const url = "s3://documents?endpoint=http://127.0.0.1:7070&path_style=true";
    expect(readConfig({ ...keys, OBJECT_STORE_URL: url }).objectStoreUrl).toEqual({
      bucket: "documents",
      endpoint: "http://127.0.0.1:7070",
      region: "us-east-1",
      isPathStyle: true,
    });
  });

  test.each([
    "documents",
    "s3://",
    "s3://Documents",
    "s3://my_documents",
    "s3://documents/prefix",
    "s3://documents:9000",
    "s3://AKIAEXAMPLE:planted-secret@documents",
    "s3://documents?access_key=planted-secret",
    "s3://documents?region=eu-central-1&region=us-east-1",
    "s3://documents?region=eu%20central",
    "s3://documents?path_style=yes",
    "s3://documents?endpoint=s3.example.com",
    "s3://documents?endpoint=ftp://s3.example.com",
    "s3://documents?endpoint=https://user:planted-secret@s3.example.com",
    "s3://documents?endpoint=https://s3.example.com/path",
    "s3://documents#fragment",
    "https://documents.s3.amazonaws.com",
  ])("is not %j, which is not repeated", (OBJECT_STORE_URL) => {
    const [problem = "", ...others] = problemsOf({ ...keys, OBJECT_STORE_URL });
    expect(others).toEqual([]);
    expect(problem).toMatch(/^OBJECT_STORE_URL has a value that is not shown here but must be s3:/);
    expect(problem).not.toContain("planted-secret");
  });

  test("needs its keys, and TLS in production", () => {
    expect(problemsOf({ OBJECT_STORE_URL: "s3://documents" })).toEqual([
      "AWS_ACCESS_KEY_ID is unset but required when OBJECT_STORE_URL is set.",
      "AWS_SECRET_ACCESS_KEY is unset but required when OBJECT_STORE_URL is set.",
    ]);
    const OBJECT_STORE_URL = "s3://documents?endpoint=http://127.0.0.1:7070";
    expect(problemsOf({ ...keys, OBJECT_STORE_URL })).toEqual([]);
    const production = { ...keys, OBJECT_STORE_URL, ENVIRONMENT: "production", SECRETS_KEY: secretsKey };
    expect(problemsOf(production)).toEqual([
      "OBJECT_STORE_URL's endpoint must be an https URL when ENVIRONMENT is production.",
    ]);
  });
});

test("defaults follow what they must fit, and what is set does not", () => {
  expect(readConfig({ ANALYSIS_RETENTION_SECONDS: `${30 * 86_400}` }).logRetentionDays).toBe(30);
  expect(readConfig({ ANALYSIS_RETENTION_SECONDS: `${30 * 86_400 + 1}` }).logRetentionDays).toBe(31);
});

test.each(Object.entries(removedVariables))(
  "%s, which 1.0.0 read, is refused with what holds now",
  (name, now) => {
    expect(problemsOf({ [name]: "7" })).toEqual([`${name} is set but is no longer read: ${now}. Unset it.`]);
    expect(problemsOf({ [name]: "" })).toEqual([]);
    expect(Object.keys(variables)).not.toContain(name);
  },
);

describe("STAFF_JWT", () => {
  const whole = {
    header: "x-goog-iap-jwt-assertion",
    issuer: "https://cloud.google.com/iap",
    audience: "/projects/1",
    jwks_url: "https://www.gstatic.com/iap/verify/public_key-jwk",
    scopes: { support: ["staff:read", "webhooks:read"], "*": ["staff:read"] },
  };
  const problems = (changed: object) => problemsOf({ STAFF_JWT: JSON.stringify({ ...whole, ...changed }) });

  test("is one object with all that an assertion is checked by", () => {
    expect(readConfig({ STAFF_JWT: JSON.stringify(whole) }).staffJwt).toEqual(whole);
  });

  test.each(Object.keys(whole))("needs its %s", (name) => {
    expect(problems({ [name]: undefined })).toHaveLength(1);
  });

  test.each([
    { header: "x header" },
    { issuer: "a b" },
    { audience: "" },
    { jwks_url: "ftp://keys.example.com" },
    { scopes: { support: ["everything"] } },
    { scopes: { support: [] } },
    { scopes: { "": ["staff:read"] } },
    { scopes: "support=staff:read" },
    { more: 1 },
  ])("takes no %j", (changed) => {
    expect(problems(changed)).toHaveLength(1);
  });

  test("must be JSON, with an https URL in production", () => {
    expect(problemsOf({ STAFF_JWT: "{" })).toHaveLength(1);
    const jwks_url = "http://127.0.0.1/keys";
    expect(problems({ jwks_url })).toEqual([]);
    const production = { ENVIRONMENT: "production", SECRETS_KEY: secretsKey };
    const STAFF_JWT = JSON.stringify({ ...whole, jwks_url });
    expect(problemsOf({ ...production, STAFF_JWT })).toEqual([
      "STAFF_JWT's jwks_url must be an https URL when ENVIRONMENT is production.",
    ]);
  });
});

test("plain settings are those that are set and not secret", () => {
  const env = {
    PORT: "9000",
    LOG_LEVEL: "",
    DATABASE_URL: "postgres://a@b/c",
    SECRETS_KEY: secretsKey,
    HOME: "/",
  };
  expect(plainSettings(env)).toEqual({ PORT: "9000" });
});

test("the key for secrets prints without its content", () => {
  const config = readConfig({ SECRETS_KEY: secretsKey });
  expect(JSON.stringify(config)).not.toContain(secretsKey.slice(0, 8));
});
