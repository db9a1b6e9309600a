// Quantiles over time: a fan, its lines the quantiles, and the newest ones in words.
// Rules: a release tells, for each quantile, a value and from where to where it may be; where it tells none yet, or one
// that may be anywhere (too few events were there to tell), no line is drawn. Of a window that ended these are the ends
// of its bucket on a public grid, and the error is in ranks, which no picture of values can show: it is said.

import { Card, lowerBound } from "./card.js";
import { Chart, UNTOLD, aboveZero, chartPlace, colour, drawLone, drawUntold, strides } from "./charts.js";
import { count, el, isoOf, seconds, setText, share, theLength, toNumber } from "../format.js";
import { ENDED } from "./line.js";

/** `tick`, `x` and, by quantile, the values told and their ends. */
export const noFan = () => ({ tick: [], x: [], lines: new Map(), ends: new Map() });

/** From where to where all values count, by the series' parameters: "-30 to 240". */
function clampOf(series) {
  const [low, high] = String(series.parameters?.clamp ?? "").split(" to ").map(toNumber);
  return Number.isFinite(high) ? [low, high] : [-Infinity, Infinity];
}

/** What a value may be or, of a window that ended, its bucket. */
const endsOf = (told) => told.bucket ?? [told.low, told.high];
const asked = (quantiles) => Object.keys(quantiles).sort((one, two) => Number(one) - Number(two));

export class FanCard extends Card {
  constructor(series, planned, shape = "fan") {
    super(series, planned, shape);
    this.fan = noFan();
    this.figures = el("dl", { class: "quantiles" });
    const place = chartPlace();
    this.holder = place.holder;
    this.body.append(this.figures, place.box);
    this.clamp = clampOf(series);
    this.chart = new FanChart(place, series.parameters?.told === ENDED || this.hop !== undefined, this.clamp);
  }

  /** How long what is told stands, of windows that are told anew at the end of each hop. */
  get hop() {
    return this.series.parameters?.hop;
  }

