// One card for each series: what its releases say, in words, numbers and pictures.
// Rules: a card takes releases in order (each sequence once) and draws when asked, so that many releases
// cost one drawing. A value within its band is called noise. The foot of every card says the same of every series,
// of the file or a live one: mechanism, price, expected error, start, end, analyst. A card of windows is that of a
// count or a histogram for the window that is chosen, the single tick at first. What has no picture says so. Cards know
// no network.

import { isHalted } from "./budget.js";
import { BandChart, drawStrip, thin } from "./charts.js";
import { amount, band, count, el, errorText, percent, seconds, setText, shortTime, tickText, words } from "./format.js";

const TOP = 15;
const MOST_ROWS = 300;
const MOST_STRIPS = 40;
const TICK = "tick";
const EVER = "ever";

/** How a series is shown, by what its release says, before there is one by the shape that the API tells. */
export function shapeOf(series, release) {
  if (!release) return { scalar: "scalar", histogram: "histogram", flags: "flags", windows: series.domain ? "rates" : "rate" }[series.shape ?? "scalar"] ?? "unknown";
  const [part] = Object.values(release.windows ?? {});
  const found = (shown, said) => Object.keys(shown).find((shape) => shown[shape] in said) ?? "unknown";
  return part ? found({ rate: "value", rates: "values" }, part) : found({ scalar: "value", histogram: "values", flags: "fired" }, release);
}

export function makeCard(series, planned, shape) {
  const cards = { scalar: ScalarCard, histogram: HistogramCard, flags: FlagsCard, rate: RateCard, rates: RatesCard };
  return new (cards[shape] ?? UnknownCard)(series, planned);
}

class Card {
  constructor(series, planned, shape) {
    this.series = series;
    this.sequence = -1;
    this.received = 0;
    this.latest = null;
    this.halted = false;
    this.over = "";
    this.foot = el("footer", { class: "card-foot" });
    this.note = el("p", { class: "note" }, "Waiting for the first release.");
    this.body = el("div", { class: "card-body" });
    this.about = words(series.about) || shape;
    this.tag = el("span", { class: "tag" }, this.about);
    const title = el("h3", { id: `card-${series.name}` }, words(series.name));
    this.element = el(
      "article",
      { class: `card ${shape}`, "data-series": series.name, "aria-labelledby": `card-${series.name}` },
      el("header", { class: "card-head" }, title, this.tag),
      this.body,
      this.note,
      this.foot,
    );
    this.tell(planned, {});
  }

  /** Take a release; false when it was known. */
  push(release) {
    if (release.sequence <= this.sequence) return false;
    this.sequence = release.sequence;
    this.received += 1;
    this.latest = release;
    this.take(release);
    return true;
  }

  /** What the plan and the list of queries say of it; a halted series is in no plan, and keeps what it had. */
  tell(planned, query) {
    this.planned = planned ?? this.planned;
    this.halted = query.end !== null && query.end !== undefined;
    this.element.classList.toggle("halted", this.halted);
    setText(this.tag, this.halted ? `${this.about} · halted` : this.about);
    const lines = [mechanismText(this.planned), spanText(query)].filter(Boolean);
    if (lines.join() === this.told) return;
    this.told = lines.join();
    this.foot.replaceChildren(...lines.map((line) => el("p", {}, line)));
  }

  draw(range) {
    this.range = range;
    if (this.latest === null) return;
    Object.assign(this.element.dataset, { tick: this.latest.tick, received: this.received });
    this.show(range);
  }

  recolour() {}

  confidence() {
    return percent(this.latest.confidence ?? 0.95);
  }
}

function mechanismText(planned) {
  if (!planned) return "";
  const delta = String(planned.delta ?? "0") === "0" ? "" : `, δ ${amount(planned.delta)}`;
  const last = planned.predicted_error?.at(-1);
  return `${planned.mechanism} · ε ${amount(planned.epsilon)}${delta}${last ? ` · expected error ${errorText(last)}` : ""}`;
}

