// The keys that fired: how often, when last, and a strip of marks over time.

import { isHalted } from "../budget.js";
import { Card, lowerBound } from "./card.js";
import { LARGE } from "./tools.js";
import { drawStrip } from "./charts.js";
import { band, chance, count, el, isoOf, lengthOf, seconds, setText, shortTime, spelled, words } from "../format.js";
import { choose } from "../view.js";

const MOST_ROWS = 300;
const FEW_ROWS = { s: 3, m: 8 }; // as the style sheet shows them
const MOST_STRIPS = 40;
const LARGE_DOMAIN = 200;
const RECENT_TICKS = 2000;

export class FlagsCard extends Card {
  constructor(series, planned) {
    super(series, planned, "flags");
    this.keys = new Map();
    this.table = el("tbody");
    this.span = el("th", { scope: "col", class: "strip-head" }, "recent");
    this.body.append(el("p", { class: "figure" }, this.total = el("span", { class: "value" }, "0"), " ",
      this.unit = el("span", { class: "band" }, "alerts so far")),
    this.whole = el("table", { class: "alert-table", hidden: true }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, words(series.by) || "Key"),
      this.span, el("th", { scope: "col", class: "number" }, "Alerts"), el("th", { scope: "col", class: "number" }, "Last"))), this.table));
    this.more = el("button", { type: "button", class: "tool more", hidden: true });
    this.more.addEventListener("click", () => choose({ [`size.${series.name}`]: LARGE }));
    this.body.append(this.more);
    for (const key of Array.isArray(series.domain) ? series.domain.slice(0, MOST_ROWS) : []) this.#key(String(key));
  }

  /** The watches of a monitor stand there before they fire; one for each value of a field does when the first does. */
  tell(planned, query) {
    super.tell(planned, query);
    for (const watch of (query.watches ?? []).slice(-MOST_ROWS)) {
      if (watch.by || (isHalted(watch.end) && !watch.fired && !this.keys.has(watch.name))) continue;
      this.#key(watch.name).row.title = watchText(watch);
    }
  }

  get overTime() {
    return true;
  }

  empty() {
    for (const state of this.keys.values()) Object.assign(state, { ticks: [], times: [], counted: "" });
  }

  /** All of it, for alerts are counted; of very many keys the last ones. */
  missing(range) {
    if (this.latest === null || this.reached !== null) return null;
    const from = (this.series.domain?.length ?? 0) > LARGE_DOMAIN ? Math.max(0, Math.min(range.first, this.latest.tick - RECENT_TICKS)) : 0;
    return [[from, this.latest.tick]];
  }

  take(release) {
    for (const key of release.fired) {
      const state = this.#key(key);
      state.ticks.push(release.tick);
      state.times.push(seconds(release.end));
      const counted = release.counts?.[key];
      state.counted = counted === undefined ? "" : ` · ${count(counted)} ${band(release.counts_band)}`;
    }
  }

  show(range) {
    const now = this.latest.tick;
    let total = 0;
    for (const state of this.keys.values()) {
      total += state.ticks.length;
      setText(state.number, count(state.ticks.length));
      setText(state.time, state.times.length === 0 ? "–" : shortTime(state.times.at(-1)) + state.counted);
      state.row.classList.toggle("fresh", state.ticks.length > 0 && now - state.ticks.at(-1) <= 2);
    }
    this.#arrange();
    const beyond = this.size === LARGE ? 0 : this.keys.size - FEW_ROWS[this.size];
    this.more.hidden = !(beyond > 0);
    setText(this.more, `${count(beyond)} more`);
    setText(this.total, count(total));
    setText(this.unit, total === 1 ? "alert so far" : "alerts so far");
    setText(this.span, range.text);
    const meaning = spelled(this.series.meaning ?? "the threshold was passed, {band}").replace("{band}", band(this.latest.band));
    setText(this.note, [`An alert means: ${meaning}, with ${this.confidence()} confidence.`, this.#falsely(), this.#silent()].filter(Boolean).join(" "));
  }

  /** How likely noise alone makes a key fire: of several watches, that of the likeliest, and which it is. */
  #falsely() {
    const [worst, ...others] = [...(this.planned?.false_alarms ?? [])].sort((one, two) => two.chance - one.chance);
    if (worst === undefined) return "";
    const what = worst.of === undefined ? "count" : `sum of ${words(worst.of)}`;
    const where = worst.keyed === false ? "per day" : "per key and day";
    const which = others.length > 0 ? ` (${words(worst.name)}, the likeliest)` : "";
    return `False alarm ${where}: ${chance(worst.chance)}${which}, while the ${what} stays at ${count(worst.usual)}.`;
  }

  #silent() {
    const { fires, window: span } = this.series.parameters ?? {};
    return fires === "below" && span ? `A silent key fires once in every window of ${spelled(span)}.` : "";
  }

  picture({ first, last }) {
    for (const { canvas, ticks } of this.keys.values()) {
      if (canvas === null) continue;
      const [start, stop] = [lowerBound(ticks, first), lowerBound(ticks, last + 1)];
      drawStrip(canvas, ticks.slice(start, stop), first, last);
      canvas.setAttribute("aria-label", `${stop - start} alerts in the time shown`);
    }
  }

  /** Keys that fired last come first, then in their own order; the first ones have strips. */
  #arrange() {
    const order = [...this.keys.values()].sort((one, two) => (two.ticks.at(-1) ?? -1) - (one.ticks.at(-1) ?? -1) || one.place - two.place);
    order.forEach((state, place) => {
      if (this.table.children[place] !== state.row) this.table.insertBefore(state.row, this.table.children[place] ?? null);
      if (place < MOST_STRIPS && state.canvas === null) state.cell.append(state.canvas = el("canvas", { class: "strip", role: "img" }));
    });
  }

  rows({ first, last }) {
    const found = [];
    for (const [key, { ticks, times }] of this.keys) {
      for (let at = lowerBound(ticks, first); at < ticks.length && ticks[at] <= last; at += 1) found.push([isoOf(times[at]), ticks[at], key]);
    }
    return { names: ["end", "tick", "key"], rows: found.sort((one, two) => one[1] - two[1]) };
  }

  /** The strips as they are drawn, for a picture. */
  bars() {
    const shown = [...this.keys].filter(([, { canvas }]) => canvas !== null).sort(([, one], [, two]) => one.row.rowIndex - two.row.rowIndex);
    return shown.map(([key, { canvas, ticks }]) => ({ key, text: count(ticks.length), canvas }));
  }

  headline() {
    return this.element.querySelector(".figure").textContent;
  }

  #key(key) {
    if (!this.keys.has(key)) {
      const state = { ticks: [], times: [], counted: "", place: this.keys.size, canvas: null, cell: el("td", { class: "strip-cell" }), number: el("td", { class: "number" }), time: el("td", { class: "number when" }) };
      state.row = el("tr", {}, el("th", { scope: "row" }, key), state.cell, state.number, state.time);
      this.keys.set(key, state);
      this.table.append(state.row);
      this.whole.hidden = false;
    }
    return this.keys.get(key);
  }
}

function watchText({ name, above, below, over, rearm, analyst, end }) {
  const limit = below === undefined ? `at ${count(above)} events` : `below ${count(below)} events`;
  const within = over === "tick" ? " in a tick" : lengthOf(over) ? ` within ${spelled(over)}` : "";
  const parts = [`${name} fires ${limit}${within}${rearm ? "" : ", once"}`];
  if (below !== undefined && rearm) parts.push(`while silent ${over === "tick" ? "in every tick" : `once in every window of ${spelled(over)}`}`);
  if (analyst) parts.push(`analyst ${words(analyst)}`);
  if (isHalted(end)) parts.push(`ended at tick ${count(end)}`);
  return parts.join(" · ");
}
