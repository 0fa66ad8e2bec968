import { expect, test } from "vitest";
import { z } from "zod";
import { invalidRequestFrom } from "../../src/http/request-validation.ts";

test.each([
  ["a field that is not there", z.string(), undefined, "Missing."],
  ["an id", z.guid(), "12", /^Must be a UUID, such as [0-9a-f-]{36}\.$/],
  ["a time", z.iso.datetime(), "yesterday", /^Must be a time in ISO 8601, such as \d{4}-.*Z\.$/],
  ["a pattern", z.string().regex(/^a+$/), "b", "Has characters or a length that are not allowed."],
  ["a pattern that says what it is", z.string().regex(/^a+$/, "Only a."), "b", "Only a."],
  ["another format", z.email(), "b", "Must be in the format email."],
  ["a short text", z.string().min(2), "b", "Must have at least 2 characters."],
  ["a long list", z.array(z.int()).max(1), [1, 2], "Must have at most 1 items."],
  ["a part of a number", z.int(), 1.5, "Must be a whole number."],
  ["a large whole number", z.int(), 1e300, "Must be at most 9007199254740991."],
  ["a list where one value is wanted", z.enum(["red", "blue"]), ["red"], "Must be one of red, blue."],
  ["a small number", z.number().min(1), 0, "Must be at least 1."],
  ["one of several", z.enum(["red", "blue"]), "green", "Must be one of red, blue."],
  ["one value", z.literal(true), false, "Must be true."],
  ["a rule of our own", z.string().refine(() => false, "Ours."), "b", "Ours."],
])("%s: it is said what is right", (_what, schema, value, message) => {
  const { error } = z.object({ field: schema }).safeParse({ field: value });
  const [mistake] = invalidRequestFrom("body", error!).errors ?? [];
  expect(mistake).toEqual({
    path: "body.field",
    message: typeof message === "string" ? message : expect.stringMatching(message),
  });
});

test.each([
  [z.int().max(100), 1e300, "Must be at most 100."],
  [z.number().max(100).int(), 1e300, "Must be at most 100."],
  [z.int().min(1), -1e300, "Must be at least 1."],
])("past two bounds, the nearer one is told (%#)", (schema, value, message) => {
  const { error } = z.object({ near: schema, far: z.int() }).safeParse({ near: value, far: value });
  const [near, far, ...others] = invalidRequestFrom("body", error!).errors;
  expect(near).toEqual({ path: "body.near", message });
  expect(far).toMatchObject({ path: "body.far", message: expect.stringContaining("9007199254740991") });
  expect(others).toEqual([]);
});
