import { describe, expect, test } from "vitest";
import { userOf } from "../../src/http/perform.ts";
import { type FieldError, Problem } from "../../src/http/problems.ts";
import {
  allows,
  SPACE_ROLES,
  type SpacePermission,
  type SpaceRole,
} from "../../src/workspace/model/roles.ts";
import { draftIsAt, requirePermission } from "../../src/workspace/operations/workspace-operation.ts";

/** As the API's description of roles says it, one row for each permission. */
const ALLOWED: Readonly<Record<SpacePermission, readonly SpaceRole[]>> = {
  read: ["ADMIN", "EDITOR", "VIEWER"],
  download: ["ADMIN", "EDITOR", "VIEWER"],
  upload: ["ADMIN", "EDITOR"],
  rename: ["ADMIN", "EDITOR"],
  edit_pages: ["ADMIN", "EDITOR"],
  edit_workflows: ["ADMIN", "EDITOR"],
  run_workflows: ["ADMIN", "EDITOR"],
  publish_workflows: ["ADMIN", "EDITOR"],
  archive_workflows: ["ADMIN", "EDITOR"],
  delete: ["ADMIN"],
  manage_members: ["ADMIN"],
};
const cells = (Object.keys(ALLOWED) as SpacePermission[]).flatMap((permission) =>
  SPACE_ROLES.map((role) => ({ role, permission, isAllowed: ALLOWED[permission].includes(role) })),
);
const request = {
  problem: (code: string, errors: readonly FieldError[] = []) => new Problem(code, { errors }),
};

describe("in a space", () => {
  test.each(cells)("$role may $permission: $isAllowed", async ({ role, permission, isAllowed }) => {
    expect(allows(role, permission)).toBe(isAllowed);
    const found = { role };
    const required = requirePermission(request, permission, Promise.resolve(found));
    if (isAllowed) return expect(await required).toBe(found);
    const message = `Its user's role in the space, ${role}, is not enough.`;
    const errors = [{ path: "header.authorization", message }];
    await expect(required).rejects.toThrow(expect.objectContaining({ code: "access_denied", errors }));
  });

  test("who is no member is not told that there is one", async () => {
    for (const { permission } of cells) {
      const required = requirePermission(request, permission, Promise.resolve(null));
      await expect(required).rejects.toThrow(expect.objectContaining({ code: "not_found" }));
    }
  });
});

test("nobody acts for a user that was not asked for", () => {
  expect(userOf("a", { userId: "u" })).toEqual({ accountId: "a", userId: "u" });
  expect(() => userOf("a", { userId: null })).toThrow("needsUser");
});

test("whoever saves over another revision is told which there is", () => {
  expect(draftIsAt(7)).toEqual([{ path: "body.revision", message: "The draft is at revision 7." }]);
});
