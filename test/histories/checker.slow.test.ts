// The models that histories are judged by, on histories written by hand: right ones, and what each model is for.
import { expect, it } from "vitest";
import { patience } from "../support/time-limits.ts";
import { type Answer, type Call, Checker, type Model, missingChecker, type Operation } from "./checker.ts";

/** From when to when, what was asked, what was told; null: nothing. */
type Line = readonly [from: number, to: number, asked: Call, told: Answer | null];

const ask = (value: string): Call => ({ do: "ask", value });
const answered = (value: string, replayed = true): Answer => ({ is: "done", value, replayed });
const publish = (value: string): Call => ({ do: "publish", value });
const read: Call = { do: "read" };
const done = (value = ""): Answer => ({ is: "done", value });
const page = (at: number): Call => ({ do: "read", at });
const items = (isEnd: boolean, ...ids: string[]): Answer => ({ is: "done", items: ids, isEnd });
const write = (value: string): Call => ({ do: "write", value });
const refused: Answer = { is: "refused" };
const [close, open, reopen] = ["close", "open", "reopen"].map((what): Call => ({ do: what }));
const save = (at: number, value: string): Call => ({ do: "save", at, value });
const make = (at: number): Call => ({ do: "publish", at });
const drafted = (at: number, value: string, version = 0, published = ""): Answer => {
  return { is: "done", at, value, version, published };
};
const created: Line = [0, 1, { do: "create" }, drafted(1, "first")];
const [pause, resume, send] = ["pause", "resume", "send"].map((what): Call => ({ do: what }));

const HISTORIES: Readonly<
  Record<Model, { readonly good: readonly Line[][]; readonly bad: readonly Line[][] }>
