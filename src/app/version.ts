import manifest from "../../package.json" with { type: "json" };

/** Of this program, as in CHANGELOG.md: `1.0.0`. */
export const version: string = manifest.version;
