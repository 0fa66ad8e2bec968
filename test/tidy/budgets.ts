import type { Rule, SourceFile } from "./source-files.ts";

type Budget = {
  readonly what: string;
  readonly max: number;
  /** The files that it is about. */
  readonly of: (path: string) => boolean;
  readonly count: (files: readonly SourceFile[]) => number;
};

const linesOf = (files: readonly SourceFile[]) =>
  files.reduce((sum, { text }) => sum + text.replace(/\n$/, "").split("\n").length, 0);
const matchesOf = (pattern: RegExp) => (files: readonly SourceFile[]) =>
  files.reduce((sum, { text }) => sum + [...text.matchAll(pattern)].length, 0);

/**
 * Weight is a feature that users and the next developer pay for: whoever raises a number says what it buys. Where a
 * number is not yet what was aimed for (45,000 lines), it is what there is, and only falls, but for what trust
 * bought: both keys of a rotation 31, turns of steps 48, users' shares of places and of what is stored 74, consent
 * 553 and its variable, erasing and forgetting an analysis 426 and its variable, erasing accounts 671 and 7 files,
 * finding their objects that no row knows 97, runs asked at once of all that is forgotten 34, stores told apart from
 * folders made while a disk is away 21, a list of what was erased that loses nothing 35, challenges (sent, answered
 * by the library, tried by the check, which is no way around consent) 306, proofs however a URL is spelled 23, what
 * was put off woken once a receiver is proven 40, look-ups that fail spaced 28, what erasing did not do told as such
 * 6, erasures that nothing beside them stops or outlasts 61, what a move has left told of and forgotten 26, bounds
 * of wake-ups that keep up beside a snapshot and after a clock was set back 55, nothing erased along that a run was
 * not given 13, what stays of people told 1, what a role lacks and which host is unknown told 4, statements that
 * lock rows and choose no partitions 15, refusals of a flood at a pace 10, URLs that ask for the same refused as one
 * 17, an account called "erased" erased 2, waiting told however a host is spelled 5, an account's new receivers
 * waited for without an alert 2, late POSTs of a frozen process withheld 3, headers set anew where nothing opens
 * those of before 3, what a run has made told in flight 3, a port that no socket gets by chance 10, a file of
 * certificates away for a while survived 20; readiness that stays away while commits wait 25, turns that are asked
 * for before there are rests, and proofs before an upgrade ends 7, what a run was given erased with it 20, what
 * moves have copied erased with the rest 30, rests that end with the endpoint 19, marks of a rotation that stay, and
 * keys that are over refused 19, runs that published nothing erased by their ids 25, suspensions that outlast a
 * restart 52, lists of millions of erasures 52, URLs spelled otherwise looked up a claim at a time, and asks for
 * turns shared out 58, asks that wait for one another 37, what a step left behind encrypts told of 10, erasures
 * again that miss nothing 9, rotations that a forgotten process does not end 10, files of TLS read at startup 22,
 * runs forgotten one by one, and what a restored target has with them 9, days whose drop waits emptied 24, what
 * waited for a proof told apart 12, a move's looks bounded 12, known silent receivers in front of new ones 34, names
 * that renames have left 1, known receivers served after a restart beside all that wait, and their domains' look-ups
 * 35, faults of our own certificates told of 8, rotations whose last step was undone ended 2, erasures looked for at
 * a move whatever is known of them 7; look-ups that hold no place while they wait in line 176 and two files,
 * references from before a move told where to go 22, keys that are the same or half given refused, and what is
 * erased while a move opens erased there 10, runs that published nothing told of as erased 14, folders with names in
 * them left by nobody 11, lines of look-ups that stay counted, pass over what is gone and let new names take turns
 * with dead ones, and rests of accounts looked at in turn 90, tokens that a look-up takes when it begins, and its
 * place kept, 44, domains in turn 14, and accounts' shares of what is taken back and given back 73, and for what the
 * console's users asked for: its truth about replays, hosts and times 122, its density (search, groups by cause, an
 * explanation in parts, who replayed, an endpoint's health, who is told, a pause's banner) 957 and a file, runs'
 * pages and workflows in the log 384 and 3, errors that people read and public pages in one design 416 and 2,
 * changes in sentences and API keys 688 and 2, users of an account 500 and 2, what to do first 10, and for
 * integrators: who answered in place of the application 480 and 2, programs that say when nobody answers 7, pages as
 * Markdown 79, a first webhook without a restart and checks of plain HTTP on one's own machine 324 and 3, a document
 * that generators understand 16, old memory collected less often 10, older jobs found beside the looks 31, Standard
 * Webhooks and headers of an endpoint's own (rules, sealing, the library, the check, a screen) 742 and 3, who
 * answered in the activity 46, shares of turns, of forgetting, of looks at proofs, and every cell a text may still
 * be in 107, a reader's place that we keep 210, packages that the service hands out 85 and a file, pages painted
 * once and names that keep their room 58, answers and origins that secret headers stay out of 79, consumers seen and
 * removed in console and command line, and headers that no other tab loses 371 and 2, answers read as they are meant
 * before secret headers are hidden 76, what waits for proofs out of others' way 41, nothing acknowledged that a
 * standby lacks 45, a bin: deleting, restoring, deleting for good 785 and 3, quotas of a workspace 219, runs listed,
 * done again and tested, and workflows switched off and archived 466 and a file, schedules and hooks 937 and 5, what
 * is posted to a hook begun together 84, logs for people 14 and a variable, traces for a collector 289 and a file,
 * three variables, a metric and OpenTelemetry's packages.
 */
const budgets: readonly Budget[] = [
  {
    what: "lines in src/",
    max: 59_207,
    of: (path) => /^src\/.*\.(?:ts|css|m?js)$/.test(path),
    count: linesOf,
  },
  {
    what: "files of TypeScript in src/",
    max: 364,
    of: (path) => /^src\/.*\.ts$/.test(path),
    count: (files) => files.length,
  },
  { what: "lines in README.md", max: 200, of: (path) => path === "README.md", count: linesOf },
  {
    what: "SQL files after 1.0.0",
    max: 6,
    of: (path) => /^sql\/(?:[a-z]+\/\d{4}|(?!000[1-8])\d{4})_\w+\.sql$/.test(path),
    count: (files) => files.length,
  },
  {
    what: "environment variables",
    max: 47,
    of: (path) => path === "src/base/config/variables.ts",
    count: matchesOf(/^ {2}[A-Z_]+: (?:withDefault|optional)\(/gm),
  },
  {
    what: "metrics",
    max: 52,
    of: (path) => path.startsWith("src/base/metrics/"),
    count: matchesOf(/registry\.(?:counter|gauge|histogram)\(\{\s*name: "/g),
  },
  {
    what: "production dependencies",
    max: 23,
    of: (path) => path === "package-lock.json",
    count: (files) =>
      files.flatMap(({ text }) => Object.keys(JSON.parse(text).packages[""].dependencies ?? {})).length,
  },
];

/** The house keeps the weight that was agreed on. */
export const weight: Rule = {
  name: "weight",
  find: (files) =>
    budgets.flatMap(({ what, max, of, count }) => {
      const counted = files.filter(({ path }) => of(path));
      const found = count(counted);
      if (found <= max) return [];
      const message = `makes it ${found} ${what}, of at most ${max}: drop what it replaces, or say why it is worth it`;
      return [{ rule: "weight", path: counted.at(-1)?.path ?? "", message }];
    }),
};
