import type { Screen } from "../screen.ts";

/** Ends the session. */
export const leave: Screen = {
  method: "POST",
  path: "/leave",
  show: async ({ leave }) => {
    await leave();
    return { goTo: "/console/left" };
  },
};
