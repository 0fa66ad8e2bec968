# One image for every command: `docker run … serve`, `dispatch`, `migrate`, `account create`, …
# PostgreSQL is not in it, so DATABASE_URL must be set; `start` and `demo` on an embedded one are for machines with npm.

# A tag can be moved. Pin what you have looked at: --build-arg NODE_IMAGE=node:26-bookworm-slim@sha256:… (docs/operating.md).
ARG NODE_IMAGE=node:26-bookworm-slim
FROM ${NODE_IMAGE} AS packages
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Optional ones are the embedded PostgreSQL and a Node of our own: the image has both elsewhere. No package needs its
# install script, so none is run, and nothing is ever compiled.
RUN npm ci --omit=dev --omit=optional --ignore-scripts

FROM ${NODE_IMAGE}
# Node runs the TypeScript as it is, but not below node_modules: the program lives in a folder of its own.
WORKDIR /app
# In a container the address of its own is the one that others reach.
ENV NODE_ENV=production HOST=0.0.0.0
COPY package.json ./
COPY --from=packages /app/node_modules ./node_modules
COPY scripts/healthcheck.mjs ./scripts/
COPY sql ./sql
COPY src ./src
# Nothing is written but logs, to standard output: run it with --read-only.
USER node
# The API; metrics and probes.
EXPOSE 8080 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["node", "scripts/healthcheck.mjs"]
# SIGTERM ends it in peace within ATTEMPT_DEADLINE_MS and 2 s: give it that long (docker stop --time 20).
ENTRYPOINT ["node", "src/sealpost.mjs"]
CMD ["serve"]
