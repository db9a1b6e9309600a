// What its reader chose, kept in the address: a link shows the same picture, and going back undoes a zoom.
// Rules: this file knows names and texts, not what they mean; whoever offers a choice reads and writes it here.

const listeners = new Set();
let chosen = new URLSearchParams(location.search);

export const choice = (name) => chosen.get(name) ?? "";
export const choices = (name) => chosen.getAll(name);

/** Change choices: a text, a list of texts, or nothing for what is as it was at first; `step` makes going back undo it. */
export function choose(changes, { step = false } = {}) {
  const before = String(chosen);
  for (const [name, value] of Object.entries(changes)) {
    chosen.delete(name);
    for (const text of [value ?? ""].flat()) if (text !== "") chosen.append(name, text);
  }
  if (String(chosen) === before) return;
  history[step ? "pushState" : "replaceState"](null, "", address());
  tell();
}

/** The page with these choices. */
export const address = () => `${location.pathname}${String(chosen) && `?${chosen}`}${location.hash}`;

export const onChoice = (listener) => listeners.add(listener);

const tell = () => listeners.forEach((listener) => listener());

addEventListener("popstate", () => {
  chosen = new URLSearchParams(location.search);
  tell();
});
