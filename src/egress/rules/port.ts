/**
 * Ports from 1024 up of databases, caches, queues, chat and machine control: a POST could be read as commands there,
 * and no webhook receiver listens on them. SQL refuses the same (`webhook_url_fault`).
 */
const REFUSED_PORTS: readonly number[] = [
  1433, 1521, 2049, 2181, 2375, 2376, 2377, 2378, 2379, 2380, 3306, 3389, 4369, 5432, 5671, 5672, 5900, 5984,
  6379, 6443, 6660, 6661, 6662, 6663, 6664, 6665, 6666, 6667, 6668, 6669, 6697, 8086, 8500, 9042, 9092, 9200,
  9300, 10250, 10255, 11211, 15672, 25672, 27017, 27018, 27019, 50000,
];

const HTTPS_PORT = 443;
const FIRST_UNPRIVILEGED_PORT = 1024;
const LAST_PORT = 65_535;

export function isPortAllowed(port: number): boolean {
  if (port === HTTPS_PORT) return true;
  if (!Number.isInteger(port) || port < FIRST_UNPRIVILEGED_PORT || port > LAST_PORT) return false;
  return !REFUSED_PORTS.includes(port);
}

/** The port of a parsed https URL, whose `port` is empty for the default one. */
export function portOf(url: URL): number {
  return url.port === "" ? HTTPS_PORT : Number(url.port);
}
