import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { END_REASONS } from "../../src/model/end-reasons.ts";
import { EVENTS } from "../../src/model/events.ts";
import { FAILING_REASONS, NOTICE_KINDS } from "../../src/model/notices.ts";
import { OUTCOMES } from "../../src/model/outcomes.ts";
import { DELIVERY_STATUSES } from "../../src/model/statuses.ts";

const document = readFileSync(new URL("../../docs/design.md", import.meta.url), "utf8");

test.each([
  ...OUTCOMES,
  ...END_REASONS,
  ...DELIVERY_STATUSES,
  ...EVENTS,
  ...NOTICE_KINDS,
  ...FAILING_REASONS,
])("the design names %s, as the model does", (member) => {
  expect(document).toContain(`\`${member}\``);
});
