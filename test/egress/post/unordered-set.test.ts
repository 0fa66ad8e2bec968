import { expect, test } from "vitest";
import { UnorderedSet } from "../../../src/egress/post/post.ts";

const member = (name: string) => ({ name, place: -1 });

test("has what was added and not deleted, whatever the order", () => {
  const [a, b, c, d] = ["a", "b", "c", "d"].map(member) as [Item, Item, Item, Item];
  const set = new UnorderedSet<Item>();
  for (const item of [a, b, c, d]) set.add(item);
  set.delete(b);
  expect(names(set)).toEqual(["a", "c", "d"]);
  set.delete(d);
  set.delete(a);
  expect(names(set)).toEqual(["c"]);
  set.add(b);
  expect(names(set)).toEqual(["b", "c"]);
  set.delete(c);
  set.delete(b);
  expect(set.size).toBe(0);
});

test("deleting what is no member, or none any more, changes nothing", () => {
  const [a, b, stranger] = ["a", "b", "stranger"].map(member) as [Item, Item, Item];
  const set = new UnorderedSet<Item>();
  set.delete(stranger);
  set.add(a);
  set.add(b);
  set.delete(a);
  set.delete(a);
  set.delete(stranger);
  expect(names(set)).toEqual(["b"]);
});

test("members may leave while all are gone through", () => {
  const set = new UnorderedSet<Item>();
  const items = Array.from({ length: 50 }, (_, index) => member(String(index)));
  for (const item of items) set.add(item);
  for (const item of set.all()) set.delete(item);
  expect(set.size).toBe(0);
});

type Item = ReturnType<typeof member>;

function names(set: UnorderedSet<Item>): string[] {
  return set
    .all()
    .map((item) => item.name)
    .sort();
}
