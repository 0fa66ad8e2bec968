import { isDisplayName } from "../../model/display-name.ts";

/** Whoever downloads a space gets folders of these names: one must not lead elsewhere. */
export function isFolderName(text: string): boolean {
  return isDisplayName(text) && !/[/\\]/.test(text) && text !== "." && text !== "..";
}
