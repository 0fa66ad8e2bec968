import { abortableDelay } from "../base/model/backoff.ts";
import { type SendingOptions, sendNextMail } from "./mail-sending.ts";
import { lookForNews, type NewsOptions } from "./news.ts";
import { collectMails, giveUpCutMails, takeNoticeTurn } from "./notice-mails-sql.ts";

const HOUR_MS = 3_600_000;
/** Of one account and kind. */
const MAIL_EVERY_MS = HOUR_MS;
/** What nobody could be told of for so long, because there was no mail server, is only in the list. */
const MAILED_WITHIN_MS = 24 * HOUR_MS;
const GROUPS_PER_STEP = 500;
/** As many times more seldom than what was seen is written. */
const LOOK_EVERY = 3;

export type NoticeWorkOptions = NewsOptions & {
  readonly everyMs: number;
  /** Null: no mail is sent. */
  readonly sending: Omit<SendingOptions, "pool"> | null;
  readonly onCut: (mailId: string) => void;
  readonly onError: (work: NoticeTask, error: unknown) => void;
};

export type NoticeTask = "look" | "send";

/**
 * Looks for news, in whichever process has the turn, and sends mails, one at a time in each process. Two loops, because
 * a mail server may take half a minute for every mail; neither does anything that an attempt waits for.
 *
 * Losing option: the leader's work. Whoever leads promotes every second, and must not wait for anything else.
 *
 * @returns what stops it: a mail that is being sent is cut, and is perhaps sent if it had begun to leave
 */
export function startNoticeWork(options: NoticeWorkOptions): () => Promise<void> {
  const { pool, everyMs, sending, onError } = options;
  const stopping = new AbortController();
  const { signal } = stopping;

  async function repeat(task: NoticeTask, pauseMs: number, work: () => Promise<void>): Promise<void> {
    while (!signal.aborted) {
      await work().catch((error: unknown) => onError(task, error));
      await abortableDelay(pauseMs, signal);
    }
  }

  const loops = [repeat("look", LOOK_EVERY * everyMs, () => look(options, signal))];
  if (sending !== null) {
    loops.push(
      repeat("send", everyMs, async () => {
        while (!signal.aborted && (await sendNextMail({ pool, ...sending }, signal)));
      }),
    );
  }
  return async () => {
    stopping.abort(new Error("the process is stopping"));
    await Promise.all(loops);
  };
}

async function look(options: NoticeWorkOptions, signal: AbortSignal): Promise<void> {
  const { pool, everyMs, sending, onCut } = options;
  if (!(await takeNoticeTurn(pool, LOOK_EVERY * everyMs))) return;
  await lookForNews(options, signal);
  for (const id of await giveUpCutMails(pool)) onCut(id);
  if (sending === null) return;
  await collectMails(pool, { everyMs: MAIL_EVERY_MS, untilMs: MAILED_WITHIN_MS, groupsMax: GROUPS_PER_STEP });
}
