import { stripTypeScriptTypes } from "node:module";
import { basename } from "node:path";
import type { Rule, SourceFile } from "./source-files.ts";

// Biome breaks code at 110; what it cannot break, sentences and addresses, may end a word later.
const columnsMax = 120;
const linesMax = 400;

const isCode = (file: SourceFile) => /\.(?:ts|mjs|py|go)$/.test(file.path);

export const lineLength: Rule = {
  name: "line length",
  find: (files) =>
    files
      // PostgreSQL breaks no lines, and wrote that file.
      .filter((file) => /\.(?:ts|mjs|py|go|sql)$/.test(file.path) && file.path !== "sql/schema.sql")
      .flatMap((file) =>
        file.text.split("\n").flatMap((line, index) => {
          const columns = [...line].length;
          if (columns <= columnsMax) return [];
          const message = `line ${index + 1} has ${columns} columns: break it before column ${columnsMax}`;
          return [{ rule: "line length", path: file.path, message }];
        }),
      ),
};

export const fileLength: Rule = {
  name: "file length",
  find: (files) =>
    files.filter(isCode).flatMap((file) => {
      const lines = linesOf(file);
      if (lines <= linesMax) return [];
      const message = `has ${lines} lines: split it by noun, at most ${linesMax} each`;
      return [{ rule: "file length", path: file.path, message }];
    }),
};

/** Vitest reads more than Node: tests of a file that no process can start would pass. */
export const readByNode: Rule = {
  name: "read by Node",
  find: (files) =>
    files
      .filter(({ path }) => /^(?:src|test|scripts)\/.+\.ts$/.test(path))
      .flatMap((file) => {
        try {
          stripTypeScriptTypes(file.text);
          return [];
        } catch (error) {
          const message = `is not read by Node: ${error instanceof Error ? error.message : error}`;
          return [{ rule: "read by Node", path: file.path, message }];
        }
      }),
};

const vagueWords = /^(?:utils?|helpers?|common|misc|services?|managers?)$/;

export const fileNames: Rule = {
  name: "file name",
  find: (files) =>
    files
      // Python and Go have rules of their own for names.
      .filter(({ path }) => path.includes("/") && !path.startsWith(".") && !/\.(?:py|go)$/.test(path))
      .flatMap((file) => {
        const isMigration = /^sql\/(?:[a-z]+\/)?\d{4}_[a-z0-9]+(?:_[a-z0-9]+)*\.sql$/.test(file.path);
        const words = file.path.split(/[/.-]/);
        if (words.some((word) => vagueWords.test(word))) {
          return [named(file, "says nothing: name the noun that the file is about")];
        }
        const isKebab = /^[a-z0-9]+(?:-[a-z0-9]+)*(?:\.[a-z0-9-]+)+$/.test(basename(file.path));
        // This one name is everybody's, and npm shows a package's file only under it.
        const isReadme = basename(file.path) === "README.md";
        return isKebab || isMigration || isReadme
          ? []
          : [named(file, "is not in kebab-case: small letters and hyphens")];
      }),
};

function named(file: SourceFile, what: string) {
  return { rule: "file name", path: file.path, message: `${basename(file.path)} ${what}` };
}

function linesOf(file: SourceFile): number {
  return file.text.replace(/\n$/, "").split("\n").length;
}
