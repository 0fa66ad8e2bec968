import { visit } from "jsonc-parser";

/**
 * Where members stand that their object has more than once, each named once, at most `placesMax`. JSON.parse takes the
 * last of them without a word. `text` is known to be JSON; names are compared as what their escapes mean.
 */
export function findRepeatedMembers(text: string, placesMax: number): readonly string[] {
  const places = new Set<string>();
  const openObjects: Set<string>[] = [];
  visit(text, {
    onObjectBegin: () => {
      openObjects.push(new Set());
    },
    onObjectProperty: (name, _offset, _length, _line, _character, pathOfObject) => {
      const names = openObjects.at(-1);
      const isRepeated = names?.has(name) ?? false;
      if (isRepeated && places.size < placesMax) places.add([...pathOfObject(), name].join("."));
      names?.add(name);
    },
    onObjectEnd: () => {
      openObjects.pop();
    },
  });
  return [...places];
}
