// One value for each key: the largest as bars with their bands, all of them in a table, chosen ones over time.
// Rules: what is kept over time is kept of chosen keys only. a value within its band is called noise. Bars begin at 0, which is not the left end where values are below it.
// A quotient has two ends for each key in place of one band; keys of which too little is known come last.

import { Card, lowerBound } from "./card.js";
import { Chart, aboveZero, chartPlace, colour, drawLone, fading, floored, framed, strides, together } from "./charts.js";
import { band, count, el, ends, isoOf, near, seconds, sentence, setText } from "../format.js";
import { NONE_OVER, formOf, inWords, isClosed, noneOver } from "./line.js";
import { choices, choose } from "../view.js";

const TOP = 15;
const MOST_ROWS = 300;
const REFRESH_MILLISECONDS = 1000;
const MOST_CELLS = 500_000; // numbers that are asked for, to show some of them over time

/** `tick`, `x` and, by key, columns of values with their ends. */
export const noKeys = () => ({ tick: [], x: [], columns: new Map() });

export class HistogramCard extends Card {
  constructor(series, planned, shape = "histogram") {
    super(series, planned, shape);
    this.lines = [];
    this.list = el("ol", { class: "bars", "aria-label": `Largest values of ${this.title}` });
    this.filter = el("input", { type: "search", placeholder: "filter", "aria-label": "Filter the keys", autocomplete: "off" });
    this.table = el("tbody");
    this.summary = el("summary", {}, "All keys with their bands");
    this.details = el("details", { class: "all", hidden: true }, this.summary, this.filter,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All values" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["Key", sentence(series.unit || "value"), "Band"].map((name) => el("th", { scope: "col" }, name)))), this.table)));
    this.kept = noKeys();
    this.legend = el("ul", { class: "chosen-keys", "aria-label": `Keys of ${this.title} shown over time` });
    const place = chartPlace();
    this.holder = place.holder;
    this.overTimeBox = el("div", { class: "over-time", hidden: true }, this.legend, place.box);
    this.chart = new KeysChart(place, (x) => this.#saidAt(x), this.floor);
    this.chosen = choices(`keys.${series.name}`).slice(0, COLOURS);
    this.body.append(this.list, this.overTimeBox, this.details);
    this.filled = 0;
    this.waits = false;
    this.filter.addEventListener("input", () => this.#fillTable());
    this.details.addEventListener("toggle", () => this.#fillTable());
  }

  get overTime() {
    return this.chosen?.length > 0;
  }

  get tabled() {
    return this.overTime;
  }

  get mostTicks() {
    return Math.floor(MOST_CELLS / (this.series.domain?.length ?? 1));
  }

  /** The first tick that is kept. */
  get since() {
    return this.kept.tick[0];
  }

  get stores() {
    return [this.kept];
  }

  empty() {
    this.kept = noKeys();
  }

  take(release, kept = this.kept) {
    if (this.chosen.length === 0) return;
    kept.tick.push(release.tick);
    kept.x.push(seconds(release.end));
    for (const key of this.chosen) {
      if (!kept.columns.has(key)) kept.columns.set(key, { value: [], low: [], high: [] });
      const told = key in release.values ? this.pointOf(release, key) : {};
      for (const [end, column] of Object.entries(kept.columns.get(key))) column.push(told[end] ?? null);
    }
  }

  /** Show a key over time, or no longer. */
  #choose(key) {
    const others = this.chosen.filter((each) => each !== key);
    this.chosen = others.length < this.chosen.length ? others : [...others.slice(1 - COLOURS), key];
    choose({ [`keys.${this.series.name}`]: this.chosen });
    this.reached = null; // so what it misses is loaded
    this.empty();
    this.redraw();
  }

  #keyButton(key, kind) {
    const button = el("button", { type: "button", class: kind, title: "Show over time" }, key);
    button.addEventListener("click", () => this.#choose(button.textContent));
    return button;
  }

  /** The value of a key and its ends: of a long history, so no more than these. */
  pointOf({ values, band: width, lows, highs }, key) {
    const value = values[key];
    if (value === null) return {};
    const place = lows === undefined ? -1 : Object.keys(values).indexOf(key);
    return { value, low: lows?.[place] ?? value - width, high: highs?.[place] ?? value + width };
  }

  /** By how many bands the values shown are off 0, at least half of them. */
  bandsOf(part) {
    const shown = this.entries(part).slice(0, TOP);
    const off = shown.map(({ value, low, high }) => (Number.isFinite(value) && Number.isFinite(high - low) ? Math.abs(value) / ((high - low) / 2 || Number.MIN_VALUE) : 0)).sort((one, two) => two - one);
    return off[(off.length - 1) >> 1] ?? 0;
  }

  /** Each key with its value, its ends, what is said of them, and whether the value says anything. */
  entries({ values, band: width, lows, highs }) {
    const entry = ([key, value], place) => {
      const [low, high] = [lows?.[place] ?? value - width, highs?.[place] ?? value + width];
      const spread = lows === undefined ? band(width) : `${count(low)} to ${count(high)}`;
      return { key, value, low, high, text: count(value), spread, noise: Math.abs(value) <= width };
    };
    return Object.entries(values).map(entry).filter(({ value }) => value !== null).sort((one, two) => two.value - one.value);
  }

  /** The sentence under the bars: of all keys, so many say nothing. */
  meaning(faint, many) {
    if (many === 0) return NONE_OVER;
    return `Each value${this.over} ${band(this.latest.band)}${this.series.unit ? ` ${this.series.unit}` : ""} with ${this.confidence()} confidence.` +
      (faint === 0 ? "" : ` ${count(faint)} of ${count(many)} keys lie within the band, so they may be noise alone.`);
  }

  show() {
    this.#showChosen();
    this.sorted = this.entries(this.latest);
    const top = this.sorted.slice(0, TOP);
    const scale = scaleOf(top);
    while (this.lines.length < top.length) this.#addRow();
    this.lines.forEach((row, index) => fillRow(row, top[index], scale, this.chosen));
    this.details.hidden = false;
    setText(this.summary, `All ${count(this.sorted.length)} keys with their bands`);
    this.filter.hidden = this.sorted.length <= TOP;
    setText(this.note, this.meaning(this.sorted.filter(({ noise }) => noise).length, this.sorted.length));
    if (this.details.open) this.#follow();
  }

  #showChosen() {
    this.overTimeBox.hidden = !this.overTime;
    const text = this.chosen.join("\n");
    if (text === this.legend.dataset.keys) return;
    this.legend.dataset.keys = text;
    this.legend.replaceChildren(...this.chosen.map((key, place) => el("li", {}, el("span", { class: `dot part-${place}`, "aria-hidden": "true" }),
      key, this.#without(key))));
    this.holder.setAttribute("aria-label", `Line chart of ${this.chosen.join(", ")} of ${this.title} with their error bands. Arrow keys read single points.`);
  }

  #without(key) {
    const button = el("button", { type: "button", class: "without", "aria-label": `Without ${key}` }, "×");
    button.addEventListener("click", () => this.#choose(key));
    return button;
  }

  picture(range) {
    if (!this.overTime) return;
    const [start, stop] = [lowerBound(this.kept.tick, range.first), lowerBound(this.kept.tick, range.last + 1)];
    this.chart.draw(keyColumns(this.kept, this.chosen, start, stop, this.chart.columns), range, this.chosen);
  }

  #saidAt(x) {
    const at = lowerBound(this.kept.x, x);
    return this.chosen.map((key) => `${key} ${this.#said(key, at)}`).join(" · ");
  }

  #said(key, at) {
    const { value, low, high } = this.kept.columns.get(key) ?? {};
    if ((value?.[at] ?? low?.[at] ?? null) === null) return "–";
    const bounded = Number.isFinite(high[at] - low[at]);
    const width = Number.isInteger(value[at]) || !bounded ? 0 : (high[at] - low[at]) / 2;
    const form = formOf(this.series);
    return `${value[at] === null ? "–" : near(value[at], width, form)} (${ends(bounded ? Math.max(this.floor, low[at]) : low[at], high[at], width, form)})`;
  }

  /** The newest value of every key, or where keys were chosen these over the time shown. */
  rows({ first, last }) {
    const names = ["end", "tick", "window", "key", "value", "low", "high"];
    if (!this.overTime) {
      const { end, tick } = this.latest;
      return { names, rows: this.entries(this.latest).map(({ key, value, low, high }) => [end, tick, this.window ?? "", key, value, low, high]) };
    }
    const { tick, x, columns } = this.kept;
    const rows = [];
    for (let at = lowerBound(tick, first); at < tick.length && tick[at] <= last; at += 1) {
      for (const [key, { value, low, high }] of columns) rows.push([isoOf(x[at]), tick[at], this.window ?? "", key, value[at], low[at], high[at]]);
    }
    return { names, rows };
  }

  /** The bars as they are drawn, for a picture. */
  bars() {
    const top = this.sorted.slice(0, TOP);
    const { zero, span } = scaleOf(top);
    const at = (number) => Math.min(1, Math.max(0, (number - zero) / span));
    return top.map(({ key, text, value, low, high }) => ({ key, text, from: at(Math.min(0, value)), to: at(Math.max(0, value)), low: at(low), high: at(high) }));
  }

  #addRow() {
    const parts = { key: this.#keyButton("", "key"), bar: el("span", { class: "bar" }), whisker: el("span", { class: "whisker" }), value: el("span", { class: "amount" }) };
    parts.row = el("li", {}, parts.key, el("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.whisker), parts.value);
    this.lines.push(parts);
    this.list.append(parts.row);
  }

  /** The table is filled once a second at most, and after the last release too. */
  #follow() {
    const pause = this.filled + REFRESH_MILLISECONDS - performance.now();
    if (pause <= 0) return void this.#fillTable();
    if (this.waits) return;
    this.waits = true;
    setTimeout(() => this.#fillTable(), pause);
  }

  #fillTable() {
    this.waits = false;
    if (!this.details.open || this.latest === null) return;
    this.filled = performance.now();
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.sorted.filter(({ key }) => key.toLowerCase().includes(wanted)).slice(0, MOST_ROWS);
    this.table.replaceChildren(...found.map(({ key, text, spread, noise }) => el("tr", { class: noise ? "noise" : null },
      el("th", { scope: "row" }, this.#keyButton(key, "pick")), el("td", {}, text), el("td", {}, spread, noise ? this.faint : null))));
  }

  get faint() {
    return " · noise";
  }
}

/** A mean or a share for each key. */
export class QuotientsByKeyCard extends HistogramCard {
  pointOf({ values, lows, highs }, key) {
    const place = Object.keys(values).indexOf(key);
    return { value: values[key], low: lows[place] ?? -Infinity, high: highs[place] ?? Infinity };
  }

  entries({ values, lows, highs }) {
    const form = formOf(this.series);
    const entry = ([key, value], place) => {
      const [low, high] = [lows[place] ?? -Infinity, highs[place] ?? Infinity];
      const width = Number.isFinite(high - low) ? (high - low) / 2 : 0;
      return { key, value, low, high, text: value === null ? "–" : near(value, width, form), spread: ends(low, high, width, form), noise: !isClosed(low, high, form) };
    };
    return Object.entries(values).map(entry).sort((one, two) => one.noise - two.noise || (two.value ?? 0) - (one.value ?? 0));
  }

  rows(range) {
    return inWords(super.rows(range), formOf(this.series));
  }

  meaning(faint, many) {
    const { values, lows, highs } = this.latest;
    if (noneOver(this.series, [...Object.values(values), ...lows, ...highs])) return NONE_OVER;
    return `Each ${this.exactly}${this.over} lies between its two ends with ${this.confidence()} confidence.` +
      (faint === 0 ? "" : ` ${count(faint)} of ${count(many)} keys have too few events for both ends.`);
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

function fillRow(parts, entry, scale, chosen) {
  parts.row.hidden = entry === undefined;
  if (entry === undefined) return;
  const { key, value, low, high, text, spread, noise } = entry;
  setText(parts.key, key);
  parts.key.setAttribute("aria-pressed", String(chosen.includes(key)));
  setText(parts.value, text);
  parts.row.classList.toggle("noise", noise);
  parts.row.title = `${key}: ${text} ${spread}${noise ? " (may be noise alone)" : ""}`;
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

// Drawing of chosen keys over time: a line with its band for each, told apart by colour and by name.
// Rules: colours come from the style sheet. Charts know no API.

export const COLOURS = 6;
const SOFT = "2b"; // the opacity of a band

/** What `noKeys` holds of these keys, from `start` on, before `stop`, as uPlot columns, at most so many: x, then low, high and value of each. */
export function keyColumns({ x, columns }, keys, start, stop, most) {
  const shown = [...strides(stop, start, most)];
  const own = keys.flatMap((key) => {
    const told = shown.map(([first, last]) => (columns.has(key) ? together(columns.get(key), first, last) : {}));
    return ["low", "high", "value"].map((end) => told.map((each) => each[end] ?? null));
  });
  return [shown.map(([, last]) => x[last]), ...own];
}

export class KeysChart extends Chart {
  constructor(place, reading, floor) {
    super(place);
    this.reading = reading;
    this.floor = floor;
    this.keys = [];
  }

  draw(found, range, keys) {
    this.weigh(found);
    const { columns, range: heights } = framed(floored(found, this.floor));
    this.framed = heights;
    if (this.keys.join("\n") !== keys.join("\n")) this.forget();
    this.keys = keys;
    this.plotted(range.scale === "log" ? aboveZero(columns) : columns, range, () => this.#own());
  }

  saidAt(plot, index) {
    return this.reading(plot.data[0][index]);
  }

  #own() {
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const paint = this.keys.map((_, place) => colour(`--part-${place % COLOURS}`));
    return {
      wholes: (data) => data.slice(1).every((column) => column.every((value) => value === null || Number.isInteger(value))),
      series: [{}, ...paint.flatMap((stroke, place) => [edge, edge, { stroke: fading(stroke, 3 * place + 1, 3 * place + 2), width: 2, points: { show: false } }])],
      hooks: { draw: [(plot) => drawLone(plot, paint.map((stroke, place) => ({ low: 3 * place + 1, high: 3 * place + 2, value: 3 * place + 3, stroke })))] },
      bands: paint.map((stroke, place) => ({ series: [3 * place + 2, 3 * place + 1], fill: stroke + SOFT })),
    };
  }
}
