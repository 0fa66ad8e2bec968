// Docker HEALTHCHECK: is this container's process alive? The image has no curl.
// Short-lived commands (migrate, account create, …) have no metrics port, and exit before it matters.
const { HOST = "127.0.0.1", METRICS_PORT = "9464" } = process.env;
const host =
  HOST === "0.0.0.0" ? "127.0.0.1" : HOST === "::" ? "[::1]" : HOST.includes(":") ? `[${HOST}]` : HOST;

try {
  const answer = await fetch(`http://${host}:${METRICS_PORT}/healthz`, {
    signal: AbortSignal.timeout(3_000),
  });
  process.exitCode = answer.ok ? 0 : 1;
} catch {
  process.exitCode = 1;
}
