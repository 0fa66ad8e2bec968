import { beforeEach, expect, it } from "vitest";
import {
  ACCOUNTS_MAX,
  BELIEVED_MS,
  createLongLogs,
  type LongLogs,
} from "../../src/log/delivery-pages-sql.ts";

let nowMs: number;
let logs: LongLogs;
beforeEach(() => {
  nowMs = 1_000;
  logs = createLongLogs(() => nowMs);
  logs.remember("a", "delivery-of-a");
});

it("are known until they are forgotten", () => {
  expect([logs.find("a"), logs.find("b")]).toEqual(["delivery-of-a", null]);
  logs.forget("a");
  expect(logs.find("a")).toBeNull();
});

it("are believed for ten minutes", () => {
  nowMs += BELIEVED_MS;
  expect(logs.find("a")).toBe("delivery-of-a");
  nowMs += 1;
  expect(logs.find("a")).toBeNull();
  logs.remember("a", "another");
  nowMs += BELIEVED_MS;
  expect(logs.find("a")).toBe("another");
});

it("are so many at most, and one that is known takes no place of another's", () => {
  for (let n = 1; n < ACCOUNTS_MAX; n++) logs.remember(`account-${n}`, "one");
  logs.remember("a", "another");
  expect([logs.find("a"), logs.find("account-1")]).toEqual(["another", "one"]);
  logs.remember("one too many", "new");
  expect([logs.find("a"), logs.find("one too many")]).toEqual([null, "new"]);
});
