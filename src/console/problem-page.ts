import type { DescribedProblem } from "../api/kernel.ts";
import { type Html, html } from "./html.ts";

/** An error, as a page: what it is, what to do, and what to tell support. */
export function problemPage(problem: DescribedProblem, requestId: string): { title: string; main: Html } {
  const hasEnded = problem.code === "unauthorized";
  const { title, meaning, remedy } = OWN_WORDS[problem.code] ?? problem;
  return {
    title,
    main: html`<section class="notice" data-problem="${problem.code}"${hasEnded && html` data-session-ended`}>
<h1>${title}</h1>
<p>${meaning}</p>
${problem.errors.length > 0 && html`<ul>${problem.errors.map(({ message }) => html`<li>${message}</li>`)}</ul>`}
<p>${remedy}</p>
<p class="fine">Request <code>${requestId}</code></p>
</section>`,
  };
}

/** In the console nobody has keys in hand, or sees members of a body. */
const OWN_WORDS: Readonly<Record<string, Pick<DescribedProblem, "title" | "meaning" | "remedy">>> = {
  unauthorized: {
    title: "This session has ended",
    meaning: "It was open for as long as it was meant to be, or it was ended.",
    remedy: "Open the console again from where you came from.",
  },
  invalid_request: {
    title: "Invalid request",
    meaning: "Something that was asked for is not valid.",
    remedy: "Go back, and correct it.",
  },
};