  /** Whether a quantile of these ends is known at all: they are not those of all values. */
  #known([low, high]) {
    return low > this.clamp[0] || high < this.clamp[1];
  }

  /** A part tells every quantile, or as good as nothing. */
  bandsOf({ quantiles }) {
    const told = Object.values(quantiles);
    return told.length > 0 && told.every((each) => this.#known(endsOf(each))) ? Infinity : 0;
  }

  /** Whether at least half of the last so many points tell every quantile. */
  says({ tick, ends }, many) {
    const last = tick.length - 1;
    const known = (back) => [...ends.values()].every((column) => column[last - back] !== null && this.#known(column[last - back]));
    return 2 * Array.from({ length: many }, (_, back) => known(back)).filter(Boolean).length >= many;
  }

  take(release, fan = this.fan) {
    const names = asked(release.quantiles);
    if (names.length === 0 && fan.tick.length === 0) return;
    fan.tick.push(release.tick);
    fan.x.push(seconds(release.end));
    for (const kept of [fan.lines, fan.ends]) for (const name of names) if (!kept.has(name)) kept.set(name, Array(fan.tick.length - 1).fill(null));
    for (const [name, line] of fan.lines) {
      const told = release.quantiles[name];
      line.push(told?.value ?? null);
      fan.ends.get(name).push(told ? endsOf(told) : null);
    }
  }

  get overTime() {
    return true;
  }

  /** The first tick that is kept. */
  get since() {
    return this.fan.tick[0];
  }

  get stores() {
    return [this.fan];
  }

  empty() {
    this.fan = noFan();
  }

  show() {
    const entries = this.#newest();
    this.#tell(entries);
    setText(this.note, entries.length === 0 ? "No window has ended yet: its quantiles appear at its end." : this.#meaning(entries));
    this.holder.setAttribute("aria-label", `Line chart of the quantiles ${this.title}${this.over}: ${this.headline() || "none yet"}. Arrow keys read single points.`);
  }

  /** The newest quantiles, the lowest first: a value, its ends, and whether it says anything. */
  #newest() {
    const { quantiles } = this.latest;
    return asked(quantiles).map((name) => ({ name, value: quantiles[name].value, ends: endsOf(quantiles[name]), clear: this.#known(endsOf(quantiles[name])) }));
  }

  early() {
    this.show();
  }

  picture(range) {
    const [start, stop] = [lowerBound(this.fan.tick, range.first), lowerBound(this.fan.tick, range.last + 1)];
    this.chart.draw(thinLines(this.fan, start, stop, (ends) => this.#known(ends)), range, [...this.fan.lines.keys()].map((name) => ({ name, at: Number(name), text: share(Number(name)) })));
  }

  rows({ first, last }) {
    const { tick, x, lines, ends } = this.fan;
    const rows = [];
    for (let at = lowerBound(tick, first); at < tick.length && tick[at] <= last; at += 1) {
      for (const [name, line] of lines) if (line[at] !== null) rows.push([isoOf(x[at]), tick[at], this.window ?? "", Number(name), line[at], ...ends.get(name)[at]]);
    }
    return { names: ["end", "tick", "window", "quantile", "value", ...(this.series.parameters?.told === ENDED ? ["bucket begins", "bucket ends"] : ["low", "high"])], rows };
  }

  headline() {
    return this.#newest().map(({ name, value, clear }) => `${share(Number(name))} below ${clear ? count(value) : "–"}`).join(", ");
  }

  #meaning(entries) {
    const [low, high] = this.clamp;
    if (entries.every(({ clear }) => !clear)) return `Too few events${this.over}: each quantile may be anything from ${count(low)} to ${count(high)}.`;
    const sure = `all at once, with ${this.confidence()} confidence`;
    if (this.series.parameters?.told !== ENDED) return `Each exact quantile${this.over} lies in the range below it, ${sure}.${this.hop ? ` A new release comes every ${theLength(this.hop)}.` : ""}`;
    return `The ranks of these values${this.over} are wrong by at most ${count(this.latest.band)} events, ${sure}. Each value is shown as a bucket; the exact quantile may lie in another bucket.`;
  }

  get counted() {
    return this.series.unit ? [" ", el("span", { class: "unit" }, this.series.unit)] : [];
  }

  #tell(entries) {
    const text = JSON.stringify(entries);
    if (text === this.drawn) return;
    this.drawn = text;
    this.figures.replaceChildren(...entries.map(({ name, value, ends: [low, high], clear }) => el("div", {},
      el("dt", {}, name === "0.5" ? "half below" : `${share(Number(name))} below`),
      el("dd", { class: "value" }, ...(clear ? [count(value), ...this.counted] : ["–"])),
      el("dd", { class: "bucket" }, !clear ? UNTOLD : low === high ? "at the end of its range" : `${count(low)} to ${count(high)}`))));
  }
}

// Drawing of a fan: a line for each quantile, the space between two neighbours filled, darker near the middle.
// Rules: colours come from the style sheet; each line is named where it ends, unless the names would meet. Charts know
// no API.

const NAME_HEIGHT = 13;

/** What `noFan` holds from `start` on, before `stop`, as uPlot columns: x and a column for each line, null where its ends are not `known`. */
export function thinLines({ x, lines, ends }, start, stop, known) {
  const shown = [...strides(stop, start)].map(([, last]) => last);
  const told = (name, line, at) => (ends.get(name)[at] && known(ends.get(name)[at]) ? line[at] : null);
  return [shown.map((at) => x[at]), ...[...lines].map(([name, line]) => shown.map((at) => told(name, line, at)))];
}

/** `steps`: what is told stands until something else is; `clamp`: between which two all values lie. */
export class FanChart extends Chart {
  constructor(place, steps, clamp) {
    super(place);
    Object.assign(this, { steps, clamp });
  }

  draw(columns, range, lines) {
    if (this.lines?.length !== lines.length) this.forget();
    this.lines = lines;
    this.plotted(range.scale === "log" ? aboveZero(columns) : columns, range, () => this.#own());
  }

  saidAt(plot, index) {
    const told = this.lines.map(({ text }, place) => [text, plot.data[place + 1][index]]).filter(([, value]) => value !== null);
    return told.map(([text, value]) => `${text} below ${count(value)}`).join(" · ") || UNTOLD;
  }

  /** Where no line says anything, all values. */
  heights(low, high) {
    return low === null && this.scale !== "log" && this.clamp.every(Number.isFinite) ? this.clamp : super.heights(low, high);
  }

  #own() {
    const middle = this.lines.reduce((best, { at }, place) => (Math.abs(at - 0.5) < Math.abs(this.lines[best].at - 0.5) ? place : best), 0);
    const line = (_, place) => ({ stroke: colour("--accent"), width: place === middle ? 2 : 1, points: { show: false }, ...(this.steps ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}) });
    const between = (_, place) => ({ series: [place + 2, place + 1], fill: colour(Math.min(Math.abs(place - middle), Math.abs(place + 1 - middle)) === 0 ? "--band" : "--band-far") });
    return {
      padding: [10, 42, 0, 0],
      wholes: (data) => data.slice(1).every((column) => column.every((value) => value === null || Number.isInteger(value))),
      series: [{}, ...this.lines.map(line)],
      bands: this.lines.slice(1).map(between),
      hooks: { drawAxes: [drawUntold], draw: [(plot) => drawLone(plot, this.lines.map((_, place) => ({ low: place + 1, high: place + 1, value: place + 1, stroke: colour("--accent") }))), (plot) => this.#name(plot)] },
    };
  }

  /** The name of each line at its right end, from the middle outwards, where there is room. */
  #name(plot) {
    const { ctx: context, bbox } = plot;
    const ratio = uPlot.pxRatio;
    const taken = [];
    context.save();
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillStyle = colour("--muted");
    this.lines.forEach(({ text }, place) => {
      const value = plot.data[place + 1].at(-1);
      if (value === null) return;
      const top = plot.valToPos(value, "y", true);
      if (taken.some((other) => Math.abs(other - top) < NAME_HEIGHT * ratio)) return;
      taken.push(top);
      context.fillText(text, bbox.left + bbox.width + 5 * ratio, top);
    });
    context.restore();
  }
}
