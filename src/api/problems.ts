import { USER_SHARE } from "../base/model/reader.ts";
import { RUNS_PER_HOUR_MAX, RUNS_PER_HOUR_OF_USER_MAX } from "../base/model/statuses.ts";
import { JSON_LEVELS_MAX } from "../http/limits.ts";
import { standardProblems } from "../http/problem-catalogue.ts";
import type { ProblemCatalogue } from "../http/problems.ts";

/** The codes that this service adds to the standard ones. */
const ownProblems = {
  analysis_conflict: {
    status: 409,
    meaning:
      "The account has already published a different analysis, or another webhook_url, under this " +
      "analysis id.",
    remedy:
      "Publish each new result under a new id. Publishing the same result again, byte for byte and with the same " +
      "webhook_url, returns the existing delivery.",
  },
  delivery_not_replayable: {
    status: 409,
    meaning: "The delivery has succeeded or is still pending.",
    remedy:
      "Only `failed` and `abandoned` deliveries can be replayed. Get the delivery to see its status and when its " +
      "next attempt is due.",
  },
  replayed_too_often: {
    status: 409,
    meaning:
      `The delivery was replayed so often that ${RUNS_PER_HOUR_MAX} runs of it began within the last hour; ` +
      `${RUNS_PER_HOUR_OF_USER_MAX} are enough to refuse a key that acts for a user.`,
    remedy:
      "Wait some minutes. Get the delivery to see what its receiver answers: a replay alone changes nothing.",
  },
  too_many_replays: {
    status: 409,
    meaning:
      "The account already has as many bulk replays running, or deliveries waiting in them, as it may have, " +
      USER_SHARE,
    remedy:
      "Wait until one of them has started all its deliveries (its status is then `delivering`), or cancel one. " +
      "One replay with a wider filter does the work of many.",
  },
  rotation_in_progress: {
    status: 409,
    meaning:
      "The signing secret was rotated recently, and the old secret still signs: rotating again now would lock " +
      "out every receiver that has only that one.",
    remedy:
      "Give all receivers the current secret and wait until the overlap ends (`previous.expires_at` of the signing " +
      "secret). To rotate at once anyway, for example after a leak, send `end_previous: true`.",
  },
  too_many_recipients: {
    status: 409,
    meaning: "The account already has 10 addresses that get its notices.",
    remedy: "Remove one first, or add the address of a mailing list.",
  },
  mail_not_configured: {
    status: 409,
    meaning: "This installation has no mail server, so no address can get notices.",
    remedy: "Read the notices from `GET /v1/webhooks/notices`. Operators: set SMTP_URL and NOTICES_FROM.",
  },
  exceeds_own_key: {
    status: 403,
    meaning:
      "The request concerns an API key that can do more, or for longer, than the caller's own; see `errors`.",
    remedy: "Use a key that has all of these scopes and expires no earlier, or ask someone who has one.",
    hasErrors: true,
  },
  too_many_api_keys: {
    status: 409,
    title: "Too many API keys",
    meaning: "The account already has as many API keys, valid or made within the last day, as it may have.",
    remedy: "Revoke keys that nobody uses; if the account has made very many today, wait until tomorrow.",
  },
  user_exists: {
    status: 409,
    meaning: "The account already has a user with this `idp_user_id`.",
    remedy: "Find it in `GET /v1/users`, and use its id.",
  },
  too_many_sessions: {
    status: 409,
    meaning: `The account has 20,000 console sessions that have neither expired nor been ended, ${USER_SHARE}`,
    remedy:
      "Open one session for each viewer, not one for each view, and give it a shorter `session_seconds`; those " +
      "that expire, or that you end, make room.",
  },
  replay_changed: {
    status: 409,
    meaning:
      "The number that matches now differs from `expected_matched` by more than 1 %, so nothing was replayed.",
    remedy: "Do the dry run again, look at its counts, and send the new `matched` as `expected_matched`.",
  },
  refused_by_receiver: {
    status: 409,
    meaning: "The receiver refuses webhooks from this account at this URL; a refusal is lifted once a day.",
    remedy: "Ask the receiver's owner. Lift the refusal (`webhooks.refusals.lift`), at most once a day.",
  },
  receiver_not_proven: {
    status: 409,
    meaning:
      "The receiver has returned no 2xx in the last 30 days and so gets one POST at a time, and it was not this " +
      "one's turn. Nothing was sent.",
    remedy:
      "Wait for the number of seconds in Retry-After, then check again. Meanwhile the delivery log shows how it " +
      "responds to its deliveries.",
  },
  analysis_expired: {
    status: 410,
    meaning: "The analysis is past its retention period.",
    remedy: "It can no longer be read or delivered: run the analysis again.",
  },
  analysis_erased: {
    status: 410,
    meaning: "The analysis was erased: on request, or because its endpoint forgets what was delivered.",
    remedy:
      "Nothing of its text is left to be read or delivered. Run the analysis again if it is still wanted.",
  },
  endpoint_options_conflict: {
    status: 409,
    meaning: "The option `forget_after_success` would erase what references lead to.",
    remedy: "Set `payload` to `full`, or `forget_after_success` to false.",
  },
  endpoint_changed: {
    status: 409,
    meaning: "The endpoint was changed, or removed, since `expected_updated_at`; nothing was changed now.",
    remedy: "Get the endpoint, make the change to what it is by now, and send its new `updated_at`.",
  },
  cursor_expired: {
    status: 410,
    meaning: "The cursor is older than the events that are kept; some that came after it may be gone.",
    remedy:
      "Continue from the oldest cursor, which `errors` gives, or without a cursor, which is the same. Events in " +
      "between may be missing: compare with your own records. A consumer continues under another name, or once its " +
      "own is removed, and begins there, too.",
    hasErrors: true,
  },
  too_many_consumers: {
    status: 409,
    meaning: "Consumers of the account's events already have 100 names.",
    remedy:
      "Use one name for each program that reads, not one for each time it runs, and remove those that nobody uses. " +
      "They are also forgotten when the delivery log of their last day is.",
  },
  target_refused: {
    status: 422,
    meaning: "Webhooks are not delivered to this URL; `errors` says which rule it breaks.",
    remedy:
      "Use a public https:// URL: no user name, password or fragment, a host that is reachable from the public " +
      "internet, and port 443 or one above 1023 that no other well-known service uses.",
    hasErrors: true,
  },
  invalid_analysis: {
    status: 422,
    meaning: "The analysis is JSON, but not a valid analysis; `errors` says why.",
    remedy:
      "Send an object with an `id` of 1 to 200 characters from A-Z a-z 0-9 . _ : - and the `status` succeeded or " +
      `failed, both without escape sequences, nested at most ${JSON_LEVELS_MAX} levels deep.`,
    hasErrors: true,
  },
} as const satisfies ProblemCatalogue;

export type DomainCode = keyof typeof ownProblems;

/** Every code that this service can return. */
export const problems = { ...standardProblems, ...ownProblems } as const satisfies ProblemCatalogue;
