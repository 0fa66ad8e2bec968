import type { ErasedResult, Operation } from "../../src/http/operation.ts";
import { raisedCodes } from "../../src/http/problem-catalogue.ts";
import { Problem } from "../../src/http/problems.ts";
import type { CheckOutcome } from "../../src/http/responses.ts";

/** Catches operations that come to what they do not declare: a bug of ours, answered with 500. */
export const checkOutcome: CheckOutcome = (operation, outcome) => {
  if ("result" in outcome) return checkResult(operation, outcome.result);
  const { error } = outcome;
  if (!(error instanceof Problem) || raisedCodes(operation).includes(error.code)) return;
  throw new Error(`Operation ${operation.key} does not declare ${error.code}.`, { cause: error });
};

function checkResult({ key, response }: Operation, result: ErasedResult): void {
  const kind = kindOf(result);
  if (kind !== response.kind)
    throw new Error(`Operation ${key} declares ${response.kind} and returned ${kind}.`);
  if (response.kind === "bytes" && "bytes" in result!) {
    const { bytes } = result;
    const checked = response.documentedAs.safeParse(JSON.parse(Buffer.from(bytes).toString()));
    if (!checked.success)
      throw new Error(`Operation ${key} returned what it does not declare.`, checked.error);
  }
  if (response.kind !== "json" || result === undefined || "bytes" in result || "content" in result) return;
  const isOther = "other" in result;
  const checked = isOther
    ? response.other?.schema.safeParse(result.other)
    : response.schema.safeParse(result.body);
  if (!checked?.success)
    throw new Error(`Operation ${key} returned what it does not declare.`, checked?.error);
  if (isOther) return;
  const undeclared = Object.keys(result.headers ?? {}).filter((name) => !(name in response.headers));
  if (undeclared.length > 0)
    throw new Error(`Operation ${key} does not declare the header ${undeclared.join()}.`);
}

function kindOf(result: ErasedResult): "empty" | "bytes" | "content" | "json" {
  if (result === undefined) return "empty";
  if ("bytes" in result) return "bytes";
  return "content" in result ? "content" : "json";
}
