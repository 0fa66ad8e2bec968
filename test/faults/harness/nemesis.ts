import { wholeAccount } from "../../../src/base/model/reader.ts";
import { replayDelivery } from "../../../src/log/replays-sql.ts";
import { Chance } from "../../simulation/chance.ts";
import type { SealpostProcess } from "../../support/sealpost-process.ts";
import type { Cluster, TestAccount } from "./cluster.ts";
import type { EndOfServer, OwnPostgres } from "./own-postgres.ts";
import { until, wait } from "./scenario.ts";

const RETENTION_MS = 7 * 86_400_000;

/** Breaks one thing after the other, several at a time; which ones, its seed says. */
export class Nemesis {
  readonly #cluster: Cluster;
  readonly #postgres: OwnPostgres;
  readonly #accounts: readonly TestAccount[];
  readonly #chance: Chance;
  readonly #tell: (line: string) => void;
  readonly #underWay = new Set<Promise<void>>();
  readonly #frozen = new Set<SealpostProcess>();
  #isDatabaseBusy = false;
  /** How often each fault was done. */
  readonly done: Record<string, number> = {};
  /** Attempts that were under way when something was killed, frozen or cut off. */
  inFlight = 0;

  constructor(
    cluster: Cluster,
    postgres: OwnPostgres,
    accounts: readonly TestAccount[],
    seed: number,
    tell: (line: string) => void,
  ) {
    this.#cluster = cluster;
    this.#postgres = postgres;
    this.#accounts = accounts;
    this.#chance = new Chance(seed);
    this.#tell = tell;
  }

  /** Resolves when everything that it broke works again. */
  async run(forMs: number): Promise<void> {
    const endsAt = performance.now() + forMs;
    const faults = [
      () => this.#killDispatcher(),
      () => this.#killDispatcher(),
      () => this.#freezeDispatcher(),
      () => this.#stopDispatcher(),
      () => this.#restartDatabase(),
      () => this.#freezeDatabase(),
      () => this.#troubleReceiver(),
      () => this.#replay(),
      () => this.#replay(),
      () => this.#rotateSecret(),
    ];
    while (performance.now() < endsAt) {
      const doing = this.#chance
        .pick(faults)()
        .catch((error: unknown) => this.#tell(String(error)));
      this.#underWay.add(doing);
      void doing.finally(() => this.#underWay.delete(doing));
      await wait(this.#chance.between(300, 4_000));
    }
    await Promise.all(this.#underWay);
  }

  #note(fault: string): void {
    this.done[fault] = (this.done[fault] ?? 0) + 1;
    this.#tell(fault);
  }

  async #countInFlight(): Promise<void> {
    this.inFlight += await this.#cluster.countLeased().catch(() => 0);
  }

  /** One that is neither frozen nor the last. */
  #pickDispatcher(): SealpostProcess | undefined {
    const free = this.#cluster.dispatchers.filter((one) => !this.#frozen.has(one));
    return free.length > 1 ? this.#chance.pick(free) : undefined;
  }

  async #killDispatcher(): Promise<void> {
    const victim = this.#pickDispatcher();
    if (victim === undefined) return;
    this.#note("kill -9");
    await this.#countInFlight();
    await victim.kill();
    await wait(this.#chance.between(0, 1_500));
    await this.#startDispatcher();
  }

  async #stopDispatcher(): Promise<void> {
    const victim = this.#pickDispatcher();
    if (victim === undefined) return;
    this.#note("SIGTERM");
    await victim.stop();
    await this.#startDispatcher();
  }

  async #freezeDispatcher(): Promise<void> {
    const victim = this.#pickDispatcher();
    if (victim === undefined) return;
    this.#note("SIGSTOP");
    this.#frozen.add(victim);
    await this.#countInFlight();
    victim.freeze();
    await wait(this.#chance.between(500, 12_000));
    if (!victim.hasEnded) victim.thaw();
    this.#frozen.delete(victim);
  }

  async #startDispatcher(): Promise<void> {
    // It may well begin while the database is away.
    const process = this.#cluster.spawn(["dispatch"]);
    await Promise.race([process.ready.catch(() => undefined), process.ended]);
    if (process.hasEnded) throw new Error(`a dispatcher did not start: ${process.errors}`);
  }

  async #restartDatabase(): Promise<void> {
    if (this.#isDatabaseBusy) return;
    this.#isDatabaseBusy = true;
    const way = this.#chance.pick<EndOfServer>(["fast", "immediate", "kill"]);
    this.#note(`database ${way}`);
    await this.#countInFlight();
    await this.#postgres.end(way);
    await wait(this.#chance.between(100, 3_000));
    await this.#postgres.startAgain();
    this.#isDatabaseBusy = false;
  }

  async #freezeDatabase(): Promise<void> {
    if (this.#isDatabaseBusy) return;
    this.#isDatabaseBusy = true;
    this.#note("database frozen");
    await this.#countInFlight();
    await this.#postgres.freeze();
    await wait(this.#chance.between(200, 9_000));
    this.#postgres.thaw();
    this.#isDatabaseBusy = false;
  }

  async #troubleReceiver(): Promise<void> {
    this.#note("receiver in trouble");
    await this.#cluster.receiver.makeTrouble(
      this.#chance.pick([{ status: 503 }, { isSilent: true }, { delayMs: 700 }, { status: 429 }]),
    );
    await wait(this.#chance.between(500, 4_000));
    await this.#cluster.receiver.makeTrouble(null);
  }

  async #replay(): Promise<void> {
    const publication = this.#chance.pick(this.#cluster.producer.publications);
    if (publication?.deliveryId == null) return;
    const { accountId, deliveryId } = publication;
    const outcome = await replayDelivery(
      this.#cluster.pool,
      wholeAccount(accountId),
      deliveryId,
      RETENTION_MS,
    );
    this.#note(`replay ${outcome}`);
  }

  async #rotateSecret(): Promise<void> {
    const { accountId } = this.#chance.pick(this.#accounts);
    await this.#cluster.rotateSecret(accountId, 60);
    this.#note("secret rotated");
  }

  /** As many dispatchers as there were, all awake, and a database that answers. */
  async repair(dispatchers: number): Promise<void> {
    await until(async () => (await this.#cluster.countOpen().catch(() => -1)) >= 0);
    while (this.#cluster.dispatchers.length < dispatchers) await this.#cluster.startDispatcher();
  }
}
