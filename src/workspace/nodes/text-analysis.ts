export type WordCount = { readonly word: string; readonly count: number };

export type TextAnalysis = {
  readonly lines: number;
  readonly words: number;
  /** ISO 639-1; null: it is too short to tell. */
  readonly language: string | null;
  /** In small letters, the most frequent first; of those that are as frequent, in the order of the alphabet. */
  readonly top_words: readonly WordCount[];
};

/** No language's words are longer; what is, is data, and would make its item as long. */
const WORD_CHARS_MAX = 64;

const segmenter = new Intl.Segmenter("en", { granularity: "word" });

/** @param topWords how many of the most frequent words are told */
export async function analyzeText(text: string, topWords: number): Promise<TextAnalysis> {
  const counts = new Map<string, number>();
  let words = 0;
  for (const { segment, isWordLike } of segmenter.segment(text)) {
    if (!isWordLike) continue;
    words++;
    if (segment.length > WORD_CHARS_MAX) continue;
    const word = segment.toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return {
    lines: countLines(text),
    words,
    language: await detectLanguage(text),
    top_words: mostFrequent(counts, topWords),
  };
}

/** Sorting all of them took a second where each word stands once, and few are wanted. */
function mostFrequent(counts: ReadonlyMap<string, number>, countMax: number): readonly WordCount[] {
  const top: WordCount[] = [];
  for (const [word, count] of counts) {
    const isBehind = (other: WordCount) =>
      other.count > count || (other.count === count && other.word < word);
    if (top.length === countMax && isBehind(top[countMax - 1]!)) continue;
    top.splice(top.findLastIndex(isBehind) + 1, 0, { word, count });
    if (top.length > countMax) top.pop();
  }
  return top;
}

/** The last one may end without a line break. */
function countLines(text: string): number {
  const breaks = text.match(/\r\n|\n|\r/g)?.length ?? 0;
  return text === "" || /[\r\n]$/.test(text) ? breaks : breaks + 1;
}

/** It takes 90 MB and a third of a second to load: only who analyses texts pays for it. */
async function detectLanguage(text: string): Promise<string | null> {
  const { eld } = await import("eld/extrasmall");
  const detected = eld.detect(text);
  return detected.language !== "" && detected.isReliable() ? detected.language : null;
}
