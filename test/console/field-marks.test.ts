import { describe, expect, test } from "vitest";
import { enter, type Hand } from "../support/console.ts";
import { openApi } from "../support/open.ts";
import { enterAsStaff } from "../support/staff.ts";

const { api } = await openApi();
const permissions = ["webhooks:read", "webhooks:replay", "audit:read"];

async function open(path: string, by?: Hand) {
  const hand = by ?? (await enter(api, { permissions }));
  return await hand.get(hand.base + path);
}

/** A form's control by its name: its tag, and the text that describes it. */
function fieldIn(text: string, name: string) {
  const [tag = ""] =
    new RegExp(`<(?:input|select)(?![^>]*type="hidden")(?=[^>]* name="${name}")[^>]*>`).exec(text) ?? [];
  const id = /aria-describedby="([^"]+)"/.exec(tag)?.[1];
  const said = id && new RegExp(`<p class="refusal" id="${id}">(.*?)</p>`).exec(text)?.[1];
  return { tag, isMarked: tag.includes('aria-invalid="true"'), said: said?.replaceAll(/<.*?>/g, "") };
}

describe("what a form's field asks for, and is refused", () => {
  test.each([
    ["/deliveries?status_code=9", "code", "9", /Must be at least 100/],
    ["/deliveries?status_code_min=nine", "code", "nine-", /Must be a number/],
    ["/deliveries?target_host=a%20b", "target_host", "a b", /./],
    ["/deliveries?analysis_id=a%3Cb", "analysis_id", "a&#60;b", /./],
    ["/deliveries?created_after=yesterday", "from", "yesterday", /time/],
    ["/audit?created_before=tomorrow", "to", "tomorrow", /time/],
    ["/replays/new?status=failed&status_code=9", "code", "9", /Must be at least 100/],
    ["/replays/new?status=failed&rate_per_second=5000", "rate_per_second", "5000", /Must be at most/],
  ])("%s: the field %s is marked, keeps what was typed, and says why", async (path, name, typed, why) => {
    const { status, text } = await open(path);
    expect([status, text.includes("data-problem")]).toEqual([400, false]);
    const { tag, isMarked, said } = fieldIn(text, name);
    expect([isMarked, said]).toEqual([true, expect.stringMatching(why)]);
    expect(tag).toContain(`value="${typed}"`);
    expect(text.match(/aria-invalid/g)).toHaveLength(1);
    expect(text).toMatch(/<title>Not /);
    // What is wrong stays wrong: nothing is asked for again under who corrects it.
    if (!path.startsWith("/replays")) expect(text).not.toContain("data-morph");
  });

  test.each([
    ["/deliveries?error_code=nonsense", "error_code", "nonsense"],
    ["/deliveries?reason=nonsense", "reason", "nonsense"],
    ["/audit?operation=nonsense%20x", "operation", "nonsense x"],
    ["/audit?actor=nonsense", "actor", "nonsense"],
  ])("%s: the choice %s is marked if it is refused, and stays", async (path, name, chosen) => {
    const { status, text } = await open(path);
    expect(fieldIn(text, name).isMarked).toBe(status === 400);
    expect(text).toContain(`<option value="${chosen}" selected>`);
  });

  test("is told of all fields at once, and of those that no field is for", async () => {
    const { text } = await open("/deliveries?status_code=9&target_host=a%20b&nonsense=1");
    expect(text.match(/aria-invalid/g)).toHaveLength(2);
    const list = /<section class="panel" role="alert">([\s\S]*?)<\/section>/.exec(text)?.[1] ?? "";
    for (const name of ["status code", "target host", "nonsense"])
      expect(list).toContain(`<strong>${name}</strong>`);
    expect(list).toContain('<a href="?">');
  });

  test("is marked for staff, too, in an account and across all", async () => {
    const staff = await enterAsStaff(api, { key: await api.newKey(null) });
    for (const [path, name] of [
      [`/a/${api.account.accountId}/deliveries?status_code=9`, "code"],
      ["/audit?created_after=yesterday", "from"],
    ] as const) {
      const { status, text } = await open(path, staff);
      expect([path, status, fieldIn(text, name).isMarked]).toEqual([path, 400, true]);
    }
  });

  test("right ones are not marked", async () => {
    for (const path of ["/deliveries?status_code=503", "/audit?actor=key", "/replays/new?status=failed"]) {
      const { status, text } = await open(path);
      expect([path, status, text.includes("aria-invalid")]).toEqual([path, 200, false]);
    }
  });
});