/** `start` is the first tick that it sees, `end` the first that it does not see. */
function spanText({ start, start_time: began, end, end_time: ended, analyst }) {
  if (start === undefined) return "";
  const parts = [`Start: ${tickText(start, began)}`];
  if (end !== null && end !== undefined) parts.push(`End: ${tickText(end, ended)}`);
  if (analyst) parts.push(`Analyst: ${words(analyst)}`);
  return parts.join(" · ");
}

class ScalarCard extends Card {
  constructor(series, planned, shape = "scalar") {
    super(series, planned, shape);
    this.points = noPoints();
    this.value = el("span", { class: "value" }, "–");
    this.band = el("span", { class: "band" });
    this.holder = el("div", { class: "chart", tabindex: "0", role: "img" });
    this.readout = el("p", { class: "readout", "aria-live": "polite" });
    this.body.append(el("p", { class: "figure" }, this.value, " ", this.band), this.holder, this.readout);
    this.chart = new BandChart(this.holder, (text) => setText(this.readout, text || " "), (x) => this.#bandAt(x));
    this.readout.textContent = " ";
  }

  take(release, { tick, x, value, band } = this.points) {
    tick.push(release.tick);
    x.push(seconds(release.end));
    value.push(release.value);
    band.push(release.band);
  }

  show(range) {
    const { value, band: width, confidence } = this.latest;
    setText(this.value, count(value));
    setText(this.band, band(width) + this.over);
    this.value.classList.toggle("noise", Math.abs(value) <= width);
    setText(this.note, Math.abs(value) <= width
      ? "Within its band: not distinguishable from zero (noise)."
      : `The exact figure lies between ${count(value - width)} and ${count(value + width)} with ${percent(confidence ?? 0.95)} confidence.`);
    const start = Math.max(0, lowerBound(this.points.tick, range.first(this.latest.tick)));
    this.chart.draw(thin(this.points, start));
    this.holder.setAttribute("aria-label", `${this.chart.bars ? "Bar" : "Line"} chart of ${words(this.series.name)} with its error band, ` +
      `now ${count(value)} ${band(width)}${this.over}. Arrow keys read single points.`);
  }

  recolour() {
    this.chart.forget();
  }

  #bandAt(x) {
    return this.points.band[lowerBound(this.points.x, x)];
  }
}

const noPoints = () => ({ tick: [], x: [], value: [], band: [] });

class HistogramCard extends Card {
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
    this.shown = 0;
    this.filter.addEventListener("input", () => this.#fillTable());
    this.details.addEventListener("toggle", () => this.#fillTable());
  }

  take() {}

  show() {
    const width = this.latest.band;
    this.sorted = Object.entries(this.latest.values).sort(([, one], [, two]) => two - one);
    const top = this.sorted.slice(0, TOP);
    const scale = Math.max(0, ...top.map(([, value]) => value + width)) || 1;
    while (this.rows.length < top.length) this.#addRow();
    this.rows.forEach((row, index) => fillRow(row, top[index], width, scale));
    setText(this.summary, `Show all ${count(this.sorted.length)}`);
    const faint = this.sorted.filter(([, value]) => Math.abs(value) <= width).length;
    setText(this.note, `Each value${this.over} ${band(width)} with ${this.confidence()} confidence.` +
      (faint === 0 ? "" : ` Within the band, so not distinguishable from noise: ${count(faint)} of ${count(this.sorted.length)} keys.`));
    if (this.details.open && performance.now() - this.shown > 1000) this.#fillTable();
  }

  #addRow() {
    const parts = { key: el("span", { class: "key" }), bar: el("span", { class: "bar" }), whisker: el("span", { class: "whisker" }), value: el("span", { class: "amount" }) };
    parts.row = el("li", {}, parts.key, el("span", { class: "track", "aria-hidden": "true" }, parts.bar, parts.whisker), parts.value);
    this.rows.push(parts);
    this.list.append(parts.row);
  }

