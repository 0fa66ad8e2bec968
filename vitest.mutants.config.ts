// The tests that npm run mutants judges: those of npm test that concern what test/mutants/stryker.config.json mutates,
// and run it in their own process, where alone a mutant is alive.
import { matchesGlob } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import config from "./vitest.config.ts";

/** In this order, quick ones first: the first failure of a mutant is its last. */
const include = [
  "test/base/model/backoff.test.ts",
  "test/delivery/schedule/*.test.ts",
  "test/egress/post/{failures,result}.test.ts",
  "test/egress/rules/unsafe-allowed-targets.test.ts",
  "test/egress/rules/address.test.ts",
  "test/egress/rules/target-url.test.ts",
  "test/delivery/webhook.test.ts",
  "test/signing/delivery-inbox.test.ts",
  "test/signing/verify-webhook.test.ts",
  "test/signing/verify-signature.test.ts",
  "test/delivery/lane.test.ts",
  "test/delivery/silent-lanes.test.ts",
  "test/delivery/lanes.test.ts",
  "test/delivery/lanes-model.test.ts",
  "test/workspace/roles.test.ts",
  "test/http/fingerprint.test.ts",
  "test/http/idempotency.test.ts",
  "test/http/uploads.test.ts",
  "test/base/database/{idempotency,locks,storage}.test.ts",
  "test/api/moved.test.ts",
  "test/workspace/{membership,storage}.test.ts",
];

class InThatOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rankOf = ({ moduleId }: TestSpecification) =>
      include.findIndex((pattern) => matchesGlob(moduleId, `**/${pattern}`));
    return files.sort((one, other) => rankOf(one) - rankOf(other));
  }
}

const { test } = config({ mode: "test", command: "serve" });

export default defineConfig({
  test: {
    ...test,
    // A mutant may live in what a module does when it is loaded.
    isolate: true,
    include,
    setupFiles: ["test/support/patient-tests.ts", "test/mutants/first-failure.ts"],
    sequence: { sequencer: InThatOrder },
  },
});
