import { connect } from "node:net";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { RATE_LIMIT_WITHIN_MS } from "../../src/http/limits.ts";
import { standardProblems } from "../../src/http/problem-catalogue.ts";
import {
  explainProblem,
  PROBLEM_STATUSES,
  Problem,
  RANGE_STATUS,
  TemporarilyUnavailable,
} from "../../src/http/problems.ts";
import { expectProblem } from "../support/api-expect.ts";
import { ADA, createToyApi, type ToyApi, type ToyOverrides } from "../support/api-toy-server.ts";
import { patience } from "../support/time-limits.ts";

let api: ToyApi;
afterEach(() => api.app.close());

async function start(overrides: ToyOverrides = {}): Promise<{ authorization: string }> {
  api = await createToyApi(overrides);
  return { authorization: `Bearer ${api.key}` };
}

const json = { "content-type": "application/json" };

describe("our own faults", () => {
  test("are 500, are told to the log and to nobody else", async () => {
    const auth = await start();
    api.boxes.gate = () => Promise.reject(new Error("password=hunter2"));
    const response = await fetch(`${await api.listen()}/v1/boxes`, { headers: auth });
    expect(await response.clone().text()).not.toContain("hunter2");
    await expectProblem(response, 500, "internal_error");
    expect(api.faults).toMatchObject([{ message: "password=hunter2" }]);
  });

  test("include a connection of ours that broke, though a caller's may break alike", async () => {
    const auth = await start();
    api.boxes.gate = () =>
      Promise.reject(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
    await expectProblem(
      await fetch(`${await api.listen()}/v1/boxes`, { headers: auth }),
      500,
      "internal_error",
    );
    api.faults.length = 0;

    const socket = connect(api.port(), "127.0.0.1");
    const headers = [
      "Host: x",
      `Authorization: ${auth.authorization}`,
      "Content-Type: application/json",
      "Idempotency-Key: k",
      "Content-Length: 100",
    ];
    socket.write(`POST /v1/boxes HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n{`);
    await expect.poll(() => api.counter.of("key:key-1")).toBe(2);
    socket.resetAndDestroy();
    await expect.poll(() => promisify(api.app.server.getConnections.bind(api.app.server))()).toBe(1);
    expect((await fetch(`${api.app.listeningOrigin}/healthz`)).status).toBe(200);
    expect(api.faults).toEqual([]);
  });

  test("include a code that no catalogue has", async () => {
    const auth = await start({ check: undefined });
    api.boxes.gate = () => Promise.reject(new Problem("no_such_code"));
    await expectProblem(
      await fetch(`${await api.listen()}/v1/boxes`, { headers: auth }),
      500,
      "internal_error",
    );
    expect(api.faults).toMatchObject([{ message: "No catalogue has the problem code no_such_code." }]);
  });

  test("include, while checking, what the operation does not declare", async () => {
    const auth = await start();
    api.boxes.gate = () => Promise.reject(new Problem("box_gone"));
    await expectProblem(
      await fetch(`${await api.listen()}/v1/boxes`, { headers: auth }),
      500,
      "internal_error",
    );
    expect(api.faults).toMatchObject([{ message: "Operation boxes.list does not declare box_gone." }]);

    const row = { id: "box-1", color: "green", weight: 1.5, made_at: "today", accountId: ADA };
    api.boxes.gate = async () => {};
    api.boxes.rows.set("box-1", row as never);
    await expectProblem(
      await fetch(`${api.app.listeningOrigin}/v1/boxes`, { headers: auth }),
      500,
      "internal_error",
    );
    expect(api.faults).toMatchObject([
      {},
      { message: "Operation boxes.list returned what it does not declare." },
    ]);
  });
});

describe("a database that is away", () => {
  class Away extends Error {}
  const away = async (): Promise<never> => {
    throw new Away("connect ECONNREFUSED 10.0.0.1:5432");
  };
  const translateError = (error: unknown) =>
    error instanceof Away ? new TemporarilyUnavailable("the database is away", { cause: error }) : error;

  test("makes 503 with Retry-After, whoever notices", async () => {
    const auth = await start({ translateError, findApiKey: away });
    const lookup = await fetch(`${await api.listen()}/v1/boxes`, { headers: auth });
    expect(lookup.headers.get("retry-after")).toBe("5");
    await expectProblem(lookup, 503, "temporarily_unavailable");
    await api.app.close();

    const other = await start({ translateError });
    api.boxes.gate = away;
    const read = await fetch(`${await api.listen()}/v1/boxes`, { headers: other });
    expect(read.headers.get("retry-after")).toBe("5");
    await expectProblem(read, 503, "temporarily_unavailable");
    expect(api.faults).toEqual([]);
  });

  test("and does not even refuse makes 503 within 5 s", async () => {
    const auth = await start();
    api.boxes.gate = () => new Promise(() => {});
    const url = await api.listen();
    const startMs = performance.now();
    const [read, write] = await Promise.all([
      fetch(`${url}/v1/boxes`, { headers: auth }),
      fetch(`${url}/v1/boxes`, {
        method: "POST",
        body: '{"color":"red"}',
        headers: { ...auth, ...json, "idempotency-key": "k" },
      }),
    ]);
    expect(performance.now() - startMs).toBeLessThan(patience(5_000));
    await expectProblem(read, 503, "temporarily_unavailable");
    await expectProblem(write, 503, "temporarily_unavailable");
  });

  const needingNothing = [
    ["/v1/openapi.json", 200],
    ["/reference/", 200],
    ["/errors/not_found", 200],
    ["/v1/nothing", 404],
    ["/v1/boxes/%", 400],
  ] as const;
  const hanging = (): Promise<never> => new Promise(() => {});

  /** The statuses, all asked for at once, each with the bucket that it tells of. */
  const askWhatNeedsNothing = async (headers: Record<string, string>): Promise<unknown[]> =>
    await Promise.all(
      needingNothing.map(async ([path]) => {
        const response = await fetch(`http://127.0.0.1:${api.port()}${path}`, { headers });
        return [path, response.status, response.headers.get("ratelimit")?.split(";", 1)[0]];
      }),
    );
  const answeredByAddress = needingNothing.map(([path, status]) => [path, status, '"address"']);

  test("leaves what needs none of it as it is without a key, counted by address", async () => {
    const auth = await start({ translateError, findApiKey: away });
    await api.listen();
    expect(await askWhatNeedsNothing(auth)).toEqual(answeredByAddress);
    expect(api.counter.of("address:127.0.0.1")).toBe(needingNothing.length);
    expect(api.limiterFailures).toEqual([]);
  });

  test("and does not even refuse holds up what needs none of it for one wait, not for two", async () => {
    const auth = await start({ findApiKey: hanging, countRequest: hanging });
    await api.listen();
    await askWhatNeedsNothing({});
    const startMs = performance.now();
    expect(await askWhatNeedsNothing(auth)).toEqual(answeredByAddress);
    expect(performance.now() - startMs).toBeLessThan(RATE_LIMIT_WITHIN_MS + patience(RATE_LIMIT_WITHIN_MS));
    expect(api.limiterFailures).toHaveLength(2 * needingNothing.length);
  });

  test("is told from an internal error, which stays one even where no key is needed", async () => {
    const auth = await start({
      translateError,
      findApiKey: () => Promise.reject(new Error("no such column")),
    });
    const response = await fetch(`${await api.listen()}/v1/openapi.json`, { headers: auth });
    await expectProblem(response, 500, "internal_error");
    expect(api.faults).toMatchObject([{ message: "no such column" }]);
  });
});

describe("the catalogue", () => {
  test("has a title, a sentence and a remedy for each code, and a code for each status", async () => {
    await start();
    for (const [code, kind] of Object.entries(standardProblems)) {
      expect(code).toMatch(/^[a-z_]+$/);
      expect(kind.meaning).toMatch(/\.$/);
      expect(kind.remedy).toMatch(/\.$/);
    }
    const titles = Object.entries(standardProblems).map(([code, kind]) => explainProblem(code, kind).title);
    expect(titles).toEqual([
      "Invalid request",
      "Invalid request id",
      "Idempotency key required",
      "Account required",
      "Unsafe lifecycle details",
      "Unauthorized",
      "Billing credits exhausted",
      "Access denied",
      "Not found",
      "Integration not found",
      "Method not allowed",
      "Idempotency key in progress",
      "Account moved",
      "Storage full",
      "Integration disconnect required",
      "Route retired",
      "Payload too large",
      "Zip too large",
      "Unsupported media type",
      "Range not satisfiable",
      "Idempotency key reused",
      "Rate limited",
      "Integration rate limited",
      "Internal error",
      "Integration provider error",
      "Temporarily unavailable",
      "Integration temporarily unavailable",
      "Integration timeout",
    ]);
    const statuses = new Set(Object.values(standardProblems).map(({ status }) => status));
    expect([...statuses].sort()).toEqual([...PROBLEM_STATUSES, RANGE_STATUS].sort());
  });
});
