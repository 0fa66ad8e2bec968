import { describe, expect, test } from "vitest";
import { judgeMailAddress, maskMailAddress } from "../../../src/base/model/formats.ts";

describe("an address", () => {
  test.each([
    ["ada@example.com", "ada@example.com"],
    ["Ada.Lovelace+webhooks@Mail.Example.COM", "Ada.Lovelace+webhooks@mail.example.com"],
    ["o'brien@xn--mnchen-3ya.example", "o'brien@xn--mnchen-3ya.example"],
    [`${"a".repeat(64)}@example.com`, `${"a".repeat(64)}@example.com`],
  ])("%s is taken", (text, address) => {
    expect(judgeMailAddress(text)).toEqual({ isAllowed: true, address });
  });

  test.each([
    ["ada@example.com\r\nBcc: eve@example.com", "line breaks"],
    ["ada\n@example.com", "line breaks"],
    ["ada@example.com\0", "control characters"],
    ["ada@example.com\u0085", "control characters"],
    ["ada@exämple.com", "ASCII"],
    ["ада@example.com", "ASCII"],
    ["ada\u202e@example.com", "ASCII"],
    ["ada@example.com\u2028Bcc: eve@example.com", "ASCII"],
    ["", "Not an e-mail address"],
    ["@example.com", "Not an e-mail address"],
    ["ada", "Not an e-mail address"],
    [`${"a".repeat(65)}@example.com`, "64"],
    [`ada@${"a.".repeat(126)}example.com`, "254"],
    ["Ada <ada@example.com>", "before the @"],
    ["<ada@example.com", "before the @"],
    ['"ada lovelace"@example.com', "before the @"],
    ["ada,eve@example.com", "before the @"],
    ["eve@example.com,ada@example.com", "before the @"],
    [".ada@example.com", "before the @"],
    ["ada..l@example.com", "before the @"],
    ["ada(comment)@example.com", "before the @"],
    ["-oQ/tmp@example.com", "before the @"],
    ["|cat@example.com", "before the @"],
    ["ada%inside@example.com", "before the @"],
    ["inside!ada@example.com", "before the @"],
    ["ada@localhost", "domain name"],
    ["ada@127.0.0.1", "domain name"],
    ["ada@[127.0.0.1]", "domain name"],
    ["ada@example.com.", "domain name"],
    ["ada@-example.com", "domain name"],
    ["ada@example.com>", "domain name"],
    ["ada@example.com SIZE=1", "domain name"],
  ])("%j is refused", (text, said) => {
    const judged = judgeMailAddress(text);
    expect(judged).toMatchObject({ isAllowed: false });
    expect(judged.isAllowed ? "" : judged.message).toContain(said);
  });
});

test.each([
  ["ada@example.com", "a***@example.com"],
  ["a@example.com", "a***@example.com"],
  ["ada.lovelace+webhooks@mail.example.com", "a***@mail.example.com"],
])("of %s the log shows %s", (address, masked) => {
  expect(maskMailAddress(address)).toBe(masked);
});
