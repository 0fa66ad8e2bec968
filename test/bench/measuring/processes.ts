// CPU and memory of processes that are not ours to ask, from /proc.
import { readdirSync, readFileSync } from "node:fs";

/** Linux counts CPU in hundredths of a second for every program, whatever the kernel's own tick. */
const MICROSECONDS_PER_TICK = 10_000;

/** User and system time of a process since it began, and of its children that have ended. Microseconds. */
export function cpuMicroseconds(pid: number): number {
  const { own, reaped } = readCpu(pid);
  return own + reaped;
}

function readCpu(pid: number): { own: number; reaped: number } {
  // The command's name stands in parentheses and may hold anything.
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
  const [own, reaped] = [11, 13].map(
    (at) => (Number(fields[at]) + Number(fields[at + 1])) * MICROSECONDS_PER_TICK,
  );
  return { own: own ?? 0, reaped: reaped ?? 0 };
}

/** Memory now, and the most that it has been. MiB. */
export function memoryMib(pid: number): { now: number; peak: number } {
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const read = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0) / 1024;
  return { now: read("VmRSS"), peak: read("VmHWM") };
}

export function parentOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ")[1]);
}

/** CPU of a whole server by the names that its processes go by; what has ended counts as "ended". Microseconds. */
export function serverCpuMicroseconds(
  postmasterPid: number,
  nameOf: (pid: number) => string,
): ReadonlyMap<string, number> {
  const byName = new Map<string, number>();
  const add = (name: string, cpu: number) => byName.set(name, (byName.get(name) ?? 0) + cpu);
  const postmaster = readCpu(postmasterPid);
  add("ended", postmaster.own + postmaster.reaped);
  for (const entry of readdirSync("/proc")) {
    const pid = Number(entry);
    if (!Number.isInteger(pid)) continue;
    try {
      if (parentOf(pid) === postmasterPid) add(nameOf(pid), readCpu(pid).own);
    } catch {
      // It has ended since the folder was listed.
    }
  }
  return byName;
}

export type MachineTime = { readonly all: number; readonly idle: number };

/** Of all processors since the machine began, in ticks. Waiting for the disk is idle; what others took is not. */
export function machineTime(): MachineTime {
  const [, ...ticks] = readFileSync("/proc/stat", "latin1").split("\n", 1)[0]!.split(/\s+/).map(Number);
  // user nice system idle iowait irq softirq steal; guests' time is in the first two already.
  const [, , , idle = 0, waiting = 0] = ticks;
  return { all: ticks.slice(0, 8).reduce((sum, each) => sum + each, 0), idle: idle + waiting };
}

/** From 0 to 1. */
export function busyShare(first: MachineTime, last: MachineTime): number {
  return 1 - (last.idle - first.idle) / (last.all - first.all);
}
