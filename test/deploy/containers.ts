/** What every call of podman begins with. Its other runtime, crun, wants one version of cgroups alone. */
export const PODMAN = ["--log-level=error", "--runtime=runc"];

/**
 * As compose.yaml and the chart run it. Of podman's own limits a root without every right can set none, and its checks
 * of health want systemd.
 */
export const RUN = [
  ...[...PODMAN, "run", "--rm", "--label=sealpost-test", "--network=host", "--no-healthcheck"],
  ...["--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096"],
  ...["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"],
];
