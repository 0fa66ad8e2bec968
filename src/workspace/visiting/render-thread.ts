// The thread of one text: see rendering.ts.
import { parentPort } from "node:worker_threads";
import { renderMarkdown } from "./markdown-html.ts";

parentPort?.once("message", (markdown: string) => parentPort?.postMessage(renderMarkdown(markdown)));
parentPort?.postMessage("loaded");
