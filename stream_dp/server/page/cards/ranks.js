// A top list: names by rank, with their values, and which of them are not told apart.
// Rules: a rank is a range where names are not told apart: from the first place that a name may have to the last. A line
// stands between two names only where everybody above it is told apart from everybody below. Nobody has a rank before a
// window that ends is over.

import { Card } from "./card.js";
import { band, count, el, sentence, setText } from "../format.js";
import { placeBar } from "./keys.js";
import { NONE_OVER } from "./line.js";

const MOST_NAMED = 8;

export class RanksCard extends Card {
  constructor(series, planned, shape = "ranks") {
    super(series, planned, shape);
    this.caption = el("caption");
    this.table = el("table", { class: "ranking" }, this.caption, el("thead", {}, el("tr", {},
      ...[["Rank", "rank"], ["Name", ""], ["", "track-cell"], [sentence(series.unit || "value"), "number"]].map(([name, kind]) => el("th", { scope: "col", class: kind }, name || el("span", { class: "unseen" }, "Picture"))))));
    this.body.append(el("div", { class: "ranking-holder" }, this.table));
  }

  get tabled() {
    return false;
  }

  /** By how many bands the values listed are off 0, at least half of them. */
  bandsOf({ ranks, band: width }) {
    const off = ranks.map(({ value }) => Math.abs(value) / (width || Number.MIN_VALUE)).sort((one, two) => two - one);
    return off[(off.length - 1) >> 1] ?? 0;
  }

  take() {}

  rows() {
    const { ranks, band: width, end, tick } = this.latest;
    const row = ({ name, value, first, last, tied }) => [end, tick, this.window ?? "", first, last, name, value, value - width, value + width, tied.join("; ")];
    return { names: ["end", "tick", "window", "first rank", "last rank", "key", "value", "low", "high", "not told apart from"], rows: places(ranks).map(row) };
  }

  /** The bars as they are drawn, for a picture. */
  bars() {
    const { ranks, band: width } = this.latest;
    const scale = Math.max(0, ...ranks.map(({ value }) => value + width)) || 1;
    const at = (number) => Math.min(1, Math.max(0, number / scale));
    return ranks.map(({ name, value }) => ({ key: name, text: count(value), from: 0, to: at(value), low: at(value - width), high: at(value + width) }));
  }

  show() {
    const { ranks, band: width } = this.latest;
    const ordered = places(ranks);
    setText(this.caption, `Top ${count(ranks.length)}${this.over}`);
    this.table.hidden = ranks.length === 0;
    const text = JSON.stringify([this.window, ranks, width]);
    if (text !== this.drawn) {
      this.drawn = text;
      const scale = Math.max(0, ...ranks.map(({ value }) => value + width)) || 1;
      for (const body of this.table.querySelectorAll("tbody")) body.remove();
      this.table.append(...groups(ordered).map((rows) => el("tbody", { class: rows.length > 1 ? "tied" : null }, ...rows.map((row) => line(row, width, scale)))));
    }
    setText(this.note, ranks.length === 0 ? NONE_OVER : `Each value ${band(width)}, all at once, with ${this.confidence()} confidence. ${tiedText(ordered)}`);
  }
}

/** Each name with the first and the last place that it may have. */
function places(ranks) {
  const listed = new Map(ranks.map(({ name }, place) => [name, place]));
  return ranks.map(({ name, value, tied = [], more = 0 }, place) => {
    const others = tied.filter((other) => other !== name);
    const above = others.filter((other) => listed.has(other) && listed.get(other) < place).length;
    const outside = others.filter((other) => !listed.has(other));
    return { name, value, tied: others, more, place, first: place + 1 - above, last: place + 1 + others.length - above + more, outside };
  });
}

/** Runs of names that nobody tells apart from the run before or behind. */
function groups(ordered) {
  const found = [];
  for (const row of ordered) {
    const tied = found.at(-1)?.some(({ last }) => last > row.place);
    if (tied) found.at(-1).push(row);
    else found.push([row]);
  }
  return found;
}

function line({ name, value, first, last }, width, scale) {
  const parts = { bar: el("span", { class: "bar" }), whisker: el("span", { class: "whisker" }) };
  placeBar(parts, { value, low: value - width, high: value + width }, { zero: 0, span: scale });
  return el("tr", { class: Math.abs(value) <= width ? "noise" : null, title: `${name}: ${count(value)} ${band(width)}` },
    el("td", { class: "rank" }, first === last ? String(first) : `${first}–${last}`),
    el("th", { scope: "row" }, name),
    el("td", { class: "track-cell" }, el("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.whisker)),
    el("td", { class: "number" }, count(value)));
}

function tiedText(ordered) {
  if (ordered.every(({ tied, more }) => tied.length + more === 0)) return "All names in the list can be told apart.";
  const outside = [...new Set(ordered.flatMap((row) => row.outside))];
  const more = Math.max(...ordered.map((row) => row.more));
  const named = outside.slice(0, MOST_NAMED);
  const rest = outside.length - named.length + more;
  const others = outside.length === 0 ? "" : ` Perhaps as high: ${named.join(", ")}${rest > 0 ? ` and ${count(rest)} more` : ""}.`;
  return `Names with a range of ranks cannot be ordered, because of the noise.${others}`;
}
