import pg, { type ClientBase, type Pool, type PoolClient } from "pg";
import type { LogServer, StandbyFault } from "../model/standby.ts";
import { OtherCellError } from "./cells.ts";
import { coalesceByTurn } from "./coalesce.ts";
import { isCancelledByStandby, type Position, readPosition, readStanding, type Standing } from "./standby.ts";

/** Reads what may be read from a standby, where there is one; `read` is done again on the primary when that fails. */
export type ReadLog = <T>(read: (database: Pool | ClientBase) => Promise<T>) => Promise<T>;

/** For an installation without a standby. */
export function readingFrom(pool: Pool): ReadLog {
  return (read) => read(pool);
}

/**
 * How long a standby may take to come as far as the primary was. It takes a millisecond or a few; the connection, this
 * and a statement (STANDBY_TIMEOUTS) stay below a second together, after which the primary is asked.
 */
const CATCH_UP_MS = 150;
const CATCH_UP_FIRST_MS = 1;
/** How often a standby that has failed is tried. No request waits for that. */
const TRY_AGAIN_MS = 500;

export type LogReaderOptions = {
  /** For pages of the log, on the primary. */
  readonly primary: Pool;
  /** Tells how far the primary is. */
  readonly position: Pool;
  /** From createStandbyPool. */
  readonly standby: Pool;
  readonly onRead: (server: LogServer) => void;
  readonly onFault: (fault: StandbyFault, error: unknown) => void;
  /** The standby is read from, from now on or no longer. */
  readonly onChange: (isUsed: boolean, fault: StandbyFault | null) => void;
};

export type LogReader = { readonly read: ReadLog; stop(): Promise<void> };

/**
 * Reads from a standby that has replayed all that was committed when the reader asked, or else from the primary. So
 * nobody misses what they have just written, whichever process wrote it, or the pipeline in SQL; docs/design.md tells
 * which ways of knowing that lost.
 *
 * A standby that fails is set aside at once, and tried again beside the requests until it serves.
 */
export function createLogReader(options: LogReaderOptions): LogReader {
  const { primary, standby, onRead, onFault, onChange } = options;
  const readPrimary = coalesceByTurn(() => readPosition(options.position));
  let state: "not_tried" | "used" | "set_aside" = "not_tried";
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;

  function setAside(fault: StandbyFault, error: unknown): void {
    onFault(fault, error);
    if (fault === "cancelled") return;
    if (state !== "set_aside") onChange(false, fault);
    state = "set_aside";
    tryLater();
  }

  function tryLater(): void {
    clearTimeout(timer);
    if (isStopped) return;
    timer = setTimeout(() => {
      trying = tryNow();
    }, TRY_AGAIN_MS);
    timer.unref();
  }

  async function tryNow(): Promise<void> {
    const found = await onStandby(async () => true);
    if (found === null) return tryLater();
    if (state !== "used") onChange(true, null);
    state = "used";
  }

  /** Null: it has to be read from the primary. */
  async function onStandby<T>(read: (client: ClientBase) => Promise<T>): Promise<{ value: T } | null> {
    const position = await positionOf();
    if (position === null) return null;
    let client: PoolClient;
    try {
      client = await standby.connect();
    } catch (error) {
      setAside(error instanceof OtherCellError ? "refused" : "away", error);
      return null;
    }
    let isBroken = false;
    try {
      const standing = await untilReached(client, position);
      if (standing === "reached") return { value: await read(client) };
      isBroken = standing === "refused";
      setAside(standing, null);
    } catch (error) {
      isBroken = !(error instanceof pg.DatabaseError);
      setAside(isCancelledByStandby(error) ? "cancelled" : "away", error);
    } finally {
      client.release(isBroken);
    }
    return null;
  }

  /** Null when the primary does not answer, or is none: whoever reads is told by the primary itself. */
  async function positionOf(): Promise<Position | null> {
    try {
      return (await readPrimary("")).answer;
    } catch {
      return null;
    }
  }

  let trying = tryNow();
  return {
    read: async (read) => {
      const found = state === "used" ? await onStandby(read) : null;
      const value = found === null ? await read(primary) : found.value;
      onRead(found === null ? "primary" : "standby");
      return value;
    },
    stop: async () => {
      isStopped = true;
      clearTimeout(timer);
      await trying;
    },
  };
}

async function untilReached(client: ClientBase, position: Position): Promise<Standing> {
  const sinceMs = performance.now();
  for (let waitMs = CATCH_UP_FIRST_MS; ; waitMs *= 2) {
    const standing = await readStanding(client, position);
    if (standing !== "behind" || performance.now() - sinceMs + waitMs > CATCH_UP_MS) return standing;
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}
