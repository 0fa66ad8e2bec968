import {
  decideAfterAttempt,
  decideBeforeAttempt,
  dueAfterRelease,
} from "../../src/delivery/schedule/life.ts";
import type { RetryPolicy } from "../../src/delivery/schedule/retry-schedule.ts";
import { Chance } from "./chance.ts";
import { Clock } from "./clock.ts";
import { Dispatcher, type Holding } from "./dispatcher.ts";
import type { Witness } from "./operations.ts";
import { type Claimed, type ClaimRequest, type Recording, Rows } from "./rows.ts";
import {
  BODY_BYTES,
  CALM_STEPS_MAX,
  DEADLINES_MS,
  DELIVERIES_MAX,
  LAST_PUBLISHED,
  LEASE_MARGIN_MS,
  POLICIES,
  RETENTION_MS,
  START_WITHIN_MS,
} from "./setting.ts";
import { Watch } from "./watch.ts";

/** A few deliveries, a few dispatchers, and everything that can happen to them, out of one seed. */
export class History {
  readonly rows = new Rows();
  readonly #chance: Chance;
  readonly #policy: RetryPolicy;
  readonly #deadlineMs: number;
  readonly #watch: Watch;
  readonly #witness: Witness;
  readonly #dispatchers = [new Dispatcher(true), new Dispatcher(false), new Dispatcher(false)];
  /** A delivery that kills whoever posts it; -1: none. */
  readonly #poison: number;
  readonly #wakeups = new Set<number>();
  readonly #quarantined = new Set<number>();
  readonly #clock: Clock;
  #tokens = 0;

  constructor(seed: number, witness: Witness = () => undefined) {
    this.#chance = new Chance(seed);
    this.#policy = this.#chance.pick(POLICIES);
    this.#deadlineMs = this.#chance.pick(DEADLINES_MS);
    this.#poison = this.#chance.isTrue(0.1) ? this.#chance.below(DELIVERIES_MAX) : -1;
    this.#clock = new Clock(this.#chance, this.#policy, this.#deadlineMs);
    this.#watch = new Watch(this.rows, this.#policy.attempts);
    this.#witness = witness;
  }

  /** Throws a Violation when something happens that must not. */
  play(): void {
    this.#publish();
    for (let left = this.#chance.between(10, 80); left > 0; left--) {
      this.#clock.pass(this.rows.nextWakeAt());
      this.#step();
    }
    for (const dispatcher of this.#dispatchers) dispatcher.die();
    this.#playCalmly();
    this.#watch.ended();
  }

  #step(): void {
    const dispatcher = this.#chance.pick(this.#dispatchers);
    const what = this.#chance.below(100);
    if (what < 25) this.#claim(dispatcher);
    else if (what < 45) this.#start(dispatcher, this.#chance.pick(dispatcher.holdings));
    else if (what < 60) this.#finish(dispatcher, this.#chance.pick(dispatcher.holdings));
    else if (what < 75) this.#record(dispatcher);
    else if (what < 85) this.#promote();
    else if (what < 92) this.#replay();
    else if (what < 94) dispatcher.die();
    else if (what < 97) this.#publish();
    else this.#changeEndpoint();
  }

  /** Nothing breaks any more, and nobody helps: only what the promoter wakes is claimed. */
  #playCalmly(): void {
    const [quarantine, crowd] = [this.#dispatchers[0]!, this.#dispatchers[1]!];
    this.#wakeups.clear();
    this.#quarantined.clear();
    for (let steps = 0; steps < CALM_STEPS_MAX; steps++) {
      if (this.rows.deliveries.every(({ open }) => open === null)) return;
      this.#clock.passTo(Math.ceil(this.rows.nextWakeAt()));
      this.#promote();
      for (const dispatcher of [crowd, quarantine]) {
        const ids = dispatcher.isInQuarantine ? this.#quarantined : this.#wakeups;
        while (ids.size > 0) {
          const batch = dispatcher.isInQuarantine ? [...ids].slice(0, 1) : [...ids].sort(byNumber);
          for (const id of batch) ids.delete(id);
          this.#ask(dispatcher, batch, this.#request(dispatcher, Number.MAX_SAFE_INTEGER));
          this.#workOff(dispatcher);
        }
      }
    }
  }