  #fillTable() {
    if (!this.details.open || this.latest === null) return;
    this.shown = performance.now();
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.sorted.filter(([key]) => key.toLowerCase().includes(wanted)).slice(0, MOST_ROWS);
    this.table.replaceChildren(...found.map(([key, value]) => {
      const noise = Math.abs(value) <= this.latest.band;
      return el("tr", { class: noise ? "noise" : null }, el("th", { scope: "row" }, key), el("td", {}, count(value)),
        el("td", {}, band(this.latest.band), noise ? " · noise" : null));
    }));
  }
}

function fillRow(parts, entry, width, scale) {
  parts.row.hidden = entry === undefined;
  if (entry === undefined) return;
  const [key, value] = entry;
  const at = (number) => Math.min(100, Math.max(0, (number / scale) * 100));
  const noise = Math.abs(value) <= width;
  setText(parts.key, key);
  setText(parts.value, count(value));
  parts.row.classList.toggle("noise", noise);
  parts.row.title = `${key}: ${count(value)} ${band(width)}${noise ? " (within its band: noise)" : ""}`;
  parts.bar.style.width = `${at(value)}%`;
  parts.whisker.style.left = `${at(value - width)}%`;
  parts.whisker.style.width = `${at(value + width) - at(value - width)}%`;
}

/** A card of `Base` that shows one window of its releases: the first, that is the single tick, until another is chosen. */
const windowed = (Base, shape) => class extends Base {
  constructor(series, planned) {
    super(series, planned, shape);
    this.kept = new Map();
    this.choice = el("div", { class: "segmented over", role: "group", "aria-label": `Window of ${words(series.name)}` });
    this.body.prepend(this.choice);
  }

  /** The expected error is that of the window. */
  tell(planned, query) {
    this.query = query;
    super.tell(planned && { ...planned, ...planned.windows?.find(({ window }) => window === this.window) }, query);
  }

  take(release) {
    for (const [name, part] of Object.entries(release.windows)) {
      if (!this.kept.has(name)) this.#offer(name);
      super.take({ ...release, ...part }, this.kept.get(name));
    }
    if (this.window === undefined) this.#choose(Object.keys(release.windows)[0]);
    this.latest = { ...release, ...release.windows[this.window] };
  }

  #offer(name) {
    const button = el("button", { type: "button", value: name, "aria-label": spoken(name) }, name);
    button.addEventListener("click", () => {
      this.#choose(name);
      this.draw(this.range);
    });
    this.kept.set(name, noPoints());
    this.choice.append(button);
  }

  #choose(name) {
    this.window = name;
    this.over = name === EVER ? " so far" : ` in the last ${name}`;
    this.latest = { ...this.latest, ...this.latest.windows[name] };
    for (const button of this.choice.children) button.setAttribute("aria-pressed", String(button.value === name));
    this.tell(this.planned, this.query);
    this.look(name);
  }
};

const spoken = (name) => (name === EVER ? "ever, so far" : `the last ${name}`);

/** A single tick is bars, for each stands alone; a window is a line, for it slides. */
class RateCard extends windowed(ScalarCard, "rate") {
  look(name) {
    this.points = this.kept.get(name);
    this.chart.bars = name === TICK;
    this.chart.forget();
  }
}

class RatesCard extends windowed(HistogramCard, "rates") {
  look() {
    this.shown = -Infinity;
  }
}

/** What a newer engine may release. */
class UnknownCard extends Card {
  constructor(series, planned) {
    super(series, planned, "unknown");
  }

  take() {}

  show() {
    setText(this.note, "No picture for this yet: its releases are at /api/series.");
  }
}

class FlagsCard extends Card {
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
    setText(this.note, `An alert means: ${meaning}, with ${this.confidence()} confidence.`);
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
  const parts = [`${name} fires ${limit}${over === "tick" ? " in a tick" : ""}${rearm ? "" : ", once"}`];
  if (analyst) parts.push(`analyst ${words(analyst)}`);
  if (isHalted(end)) parts.push(`ended at tick ${count(end)}`);
  return parts.join(" · ");
}

/** The first index whose entry is at least `wanted`. */
function lowerBound(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
