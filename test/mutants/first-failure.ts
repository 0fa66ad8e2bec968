// Runs before each test file that npm run mutants judges: a property that fails has found its mutant, and need not look
// for the smallest example of it.
import fc from "fast-check";

fc.configureGlobal({ endOnFailure: true });
