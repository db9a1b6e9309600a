// What its reader chose, kept in the address: a link shows the same picture, and going back undoes a zoom.
// Rules: this file knows names and texts, not what they mean; whoever offers a choice reads and writes it here.

import { lengthOf, rangeTime, short, spelled } from "./format.js";

/** Where this page lies on its server: empty, or "/NAME" of one of several pipelines. */
export const BASE = location.pathname.replace(/\/[^/]*$/, "");

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

// Which time is shown: the last so many ticks, all, or from one time to another.
// Rules: times are ends of ticks, in seconds; a range is given in ticks, for these are what releases have. What is offered
// fits the pipeline: no length with too few ticks to see, none longer than its horizon.

const DAY = 86400;
const LENGTHS = [60, 300, 900, 3600, 21600, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];
const FEWEST_TICKS = 24;
const USUAL_TICKS = 48;
const USUAL_WINDOWS = 6;
const MOST_OFFERED = 5;
export const ALL = "all";
export const OWN_ZONE = "yours"; // how the address names the zone of whoever reads

/** Texts such as "2d" for the lengths that a pipeline offers, and all. */
export function offered({ step, horizon }) {
  const fits = (length) => length / step >= FEWEST_TICKS && (!horizon || length / step < horizon);
  return [...LENGTHS.filter(fits).slice(0, MOST_OFFERED).map(short), ALL];
}

/** The length shown at first: enough ticks, and enough of the longest windows that are released at their end alone. */
function usual({ step, horizon, slowest = 0 }) {
  const enough = Math.max(USUAL_TICKS * step, USUAL_WINDOWS * slowest);
  return offered({ step, horizon }).find((text) => text === ALL || lengthOf(text) >= enough);
}

/** The longest window, in seconds, of the series that have no tick of their own; 0 if there is none. */
export function slowestOf(series) {
  const ending = series.filter(({ windows }) => windows?.length && !windows.includes("tick"));
  return Math.max(0, ...ending.flatMap(({ windows }) => windows.map(lengthOf)).filter((length) => length > 0));
}

const moment = (text) => Date.parse(text) / 1000;

/** What is chosen: `{from, to}` in seconds, or `{last}` as its text. */
export function chosenRange(clock) {
  const [from, to] = [moment(choice("from")), moment(choice("to"))];
  if (from < to) return { from, to };
  const last = choice("last");
  return { last: last === ALL || lengthOf(last) > 0 ? last : usual(clock) };
}

export const chooseLast = (text, clock) => choose({ last: text === usual(clock) ? "" : text, from: "", to: "" }, { step: true });

export function chooseBetween(from, to) {
  const text = (seconds) => new Date(Math.round(seconds) * 1000).toISOString().replace(".000Z", "Z");
  if (to > from) choose({ from: text(from), to: text(to) }, { step: true });
}

/** The ticks and times shown, where `newest` is the tick that ended last, at `end`; `live`: it goes on with the ticks. */
export function rangeAt(clock, newest, end) {
  const { step } = clock;
  const { from, to, last } = chosenRange(clock);
  const at = (tick) => end + (tick - newest) * step;
  if (last === undefined) {
    const [first, until] = [newest + Math.ceil((from - end) / step), newest + Math.floor((to - end) / step)];
    return { first, last: until, from: at(first), to: at(until), length: until - first + 1, live: false, text: `${rangeTime(from)} to ${rangeTime(to)}` };
  }
  const length = last === ALL ? Infinity : Math.max(1, Math.round(lengthOf(last) / step));
  const first = Math.max(0, newest - length + 1);
  return { first, last: newest, from: at(first), to: end, length, live: true, text: last === ALL ? ALL : `last ${spelled(last)}` };
}