  #workOff(dispatcher: Dispatcher): void {
    for (const holding of [...dispatcher.holdings]) this.#start(dispatcher, holding);
    for (const holding of [...dispatcher.holdings]) {
      this.#clock.now += this.#chance.below(this.#deadlineMs);
      this.#finish(dispatcher, holding);
    }
    while (dispatcher.outbox.length > 0) this.#record(dispatcher);
  }

  #publish(): void {
    if (this.rows.deliveries.length >= DELIVERIES_MAX || this.#clock.now >= LAST_PUBLISHED) return;
    // Never two in one millisecond, so that ids sort by publishing.
    const at = ++this.#clock.now;
    const kind = this.#chance.next();
    const own = kind < 0.6 ? null : kind < 0.95 ? "allowed" : "refused";
    const id = this.rows.deliveries.length;
    if (this.rows.publish(at, BODY_BYTES[id]!, own).open !== null) this.#wakeups.add(id);
    this.#watch.published(id);
    this.#witness({ kind: "publish", at, own }, this.rows);
  }

  #changeEndpoint(): void {
    const kind = this.#chance.next();
    this.rows.endpoint = kind < 0.6 ? "allowed" : kind < 0.8 ? "refused" : null;
    this.#witness({ kind: "endpoint", target: this.rows.endpoint }, this.rows);
  }

  #claim(dispatcher: Dispatcher): void {
    const { unanswered } = dispatcher;
    if (unanswered !== null) {
      dispatcher.unanswered = null;
      this.#ask(dispatcher, unanswered.ids, { ...unanswered.request, at: this.#clock.now });
      return;
    }
    const known = dispatcher.isInQuarantine ? this.#quarantined : this.#wakeups;
    // Mostly what was woken; now and then an id that somebody still had in memory.
    const ids = this.#chance.isTrue(0.8) ? [...known] : this.rows.deliveries.map((_, id) => id);
    const some = ids.filter(() => this.#chance.isTrue(0.8)).sort(byNumber);
    if (dispatcher.isInQuarantine) some.splice(1);
    if (some.length === 0) return;
    for (const id of some) known.delete(id);
    const bytesMax = this.#chance.isTrue(0.15) ? this.#chance.below(200) : Number.MAX_SAFE_INTEGER;
    const request = this.#request(dispatcher, bytesMax);
    if (this.#chance.isTrue(0.07)) {
      this.#tell(some, request);
      dispatcher.unanswered = { ids: some, request };
    } else this.#ask(dispatcher, some, request);
  }

  #request({ isInQuarantine }: Dispatcher, bytesMax: number): ClaimRequest {
    const leaseMs = this.#deadlineMs + LEASE_MARGIN_MS;
    return {
      at: this.#clock.now,
      token: ++this.#tokens,
      leaseMs,
      bytesMax,
      isInQuarantine,
      attemptsMax: this.#policy.attempts,
    };
  }

  #tell(ids: readonly number[], request: ClaimRequest): Claimed[] {
    const claimed = this.rows.claim(ids, request);
    this.#witness({ kind: "claim", ids, request, claimed }, this.rows);
    for (const id of ids) this.#watch.look(id, this.#clock.now, "step");
    for (const one of claimed) if (one.kind === "leased") this.#watch.leased(one.delivery, this.#clock.now);
    return claimed;
  }

  #ask(dispatcher: Dispatcher, ids: readonly number[], request: ClaimRequest): void {
    for (const leased of this.#tell(ids, request)) {
      if (leased.kind === "leased") {
        const leaseUntil = request.at + request.leaseMs;
        dispatcher.holdings.push({
          leased,
          token: request.token,
          claimedAt: request.at,
          leaseUntil,
          post: null,
        });
      } else if (leased.kind === "left") this.#wakeups.add(leased.delivery);
      else this.#quarantined.add(leased.delivery);
    }
  }

  #start(dispatcher: Dispatcher, holding: Holding | undefined): void {
    if (holding === undefined || holding.post !== null) return;
    const { leased, claimedAt } = holding;
    const verdict = decideBeforeAttempt(
      {
        attemptsInRun: (leased.number ?? this.#policy.attempts + 1) - 1,
        runStartedAtMs: leased.runStartedAt,
        wasInterruptedInQuarantine: leased.wasInterruptedInQuarantine,
        isErased: false,
        expiresAtMs: this.rows.deliveries[leased.delivery]!.createdAt + RETENTION_MS,
        target: leased.target,
      },
      this.#policy,
      this.#clock.now,
    );
    if (verdict.kind === "end") {
      this.#put(dispatcher, holding, null, { status: "abandoned", reason: verdict.reason });
    } else if (this.#clock.now - claimedAt >= START_WITHIN_MS) {
      this.#release(dispatcher, holding, true);
    } else {
      const end = this.#watch.posts(leased.delivery, this.#clock.now, holding.leaseUntil);
      holding.post = { startedAt: this.#clock.now, end };
      if (leased.delivery !== this.#poison) return;
      this.#watch.crashed(leased.delivery);
      dispatcher.die();
    }
  }

  #finish(dispatcher: Dispatcher, holding: Holding | undefined): void {
    if (holding?.post == null) return;
    const { leased, post } = holding;
    post.end();
    const isLate = this.#clock.now - post.startedAt >= this.#deadlineMs;
    const luck = this.#chance.next();
    if (luck > 0.9) {
      this.#release(dispatcher, holding, luck > 0.95);
      return;
    }
    const outcome = isLate
      ? "timed_out"
      : luck < 0.25
        ? "succeeded"
        : luck < 0.6
          ? "rejected"
          : "unreachable";
    const errorCode =
      outcome === "succeeded" ? null : outcome === "rejected" ? "status_503" : "connect_refused";
    const attempt = { number: leased.number!, outcome, errorCode } as const;
    const next = decideAfterAttempt(
      {
        hasSucceeded: outcome === "succeeded",
        number: attempt.number,
        runStartedAtMs: leased.runStartedAt,
        endedAtMs: isLate ? post.startedAt + this.#deadlineMs : this.#clock.now,
        retryAfterMs: this.#chance.isTrue(0.2) ? this.#chance.below(10_000_000) : null,
      },
      this.#policy,
      this.#chance.next(),
    );
    this.#put(dispatcher, holding, attempt, next);
  }

  #release(dispatcher: Dispatcher, holding: Holding, isOurOwnStop: boolean): void {
    const dueAtMs = dueAfterRelease(this.#policy, this.#clock.now, isOurOwnStop, this.#chance.next());
    this.#put(dispatcher, holding, null, { status: "released", dueAtMs });
  }

  #put(
    dispatcher: Dispatcher,
    holding: Holding,
    attempt: Recording["attempt"],
    next: Recording["next"],
  ): void {
    const { leased, token, leaseUntil } = holding;
    dispatcher.holdings.splice(dispatcher.holdings.indexOf(holding), 1);
    const recording = { delivery: leased.delivery, token, run: leased.run, attempt, next };
    dispatcher.outbox.push({ recording, giveUpAt: leaseUntil });
  }

  #record(dispatcher: Dispatcher): void {
    const batch = dispatcher.outbox.splice(0, this.#chance.between(1, 3));
    // What is past its lease is given up, unless the statement was already on its way.
    const sent = batch.filter(({ giveUpAt }) => giveUpAt > this.#clock.now || this.#chance.isTrue(0.5));
    if (sent.length === 0) return;
    const recordings = sent.map(({ recording }) => recording).sort((a, b) => a.delivery - b.delivery);
    const ours = this.rows.record(recordings);
    this.#witness({ kind: "record", recordings, ours }, this.rows);
    for (const { delivery, token } of recordings) {
      this.#watch.look(delivery, this.#clock.now, "step");
      const open = this.rows.deliveries[delivery]!.open;
      if (open !== null && open.lease?.token !== token) this.#watch.dueAt(delivery, open.dueAt);
    }
  }

  #promote(): void {
    const woken = this.rows.promote(this.#clock.now);
    for (const id of woken) {
      this.#wakeups.add(id);
      this.#watch.look(id, this.#clock.now, "step");
    }
    this.#witness({ kind: "promote", at: this.#clock.now, woken }, this.rows);
  }

  #replay(): void {
    // Rather one that is under way: that is where it is hard.
    const held = this.#dispatchers.flatMap(({ holdings }) => holdings.map(({ leased }) => leased.delivery));
    const all = this.rows.deliveries.map((_, id) => id);
    const id = this.#chance.pick(held.length > 0 && this.#chance.isTrue(0.7) ? held : all);
    const { outcome, wakes } = this.rows.replay(id, this.#clock.now, RETENTION_MS);
    this.#witness({ kind: "replay", id, at: this.#clock.now, outcome, wakes }, this.rows);
    if (outcome !== "replayed") return;
    if (wakes) this.#wakeups.add(id);
    this.#watch.dueAt(id, this.#clock.now);
    this.#watch.look(id, this.#clock.now, "replay");
  }
}

const byNumber = (a: number, b: number) => a - b;
