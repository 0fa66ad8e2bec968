import type { DescribedProblem } from "../http/kernel.ts";
import { refusalList } from "./field-marks.ts";
import { html } from "./html.ts";
import { type Frame, homeLink, notice, SESSION_ENDED } from "./page.ts";
import { copyButton } from "./parts.ts";
import type { Page } from "./screen.ts";

/** An error, as a page: what it is, what to do, what to tell support, and the way back for whoever is known. */
export function problemPage(problem: DescribedProblem, requestId: string, seen: Frame["seen"]): Page {
  // An id in an address that is none.
  const isNowhere = problem.errors.some(({ path }) => path.startsWith("path."));
  const [title, meaning, remedy] = isNowhere ? NOT_FOUND : (PROBLEM_WORDS[problem.code] ?? OTHER_WORDS);
  const hasEnded = problem.code === "unauthorized" && SESSION_ENDED;
  const page = notice(
    title,
    html`<p>${meaning}</p>
${!isNowhere && refusalList(problem.errors)}
<p>${remedy}</p>
${seen !== null && html`<div class="actions">${homeLink(seen)}</div>`}
<p class="fine">Request <code>${requestId}</code> ${copyButton(requestId, "request id")}</p>`,
    html` data-problem="${problem.code}"${hasEnded}`,
  );
  return { ...page, status: problem.status };
}

type Words = readonly [title: string, meaning: string, remedy: string];

const NOT_FOUND: Words = [
  "Not found",
  "There is nothing at this address. A part of it may have got lost, or it is older than what is kept.",
  "Check the address, or search for what you need.",
];
const NO_FORM: Words = [
  "This form is not complete",
  "A part of it is missing that every form of the console has. Nothing was changed.",
  "Open the page again and send its form.",
];
const LOOK_FIRST = "If you sent a form, look first whether it was done.";
const RUN_AGAIN = "Run the analysis again if it is still wanted.";

/** Of a problem that nobody expects here. */
const OTHER_WORDS: Words = [
  "This did not work",
  "The service refused it.",
  "Go back and try again. If it is refused again, tell support the number of the request.",
];

/**
 * By codes: every one that a console page can end with. The catalogue's own words are for programs: here nobody has a
 * key in hand, or sees members of a body.
 */
export const PROBLEM_WORDS: Readonly<Record<string, Words>> = {
  unauthorized: [
    "This session has ended",
    "It has expired, or somebody ended it.",
    "Open the console again from where you came from.",
  ],
  access_denied: [
    "Not allowed",
    "You may not see or do this here.",
    "Ask whoever gave you access for it, or open the console again from where you came from.",
  ],
  not_found: NOT_FOUND,
  method_not_allowed: NOT_FOUND,
  invalid_request: [
    "Something here is not valid",
    "The service could not do what was asked for. Nothing was changed.",
    "Go back and correct it.",
  ],
  invalid_request_id: OTHER_WORDS,
  account_required: OTHER_WORDS,
  idempotency_key_required: NO_FORM,
  unsupported_media_type: NO_FORM,
  payload_too_large: [
    "Too long",
    "What was entered is longer than it may be. Nothing was changed.",
    "Go back and shorten it.",
  ],
  idempotency_in_progress: [
    "Already on its way",
    "The same form was sent a moment ago and is still being worked on.",
    "Wait a moment, then look whether it was done.",
  ],
  idempotency_key_reused: [
    "This form was already sent",
    "It was sent before, with other entries. These were not used.",
    "Open the page again and send its form.",
  ],
  rate_limited: [
    "Too many requests",
    "This session, or everybody in the account together, has asked for too much in a short time.",
    "Wait a minute, then try again.",
  ],
  internal_error: [
    "Something went wrong",
    "This is a fault of the service. It has been recorded.",
    `Try again in a moment. ${LOOK_FIRST} If it happens again, tell support the number of the request.`,
  ],
  temporarily_unavailable: [
    "Not available at the moment",
    "The service is too busy, or cannot reach something that it needs. What it has accepted is kept.",
    `This page tries again every few seconds. ${LOOK_FIRST}`,
  ],
  account_moved: [
    "This account has moved",
    "It is in another part of the service now, and can only be read here. Nothing was changed.",
    "Open the console again from where you came from.",
  ],
  storage_full: [
    "Storage is full",
    "The account has used all the storage that it may have. Nothing was changed.",
    "Wait until something has been removed, or ask for more.",
  ],
  delivery_not_replayable: [
    "Not to be replayed now",
    "The delivery has arrived, or waits for its next attempt.",
    "Look at the delivery: it says how it stands.",
  ],
  replayed_too_often: [
    "Replayed too often",
    "So many replays of this delivery began within the last hour that there are no more for now.",
    "See what the receiver responds, and wait some minutes: a replay alone changes nothing.",
  ],
  too_many_replays: [
    "Too many bulk replays",
    "As many are running, or have deliveries waiting in them, as may be at a time. Nothing was started.",
    "Wait until one has started all its deliveries, or stop one. A single one can do the work of many.",
  ],
  replay_changed: [
    "The number has changed",
    "Not as many deliveries match now as when you looked. Nothing was replayed.",
    "Count them again, then replay.",
  ],
  rotation_in_progress: [
    "A rotation is under way",
    "The secret before this one still signs, and receivers may know only that one. Nothing was rotated.",
    "Wait until it ends, or choose to end it.",
  ],
  refused_by_receiver: [
    "The receiver refuses webhooks",
    "It has said that it wants none from this account at this URL. Nothing was sent.",
    "Ask the receiver's owner.",
  ],
  receiver_not_proven: [
    "It is not this one's turn",
    "The receiver has accepted nothing in the last 30 days, and gets one request at a time. Nothing was sent.",
    "Wait a moment, then try again.",
  ],
  analysis_expired: [
    "No longer kept",
    "The analysis is older than what is kept, so it can neither be shown nor delivered.",
    RUN_AGAIN,
  ],
  analysis_erased: [
    "Erased",
    "The analysis was erased: somebody asked for it, or its endpoint forgets what was delivered.",
    RUN_AGAIN,
  ],
  target_refused: [
    "Not a URL for webhooks",
    "Webhooks are not sent to this URL. Nothing was changed.",
    "Use a public https:// URL.",
  ],
  too_many_recipients: [
    "Too many addresses",
    "As many addresses get this account's notices already as may. Nothing was added.",
    "Remove one first, or add the address of a mailing list.",
  ],
  mail_not_configured: [
    "No mail is sent",
    "The service has no mail server, so no address can get notices.",
    "Ask whoever runs the service.",
  ],
  exceeds_own_key: [
    "More than you may give",
    "The key can do more, or for longer, than you may yourself. Nothing was changed.",
    "Choose less, or ask somebody who may do all of it.",
  ],
  too_many_api_keys: [
    "Too many keys",
    "The account has as many keys as it may have, or as many were made today. Nothing was made.",
    "Revoke keys that nobody uses, or wait until tomorrow.",
  ],
  user_exists: [
    "This user is there already",
    "The account has a user with this id at the identity provider. Nothing was added.",
    "Look for it in the list of users.",
  ],
  endpoint_changed: [
    "Changed at the same time",
    "Somebody else changed the endpoint at that moment, or removed it. Nothing of yours was saved.",
    "Open the page again, look at what there is now, and send its form.",
  ],
  endpoint_options_conflict: [
    "Not both at once",
    "An endpoint that forgets what it has delivered cannot send references to it. Nothing was changed.",
    "Choose one of the two.",
  ],
};
