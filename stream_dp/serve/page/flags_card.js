// The keys that fired: how often, when last, and a strip of marks over time.

import { isHalted } from "./budget.js";
import { lowerBound, Card } from "./card.js";
import { drawStrip } from "./charts.js";
import { band, chance, count, el, lengthOf, seconds, setText, shortTime, words } from "./format.js";

const MOST_ROWS = 300;
const MOST_STRIPS = 40;

export class FlagsCard extends Card {
  constructor(series, planned) {
    super(series, planned, "flags");
    this.keys = new Map();
    this.table = el("tbody");
    this.span = el("th", { scope: "col", class: "strip-head" }, "recent");
    this.body.append(el("p", { class: "figure" }, this.total = el("span", { class: "value" }, "0"), " ",
      this.unit = el("span", { class: "band" }, "alerts so far")),
    el("table", { class: "alert-table" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, words(series.by) || "Key"),
      this.span, el("th", { scope: "col", class: "number" }, "Alerts"), el("th", { scope: "col", class: "number" }, "Last"))), this.table));
    for (const key of Array.isArray(series.domain) ? series.domain.slice(0, MOST_ROWS) : []) this.#key(String(key));
  }

  /** The watches of a monitor stand there before they fire; one for each value of a field does when the first does. */
  tell(planned, query) {
    super.tell(planned, query);
    for (const watch of (query.watches ?? []).slice(-MOST_ROWS)) {
      if (watch.by || (isHalted(watch.end) && !this.keys.has(watch.name))) continue;
      this.#key(watch.name).row.title = watchText(watch);
    }
  }

  take(release) {
    for (const key of release.fired) {
      const state = this.#key(key);
      state.ticks.push(release.tick);
      state.last = seconds(release.end);
      const counted = release.counts?.[key];
      state.counted = counted === undefined ? "" : ` · ${count(counted)} ${band(release.counts_band)}`;
    }
  }

  show(range) {
    const now = this.latest.tick;
    const first = Math.max(range.first(now), 0);
    let total = 0;
    for (const state of this.keys.values()) {
      total += state.ticks.length;
      setText(state.number, count(state.ticks.length));
      setText(state.time, state.last === null ? "–" : shortTime(state.last) + state.counted);
      state.row.classList.toggle("fresh", state.ticks.length > 0 && now - state.ticks.at(-1) <= 2);
      if (state.canvas !== null) this.#strip(state, first, now);
    }
    setText(this.total, count(total));
    setText(this.unit, total === 1 ? "alert so far" : "alerts so far");
    setText(this.span, range.text);
    const meaning = (this.series.meaning ?? "the threshold was passed, {band}").replace("{band}", band(this.latest.band));
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
    return fires === "below" && span ? `A silent key fires once in every window of ${span}.` : "";
  }

  #strip(state, first, now) {
    drawStrip(state.canvas, state.ticks, first, now);
    const recent = state.ticks.length - lowerBound(state.ticks, first);
    state.canvas.setAttribute("aria-label", `${recent} alerts in the time shown`);
  }

  #key(key) {
    if (!this.keys.has(key)) {
      const canvas = this.keys.size < MOST_STRIPS ? el("canvas", { class: "strip", role: "img" }) : null;
      const state = { ticks: [], last: null, canvas, number: el("td", { class: "number" }), time: el("td", { class: "number when" }) };
      state.row = el("tr", {}, el("th", { scope: "row" }, key), el("td", { class: "strip-cell" }, canvas), state.number, state.time);
      this.keys.set(key, state);
      this.table.append(state.row);
    }
    return this.keys.get(key);
  }
}

function watchText({ name, above, below, over, rearm, analyst, end }) {
  const limit = below === undefined ? `at ${count(above)} events` : `below ${count(below)} events`;
  const within = over === "tick" ? " in a tick" : lengthOf(over) ? ` within ${over}` : "";
  const parts = [`${name} fires ${limit}${within}${rearm ? "" : ", once"}`];
  if (below !== undefined && rearm) parts.push(`while silent ${over === "tick" ? "in every tick" : `once in every window of ${over}`}`);
  if (analyst) parts.push(`analyst ${words(analyst)}`);
  if (isHalted(end)) parts.push(`ended at tick ${count(end)}`);
  return parts.join(" · ");
}