> = {
  idempotency: {
    good: [
      [
        [0, 9, ask("a"), answered("1", false)],
        [1, 3, ask("a"), answered("1")],
        [2, 8, ask("b"), { is: "reused" }],
      ],
      // What was cut off took the key, when the others had begun.
      [
        [0, 1, ask("a"), null],
        [2, 3, ask("b"), { is: "reused" }],
        [4, 5, ask("a"), answered("1")],
      ],
      [
        [0, 1, ask("a"), null],
        [2, 3, ask("b"), answered("2", false)],
      ],
    ],
    bad: [
      [
        [0, 1, ask("a"), answered("1", false)],
        [2, 3, ask("a"), answered("1", false)],
      ],
      [
        [0, 1, ask("a"), answered("1", false)],
        [2, 3, ask("a"), answered("2")],
      ],
      [
        [0, 3, ask("a"), answered("1", false)],
        [1, 2, ask("b"), answered("2", false)],
      ],
      [[0, 1, ask("a"), answered("1")]],
      [
        [0, 1, ask("b"), { is: "reused" }],
        [2, 3, ask("a"), answered("1", false)],
      ],
    ],
  },
  analysis: {
    good: [
      [
        [0, 9, publish("a"), done("d1")],
        [1, 2, read, done()],
        [3, 4, read, done("a")],
        [5, 6, publish("a"), done("d1")],
        [7, 8, publish("b"), { is: "conflict" }],
      ],
      // Committed, and never answered; another that came to nothing.
      [
        [0, 1, publish("a"), null],
        [2, 3, read, done()],
        [4, 5, read, done("a")],
        [4, 5, publish("b"), null],
      ],
    ],
    bad: [
      [
        [0, 1, publish("a"), done("d1")],
        [2, 3, read, done()],
      ],
      [
        [0, 9, publish("a"), done("d1")],
        [1, 2, read, done("a")],
        [3, 4, read, done()],
      ],
      [
        [0, 1, publish("a"), done("d1")],
        [2, 3, publish("b"), done("d1")],
      ],
      [
        [0, 1, publish("a"), done("d1")],
        [2, 3, publish("a"), done("d2")],
      ],
      [[0, 1, read, done("a")]],
    ],
  },
  draft: {
    good: [
      [
        created,
        [2, 5, save(1, "x"), drafted(2, "x")],
        [3, 6, save(1, "y"), { is: "outdated" }],
        [7, 8, make(2), drafted(2, "x", 1, "x")],
        [9, 10, make(2), { is: "same" }],
        [11, 12, { do: "get" }, drafted(2, "x", 1, "x")],
      ],
      [
        created,
        [2, 3, save(1, "x"), null],
        [4, 5, { do: "get" }, drafted(1, "first")],
        [6, 7, make(2), { is: "outdated" }],
      ],
    ],
    bad: [
      [created, [2, 5, save(1, "x"), drafted(2, "x")], [3, 6, save(1, "y"), drafted(3, "y")]],
      [created, [2, 3, save(1, "x"), { is: "outdated" }]],
      [created, [2, 3, save(1, "x"), drafted(2, "x")], [4, 5, make(1), drafted(2, "x", 1, "x")]],
      [created, [2, 3, save(1, "x"), drafted(2, "x")], [4, 5, { do: "get" }, drafted(1, "first")]],
    ],
  },
  pause: {
    good: [
      [
        [0, 4, send!, done()],
        [2, 3, pause!, done("t1")],
        [5, 6, pause!, done("t1")],
        [7, 10, resume!, done()],
        [8, 9, send!, done()],
      ],
      [
        [0, 1, pause!, done("t1")],
        [2, 3, resume!, null],
        [4, 5, read, done("t1")],
        [6, 7, send!, done()],
      ],
    ],
    bad: [
      // A slow machine's: each POST begins while all before it are under way.
      [
        ...Array.from({ length: 60 }, (_, n): Line => [n, 100 + n, send!, done()]),
        [1, 150, pause!, done("t1")],
        [2, 151, resume!, done()],
        [200, 201, read, done("t2")],
      ],
      [
        [0, 1, pause!, done("t1")],
        [2, 3, send!, done()],
        [4, 5, resume!, done()],
      ],
      [
        [0, 1, pause!, done("t1")],
        [2, 3, read, done()],
      ],
      [
        [0, 1, pause!, done("t1")],
        [2, 3, pause!, done("t2")],
      ],
    ],
  },
  feed: {
    good: [
      [
        [0, 1, publish("a"), done()],
        [0, 2, publish("b"), done()],
        [3, 4, page(0), items(true)],
        [5, 6, page(0), items(false, "b")],
        [7, 8, page(1), items(true, "a")],
        [9, 10, publish("c"), null],
        [9, 10, page(0), items(true, "b", "a")],
      ],
    ],
    bad: [
      // Acknowledged, and not in it.
      [
        [0, 1, publish("a"), done()],
        [2, 3, publish("b"), done()],
        [4, 9, page(0), items(true, "b")],
      ],
      // Two readers, two orders.
      [
        [0, 1, publish("a"), done()],
        [0, 1, publish("b"), done()],
        [2, 3, page(0), items(true, "a", "b")],
        [2, 3, page(0), items(true, "b", "a")],
      ],
      // Twice; before it was published; gone again.
      [
        [0, 1, publish("a"), done()],
        [2, 3, page(0), items(true, "a")],
        [4, 5, page(1), items(true, "a")],
      ],
      [
        [2, 3, publish("a"), done()],
        [0, 1, page(0), items(true, "a")],
      ],
      [
        [0, 1, publish("a"), done()],
        [2, 3, page(0), items(true, "a")],
        [4, 5, page(0), items(true)],
      ],
    ],
  },
  cell: {
    good: [
      [
        [0, 1, write("source"), done()],
        [2, 9, close!, done()],
        [2, 9, open!, done()],
        [3, 4, write("source"), refused],
        [3, 4, write("target"), refused],
        [5, 6, write("target"), done()],
      ],
      // Killed after it was closed, and called off; killed after it was opened, which cannot be.
      [
        [0, 1, close!, null],
        [0, 1, open!, null],
        [2, 3, write("source"), refused],
        [4, 5, reopen!, done()],
        [6, 7, write("source"), done()],
        [8, 9, close!, null],
        [8, 9, open!, null],
        [10, 11, reopen!, refused],
        [12, 13, write("target"), done()],
        [14, 15, close!, done()],
        [14, 15, open!, done()],
      ],
    ],
    bad: [
      [
        [0, 9, close!, done()],
        [0, 9, open!, done()],
        [1, 2, write("target"), done()],
        [3, 4, write("source"), done()],
      ],
      [
        [0, 9, close!, done()],
        [0, 9, open!, done()],
        [1, 2, write("source"), refused],
        [3, 4, write("source"), done()],
      ],
      [
        [0, 1, close!, null],
        [0, 1, open!, null],
        [2, 3, write("target"), done()],
        [4, 5, reopen!, done()],
      ],
      [[0, 1, write("target"), done()]],
    ],
  },
};

const reason = missingChecker();

it("the models accept what is right, and refuse what they are for", { timeout: patience(60_000) }, async ({
  skip,
}) => {
  skip(reason !== null, `no checker of histories: ${reason}`);
  const checker = new Checker();
  const expected: string[] = [];
  for (const [model, { good, bad }] of Object.entries(HISTORIES)) {
    for (const [n, lines] of [...good, ...bad].entries()) {
      const name = `${model} ${n}`;
      if (n >= good.length) expected.push(name);
      const operations = lines.map(([from, to, asked, told], client): Operation => {
        return { client, call: from, return: to, in: asked, out: told };
      });
      checker.judge({ model: model as Model, name, operations });
    }
  }
  const refusals = await checker.end();
  expect(refusals.map(({ name }) => name).sort()).toEqual(expected.sort());
  expect(refusals.every(({ verdict }) => verdict === "Illegal")).toBe(true);
});
