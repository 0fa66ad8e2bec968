/**
 * Ports from 1024 up of databases, caches, queues, chat and machine control: a POST could be read as commands there,
 * and no webhook receiver listens on them. First and last port of each range.
 */
const REFUSED_PORTS: readonly (readonly [first: number, last: number])[] = [
  [1433, 1433],
  [1521, 1521],
  [2049, 2049],
  [2181, 2181],
  [2375, 2380],
  [3306, 3306],
  [3389, 3389],
  [4369, 4369],
  [5432, 5432],
  [5671, 5672],
  [5900, 5900],
  [5984, 5984],
  [6379, 6379],
  [6443, 6443],
  [6660, 6669],
  [6697, 6697],
  [8086, 8086],
  [8500, 8500],
  [9042, 9042],
  [9092, 9092],
  [9200, 9200],
  [9300, 9300],
  [10250, 10250],
  [10255, 10255],
  [11211, 11211],
  [15672, 15672],
  [25672, 25672],
  [27017, 27019],
  [50000, 50000],
];

const HTTPS_PORT = 443;
const FIRST_UNPRIVILEGED_PORT = 1024;
const LAST_PORT = 65_535;

export function isPortAllowed(port: number): boolean {
  if (port === HTTPS_PORT) return true;
  if (!Number.isInteger(port) || port < FIRST_UNPRIVILEGED_PORT || port > LAST_PORT) return false;
  return !REFUSED_PORTS.some(([first, last]) => port >= first && port <= last);
}

/** The port of a parsed https URL, whose `port` is empty for the default one. */
export function portOf(url: URL): number {
  return url.port === "" ? HTTPS_PORT : Number(url.port);
}
