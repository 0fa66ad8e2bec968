import type { FastifyInstance } from "fastify";
import type { FindOrigin } from "../base/model/events.ts";
import type { Kernel } from "../http/kernel.ts";
import type { Assets } from "./assets.ts";
import type { Framers } from "./embedding.ts";
import type { Installation } from "./screen.ts";
import type { ReadAssertion, SessionStore } from "./site.ts";

export type ConsoleOptions = Installation & {
  readonly sessions: SessionStore;
  /** Origins that may show an account's console in a frame. */
  readonly ancestors: readonly string[];
  /** For the links of those; see framerTag. */
  readonly secretsKey: Uint8Array;
  /** Of support staff, by a proxy in front; null: there is none. */
  readonly readAssertion: ReadAssertion | null;
  readonly findOrigin: FindOrigin;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
};

/** What routes of the console are added with. */
export type ConsoleContext = {
  readonly pages: FastifyInstance;
  readonly kernel: Kernel;
  readonly options: ConsoleOptions;
  readonly assets: Assets;
  readonly framers: Framers;
};
