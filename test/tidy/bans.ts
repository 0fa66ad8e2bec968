import { type Rule, withoutComments, withoutTexts } from "./source-files.ts";

type Ban = {
  readonly name: string;
  readonly pattern: RegExp;
  /** Files that the ban is for, and those among them that are free of it. */
  readonly where: RegExp;
  readonly but?: RegExp;
  readonly instead: string;
  /** What of a file is looked at: everything, all but comments (if absent), or neither comments nor "texts". */
  readonly looksAt?: "everything" | "code";
};

const sqlStart =
  "select|insert\\s+into|update\\s+[\\w.]+\\s+set|delete\\s+from|with\\s+\\w+\\s+as|create\\s+\\w+|" +
  "alter\\s+\\w+|drop\\s+\\w+|truncate|begin|commit|rollback|listen\\s+\\w+|notify\\s+\\w+|set\\s+(?:local|session)";

// Written in pieces, so that this file does not breach its own rules.
const laterWords = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"].join("|");
const machineFolders = ["home", "root", "Users", "work"].join("|");

// Not the documents beside it, which show receivers' code.
const ourCode = /^src\/.+\.(?:ts|mjs)$/;
// The launcher names a folder to the processes that it starts.
const effectsAllowed = /^src\/(?:main\.ts|sealpost\.mjs|base\/config\/)/;
// The receiver library reads the clock in this one file, for receivers that pass no time of their own.
const clockAllowed = /^src\/(?:main\.ts|base\/config\/|signing\/system-clock\.ts)/;

const bans: readonly Ban[] = [
  {
    name: "environment",
    pattern: /\bprocess\.env\b/,
    where: ourCode,
    but: effectsAllowed,
    instead: "take a field of Config as an argument",
    looksAt: "code",
  },
  {
    name: "clock",
    pattern: /\bDate\.now\b|\bnew Date\b(?!\s*\()|\bnew Date\(\s*\)|(?<!\w\s)(?<![\w.])Date\(\s*\)/,
    where: ourCode,
    but: clockAllowed,
    instead: "take the time as an argument; performance.now() measures how long something took",
    looksAt: "code",
  },
  {
    name: "chance",
    pattern: /\bMath\.random\b/,
    where: ourCode,
    but: effectsAllowed,
    instead: "take a random number in [0, 1) as an argument; for secrets, randomBytes",
    looksAt: "code",
  },
  {
    name: "sql",
    pattern: new RegExp(`["'\`]\\s*(?:${sqlStart})(?:\\s|;|["'\`])|\\.query\\(`, "i"),
    where: ourCode,
    but: /-sql\.ts$|^src\/(?:base\/database|workspace\/store)\//,
    instead: "write a function in the room's …-sql.ts of that noun (the workspace's: src/workspace/store/)",
  },
  {
    name: "webhook",
    pattern: /\bsignatureHeader\b|\buser-agent\b|"created_at":"/,
    where: ourCode,
    but: /^src\/(?:signing\/|delivery\/webhook\.ts)/,
    instead: "take the body and the headers of a webhook from src/delivery/webhook.ts",
  },
  {
    name: "queue internals",
    pattern: /\bgraphile_worker\b|["']graphile-worker["']/,
    where: ourCode,
    but: /^src\/base\/database\/graphile-worker\.ts$/,
    instead:
      "write a function in src/base/database/graphile-worker.ts, and have its canary test what it relies on",
  },
  {
    name: "default export",
    pattern: /^export default\b/m,
    where: /^(?:src|test|scripts)\//,
    instead: "export it by name",
  },
  {
    name: "vague name",
    pattern: /\b(?:class|function|const|let|type|interface)\s+\w*(?:Service|Manager|Helper|Util)s?\b/,
    where: /\.(?:ts|mjs)$/,
    instead: "say what it does: a verb for a function, a noun of the field for a thing",
  },
  {
    name: "sleep",
    // In the body of a test; deeper down it is a stand-in for somebody who takes his time.
    pattern: /^ {2,6}await (?:(?:sleep|delay|wait|pause|setTimeout)\(|new Promise\([^\n]*\bsetTimeout\()/m,
    where: /\.test\.ts$/,
    instead: "wait for the event itself: once(), a receiver's waitForRequests(), a line of output",
  },
  {
    name: "put off",
    pattern: new RegExp(`\\b(?:${laterWords})\\b`),
    where: /./,
    instead: "do it, or open an issue",
    looksAt: "everything",
  },
  {
    name: "mutant left out",
    pattern: /\bStryker (?:disable|restore)\b/,
    where: ourCode,
    instead: "let npm run mutants try it; who survives stands in test/mutants/README.md, with a reason",
    looksAt: "everything",
  },
  {
    name: "path of one machine",
    pattern: new RegExp(`(?<![\\w.*}/-])/(?:${machineFolders})/`),
    where: /./,
    instead: "write it relative to the file, or take it as an argument",
    looksAt: "everything",
  },
];

/** A rule for each text that may not stand in our files. */
export const banRules: readonly Rule[] = bans.map((ban) => ({
  name: ban.name,
  find: (files) =>
    files
      .filter((file) => ban.where.test(file.path) && !ban.but?.test(file.path))
      .flatMap((file) => {
        const text = lookedAt(file.text, ban.looksAt);
        const every = new RegExp(ban.pattern, `${ban.pattern.flags}g`);
        return [...text.matchAll(every)].map((match) => {
          const line = text.slice(0, match.index).split("\n").length;
          const message = `line ${line} has ${JSON.stringify(match[0].trim())}: ${ban.instead}`;
          return { rule: ban.name, path: file.path, message };
        });
      }),
}));

function lookedAt(text: string, part: Ban["looksAt"]): string {
  if (part === "everything") return text;
  return part === "code" ? withoutTexts(withoutComments(text)) : withoutComments(text);
}
