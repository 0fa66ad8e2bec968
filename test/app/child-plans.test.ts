import { expect, test } from "vitest";
import type { ProcessContext } from "../../src/app/process-context.ts";
import { servicePlans } from "../../src/app/supervisor.ts";
import { readConfig } from "../../src/base/config/config.ts";

const URL = "postgres://a@db.internal/b";

test("what `start` runs is told of the database once, however `start` was", () => {
  const context = { env: { DATABASE_URL_FILE: "/run/secrets/url" } } as unknown as ProcessContext;
  const plans = servicePlans(context, readConfig({}), URL);
  expect(plans.map(({ env }) => readConfig(env).databaseUrl)).toEqual([URL, URL]);
});
