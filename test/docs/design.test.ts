import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { EVENTS } from "../../src/base/model/events.ts";
import { FAILING_REASONS, NOTICE_KINDS } from "../../src/base/model/notices.ts";
import { DELIVERY_STATUSES, END_REASONS, OUTCOMES } from "../../src/base/model/statuses.ts";

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
