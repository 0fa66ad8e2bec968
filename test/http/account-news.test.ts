import { describe, expect, it } from "vitest";
import { sharerOf } from "../../src/base/model/account-places.ts";
import { AccountNews } from "../../src/http/account-news.ts";

const LONG_MS = 1_000_000;

describe("watching", () => {
  it("tells of what was told since the last time, once", async () => {
    const news = new AccountNews(4, () => undefined);
    const watch = news.watch("a")!;
    news.tell(["a", "a", "b"]);
    expect(await watch.news(LONG_MS)).toBe(true);
    expect(await watch.news(0)).toBe(false);
    const waiting = watch.news(LONG_MS);
    news.tellAll();
    expect(await waiting).toBe(true);
  });

  it("is for as many as there is room, and leaves half of it to other accounts", () => {
    const counts: number[] = [];
    const news = new AccountNews(8, (count) => counts.push(count));
    const own = Array.from({ length: 8 }, () => news.watch("a")).filter((watch) => watch !== null);
    expect(own).toHaveLength(4);
    const others = ["b", "c", "d", "e", "f"].map((account) => news.watch(account));
    expect(others.filter((watch) => watch !== null)).toHaveLength(4);
    expect(counts.at(-1)).toBe(8);
    own[0]!.end();
    own[0]!.end();
    expect(counts.at(-1)).toBe(7);
    expect(news.watch("g")).not.toBeNull();
  });

  it("leaves the account, and its other users, what one of them does not get", () => {
    const news = new AccountNews(16, () => undefined);
    const watches = (userId: string | null) =>
      Array.from({ length: 16 }, () => news.watch("a", sharerOf("a", { userId }))).filter(
        (watch) => watch !== null,
      );
    expect(["one", "other", null].map((userId) => watches(userId).length)).toEqual([4, 2, 2]);
  });

  it("ends with the watch, and with all of them when it is closed", async () => {
    const news = new AccountNews(8, () => undefined);
    const ended = news.watch("a")!;
    const waiting = ended.news(LONG_MS);
    ended.end();
    expect(await waiting).toBe(false);
    const open = news.watch("a")!;
    const still = open.news(LONG_MS);
    news.close();
    expect(await still).toBe(false);
    expect(await open.news(LONG_MS)).toBe(false);
    expect(news.watch("b")).toBeNull();
  });
});
