import { type FieldError, Problem } from "../http/problems.ts";
import { type Html, html, type Part } from "./html.ts";
import type { Shown, View } from "./screen.ts";

/** What was refused of what a form asks for. */
export type Marks = {
  readonly areAny: boolean;
  /** A form's field, with the reason beside it where it was refused. @param names that the API has for it */
  readonly field: (names: readonly string[], show: (marked: Part) => Html) => Html;
};

export const NO_MARKS: Marks = { areAny: false, field: (_names, show) => show(null) };

export function marksOf(errors: readonly FieldError[]): Marks {
  const field: Marks["field"] = (names, show) => {
    const own = errors.filter(({ path }) => names.includes(nameOf(path)));
    if (own.length === 0) return show(null);
    const id = `${names[0]}-refusal`;
    return html`<div class="refused">${show(html` aria-invalid="true" aria-describedby="${id}"`)}
<p class="refusal" id="${id}"><span aria-hidden="true">✕</span> ${own.map(({ message }) => message).join(" ")}</p>
</div>`;
  };
  return { areAny: true, field };
}

/**
 * What a form was refused for: at its fields, or, in words for that, for all of it (the field `form`).
 * @param words by codes of problems
 * @throws what is no fault of the form's
 */
export function refusalsOf(error: unknown, words: Readonly<Record<string, string>>): readonly FieldError[] {
  if (!(error instanceof Problem)) throw error;
  const { code, errors } = error;
  if (words[code] !== undefined) return [{ path: "body.form", message: words[code] }];
  if (code !== "invalid_request" && code !== "exceeds_own_key") throw error;
  return errors;
}

/** The same, marked; what is about none of these fields is the form's. */
export function marksOfForm(errors: readonly FieldError[], fields: readonly string[]): Marks {
  if (errors.length === 0) return NO_MARKS;
  return marksOf(
    errors.map((error) => (fields.includes(nameOf(error.path)) ? error : { ...error, path: "body.form" })),
  );
}

/** Above a form: what is refused of all of it. */
export const formRefusal = (marks: Marks) => marks.field(["form"], () => html``);

/** `body.filter.status_code` and `query.status_code.0` are both the field `status_code`. */
function nameOf(path: string): string {
  return path.replace(/^\w+\.(?:filter\.)?/, "").split(".", 1)[0] ?? "";
}

/** What is wrong, also with what no field shows. A header's name tells nobody anything. */
export function refusalList(errors: readonly FieldError[]): Html | null {
  if (errors.length === 0) return null;
  const items = errors.map(({ path, message }) => {
    const name = path.startsWith("header.") ? "" : nameOf(path).replaceAll("_", " ");
    return html`<li>${name !== "" && html`<strong>${name}</strong>: `}${message}</li>`;
  });
  return html`<ul>${items}</ul>`;
}

/** A page that asks for what its form's fields say: what is refused of that is marked in the form. */
export function marking(show: (view: View, marks: Marks) => Promise<Shown>) {
  return async (view: View): Promise<Shown> => {
    try {
      return await show(view, NO_MARKS);
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "invalid_request") throw error;
      const { errors } = error;
      const shown = await show(view, marksOf(errors));
      if (!("main" in shown)) throw error;
      const { title, heading = title, main } = shown;
      const said = html`<section class="panel" role="alert"><h2>This cannot be searched for</h2>
${refusalList(errors)}
<p>Correct it, or <a href="?">start over</a>.</p></section>`;
      return { ...shown, title: `Not valid: ${title}`, heading, main: [said, main], status: 400 };
    }
  };
}
