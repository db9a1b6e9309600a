// One value for each key: the largest as bars with their bands, all of them in a table.
// Rules: a value within its band is called noise. Bars begin at 0, which is not the left end where values are below it.
// A quotient has two ends for each key in place of one band; keys of which too little is known come last.

import { Card } from "./card.js";
import { band, count, el, ends, near, setText, words } from "./format.js";
import { formOf, isClosed } from "./line_card.js";

const TOP = 15;
const MOST_ROWS = 300;

export class HistogramCard extends Card {
  constructor(series, planned, shape = "histogram") {
    super(series, planned, shape);
    this.rows = [];
    this.list = el("ol", { class: "bars", "aria-label": `Largest values of ${words(series.name)}` });
    this.filter = el("input", { type: "search", placeholder: "filter", "aria-label": "Filter the keys", autocomplete: "off" });
    this.table = el("tbody");
    this.summary = el("summary", {}, "Show all");
    this.details = el("details", { class: "all" }, this.summary, this.filter,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All values" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Key", "Value", "Band"].map((name) => el("th", { scope: "col" }, name)))), this.table)));
    this.body.append(this.list, this.details);
    this.filled = 0;
    this.filter.addEventListener("input", () => this.#fillTable());
    this.details.addEventListener("toggle", () => this.#fillTable());
  }

  take() {}

  /** Each key with its value, its ends, what is said of them, and whether the value says anything. */
  entries({ values, band: width }) {
    const entry = ([key, value]) => ({ key, value, low: value - width, high: value + width, text: count(value), spread: band(width), noise: Math.abs(value) <= width });
    return Object.entries(values).map(entry).sort((one, two) => two.value - one.value);
  }

  /** The sentence under the bars: of all keys, so many say nothing. */
  meaning(faint, many) {
    return `Each value${this.over} ${band(this.latest.band)} with ${this.confidence()} confidence.` +
      (faint === 0 ? "" : ` Within the band, so not distinguishable from noise: ${count(faint)} of ${count(many)} keys.`);
  }

  show() {
    this.sorted = this.entries(this.latest);
    const top = this.sorted.slice(0, TOP);
    const scale = scaleOf(top);
    while (this.rows.length < top.length) this.#addRow();
    this.rows.forEach((row, index) => fillRow(row, top[index], scale));
    setText(this.summary, `Show all ${count(this.sorted.length)}`);
    setText(this.note, this.meaning(this.sorted.filter(({ noise }) => noise).length, this.sorted.length));
    if (this.details.open && performance.now() - this.filled > 1000) this.#fillTable();
  }

  #addRow() {
    const parts = { key: el("span", { class: "key" }), bar: el("span", { class: "bar" }), whisker: el("span", { class: "whisker" }), value: el("span", { class: "amount" }) };
    parts.row = el("li", {}, parts.key, el("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.whisker), parts.value);
    this.rows.push(parts);
    this.list.append(parts.row);
  }

  #fillTable() {
    if (!this.details.open || this.latest === null) return;
    this.filled = performance.now();
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.sorted.filter(({ key }) => key.toLowerCase().includes(wanted)).slice(0, MOST_ROWS);
    this.table.replaceChildren(...found.map(({ key, text, spread, noise }) => el("tr", { class: noise ? "noise" : null },
      el("th", { scope: "row" }, key), el("td", {}, text), el("td", {}, spread, noise ? this.faint : null))));
  }

  get faint() {
    return " · noise";
  }
}

/** A mean or a share for each key. */
export class QuotientsByKeyCard extends HistogramCard {
  entries({ values, lows, highs }) {
    const form = formOf(this.series);
    const entry = ([key, value], place) => {
      const [low, high] = [lows[place] ?? -Infinity, highs[place] ?? Infinity];
      const width = Number.isFinite(high - low) ? (high - low) / 2 : 0;
      return { key, value, low, high, text: value === null ? "–" : near(value, width, form), spread: ends(low, high, width, form), noise: !isClosed(low, high, form) };
    };
    return Object.entries(values).map(entry).sort((one, two) => one.noise - two.noise || (two.value ?? 0) - (one.value ?? 0));
  }

  meaning(faint, many) {
    return `Each ${this.exactly}${this.over} lies between its two ends with ${this.confidence()} confidence.` +
      (faint === 0 ? "" : ` Too few events for both ends: ${count(faint)} of ${count(many)} keys.`);
  }

  get faint() {
    return " · too few events";
  }
}

/** Where 0 is, and how far it is from end to end, for what is known of these entries. */
function scaleOf(entries) {
  const known = entries.filter(({ low, high }) => Number.isFinite(high - low));
  const zero = Math.min(0, ...known.filter(({ value }) => value < 0).map(({ low }) => low));
  return { zero, span: Math.max(0, ...known.map(({ high }) => high)) - zero || 1 };
}

function fillRow(parts, entry, scale) {
  parts.row.hidden = entry === undefined;
  if (entry === undefined) return;
  const { key, value, low, high, text, spread, noise } = entry;
  setText(parts.key, key);
  setText(parts.value, text);
  parts.row.classList.toggle("noise", noise);
  parts.row.title = `${key}: ${text} ${spread}${noise ? " (says nothing: noise)" : ""}`;
  placeBar(parts, { value, low, high }, scale);
}

/** A bar from 0 to the value, and its whisker from end to end; what is open reaches the end of the track. */
export function placeBar({ bar, whisker }, { value, low, high }, { zero, span }) {
  const at = (number) => Math.min(100, Math.max(0, ((number - zero) / span) * 100));
  bar.style.left = `${at(Math.min(0, value))}%`;
  bar.style.width = `${at(Math.max(0, value)) - at(Math.min(0, value))}%`;
  whisker.style.left = `${at(low)}%`;
  whisker.style.width = `${at(high) - at(low)}%`;
}
