// A thread for one text at a time: see rendering.ts.
import { parentPort } from "node:worker_threads";
import { renderMarkdown } from "./markdown-html.ts";

parentPort?.on("message", (markdown: string) => parentPort?.postMessage(renderMarkdown(markdown)));
parentPort?.postMessage("loaded");
