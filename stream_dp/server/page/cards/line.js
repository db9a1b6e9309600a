// One number over time: the newest one in large, a line or bars with their band.
// Rules: a value within its band is called noise. A value may have a name, whose it is: where it changes is marked. So is
// where a window begins anew. A quotient has two ends in place of a band, and one or both may be open: that is said, and
// drawn as far as the picture goes. A share is told in per cent.

import { Card, lowerBound } from "./card.js";
import { Chart, aboveZero, chartPlace, colour, drawLone, drawMarks, drawZero, fading, floored, framed, strides, thin, together } from "./charts.js";
import { PER_CENT, PLAIN, axisShare, band, count, el, ends, isoOf, lengthOf, near, percent, seconds, setText } from "../format.js";

export const noPoints = () => ({ tick: [], x: [], value: [], low: [], high: [], band: [], name: [], ends: [] });

export const ENDED = "when a window ends"; // when a series tells windows that follow one another
export const NONE_OVER = "No window has ended yet. The first number appears when a window ends.";
export const ANEW = "since a window began"; // when a series tells windows that do not slide
const NOBODY = "nobody yet";

const pointAt = (points, at) => Object.fromEntries(Object.entries(points).map(([field, column]) => [field, column[at]]));

export class ScalarCard extends Card {
  constructor(series, planned, shape = "scalar") {
    super(series, planned, shape);
    this.points = noPoints();
    this.name = el("span", { class: "whose", hidden: true });
    this.value = el("span", { class: "value" }, "–");
    this.band = el("span", { class: "band" });
    this.counted = series.unit ? el("span", { class: "unit" }, `${series.unit} `) : null;
    const place = chartPlace();
    this.holder = place.holder;
    this.body.append(el("p", { class: "figure" }, ...[this.name, this.value, " ", this.counted, this.band].filter((part) => part !== null)), place.box);
    this.chart = new BandChart(place, (x, before) => this.#saidAt(x, before));
    this.chart.floor = this.floor;
  }

  get overTime() {
    return true;
  }

  /** The first tick that is kept. */
  get since() {
    return this.points.tick[0];
  }

  get stores() {
    return [this.points];
  }

  empty() {
    this.points = noPoints();
  }

  take(release, points = this.points) {
    const { tick, end, value, band, name, ends: why } = release;
    const { low = value === null ? null : value - band, high = value === null ? null : value + band } = release;
    const point = { tick, x: seconds(end), value: value ?? null, low: low ?? -Infinity, high: high ?? Infinity, band, name, ends: why };
    for (const [field, said] of Object.entries(point)) points[field].push(said);
  }

  /** A value with what is said of its error, and whether it says anything: of a count. */
  reading({ value, band: width, low, high, ends: why }) {
    const spread = why === undefined ? band(width) : `${count(low)} to ${count(high)}`;
    return { value: value === null ? "–" : count(value), spread, noise: value === null || Math.abs(value) <= width };
  }

  /** Whose the value is, with what stands between the two; nothing where values have no names. */
  whose({ name }) {
    return name === undefined && !this.series.parameters?.named ? "" : `${name ?? NOBODY} · `;
  }

  /** The sentence under the picture. */
  meaning({ value, band: width, name, low = value - width, high = value + width }, sure) {
    if (value === null) return NONE_OVER;
    const between = `between ${count(Math.max(this.floor, low))} and ${count(high)} with ${sure} confidence`;
    if (Math.abs(value) <= width) return "The value lies within its band, so it may be noise alone: the true value may be 0.";
    if (name !== undefined) {
      const start = this.series.capped ? "Of the events that count, the" : "The";
      return `${start} largest count, and ${name}'s own, lie ${between}: ` +
        `the true leader is at most ${count(high - low)} ahead of ${name}.`;
    }
    return `The ${this.exactly} lies ${between}.`;
  }

  show() {
    const { value, spread, noise } = this.reading(this.latest);
    setText(this.value, value);
    setText(this.band, spread + this.over);
    const whose = this.whose(this.latest);
    setText(this.name, whose);
    this.name.hidden = whose === "";
    for (const figure of [this.name, this.value]) figure.classList.toggle("noise", noise);
    setText(this.note, this.meaning(this.latest, percent(this.latest.confidence ?? 0.95)));
    this.#label(`now ${whose}${value} ${spread}${this.over}`);
  }

  #label(now) {
    this.now = now;
    this.holder.setAttribute("aria-label", `${this.chart.bars ? "Bar" : "Line"} chart of ${this.title} with its error band, ${now}. Arrow keys read single points.`);
  }

  early() {
    this.show();
  }

  picture(range) {
    const [start, stop] = this.#shown(range);
    this.bar(stop - start);
    this.#label(this.now);
    const columns = thin(this.points, start, stop, this.chart.columns);
    this.strides = [...strides(stop, start, this.chart.columns)];
    this.chart.draw(columns, range, this.#marks(start, stop), range.before ? this.#before(columns[0], range) : null);
  }

  /** Whether so many points are drawn as bars. */
  bar() {}

  headline() {
    return this.element.querySelector(".figure").textContent;
  }

  rows(range) {
    const [start, stop] = this.#shown(range);
    const { tick, x, value, low, high, name } = this.points;
    const named = name.some((each) => each !== undefined);
    const row = (at) => [isoOf(x[at]), tick[at], this.window ?? "", ...(named ? [name[at] ?? ""] : []), value[at], low[at], high[at]];
    return { names: ["end", "tick", "window", ...(named ? ["key"] : []), "value", "low", "high"], rows: Array.from({ length: stop - start }, (_, place) => row(start + place)) };
  }

  #shown({ first, last }) {
    return [lowerBound(this.points.tick, first), lowerBound(this.points.tick, last + 1)];
  }

  /** What stood one length of the range before each of these times. */
  #before(times, { length, step }) {
    const { tick, x, value } = this.points;
    return times.map((time) => {
      const wanted = tick[lowerBound(x, time)] - length;
      const at = lowerBound(tick, wanted);
      return tick[at] === wanted && step > 0 ? value[at] : null;
    });
  }

  /** By how many bands a value is off 0. */
  bandsOf({ value, band: width, low = value - width, high = value + width }) {
    return value === null || !Number.isFinite(high - low) ? 0 : Math.abs(value) / ((high - low) / 2 || Number.MIN_VALUE);
  }

  /** Whether at least half of the last so many points are off 0 by so many bands. */
  says(points, many, bands) {
    const last = points.tick.length - 1;
    const clear = Array.from({ length: many }, (_, back) => this.bandsOf(pointAt(points, last - back)) > bands);
    return 2 * clear.filter(Boolean).length >= many;
  }

  /** Where another name is told, and where a window begins anew. */
  #marks(start, stop) {
    const { tick, x, name } = this.points;
    const length = this.series.parameters?.told === ANEW ? lengthOf(this.window) / this.series.step : 0;
    const found = [];
    for (let at = start; at < stop; at += 1) {
      if (name[at] !== undefined && (at === start || name[at] !== name[at - 1])) found.push({ x: x[at], text: name[at] });
      else if (at > start && length > 1 && tick[at] % length === 0) found.push({ x: x[at], text: "" });
    }
    return found;
  }

  #saidAt(x, before) {
    const at = lowerBound(this.points.x, x);
    const point = pointAt(this.points, at);
    const [first] = this.strides.find(([, last]) => last === at) ?? [at];
    if (first < at) return this.#saidTogether(first, at);
    const { value, spread } = this.reading(point);
    const ghost = Number.isFinite(before) ? `, before: ${this.reading({ value: before, low: before, high: before, band: 0 }).value}` : "";
    return `${this.whose(point)}${value} ${spread}${ghost}`;
  }

  /** What is said of several ticks that one pixel stands for. */
  #saidTogether(first, last) {
    const { value, low, high, many } = together(this.points, first, last);
    if (many === 0) return "–";
    const form = formOf(this.series);
    const width = Number.isFinite(high - low) ? (high - low) / 2 : 0;
    return `${near(value, width, form)} on average over ${count(many)} ticks, with bands ${ends(low, high, width, form)}`;
  }
}

/** Columns [x, low, high, value] of shares, where both bounds of all shares are open ends: they say nothing, and no picture is to hold them. */
function unbounded([x, lows, highs, values]) {
  const open = (at) => lows[at] <= 0 && highs[at] >= 1;
  return [x, lows.map((low, at) => (low !== null && open(at) ? -Infinity : low)), highs.map((high, at) => (high !== null && open(at) ? Infinity : high)), values];
}

/** How a series of quotients writes them: one that stays within 0 and 1 as per cent. */
export const formOf = (series) => (series.parameters?.within === "0 to 1" ? PER_CENT : PLAIN);

/** Whether an interval says something: both ends are known, and of a share not both bounds of all shares. */
export const isClosed = (low, high, form) => Number.isFinite(low) && Number.isFinite(high) && !(form === PER_CENT && low <= 0 && high >= 1);

/** Rows that end in low and high, with these in words, for an open end is no number. */
export function inWords({ names, rows }, form) {
  const known = (end) => (Number.isFinite(end) ? end : null);
  const said = (low, high) => (low === null || high === null ? "" : ends(low, high, Number.isFinite(high - low) ? (high - low) / 2 : 0, form));
  return { names: [...names, "interval"], rows: rows.map((row) => [...row.slice(0, -2), ...row.slice(-2).map(known), said(...row.slice(-2))]) };
}

/** A mean or a share: two ends, not one width. */
export class QuotientCard extends ScalarCard {
  constructor(series, planned, shape) {
    super(series, planned, shape);
    this.form = formOf(series);
    this.chart.percent = this.form === PER_CENT;
  }

  reading({ value, low, high }) {
    const bounded = [value, low, high].every(Number.isFinite);
    const width = bounded ? (high - low) / 2 : 0;
    return { value: Number.isFinite(value) ? near(value, width, this.form) : "–", spread: ends(low, high, width, this.form), noise: !bounded || !isClosed(low, high, this.form) };
  }

  rows(range) {
    return inWords(super.rows(range), this.form);
  }

  meaning({ value, low, high }, sure) {
    if ((value === null && isBefore(this.window)) || noneOver(this.series, [value, low, high])) return NONE_OVER;
    const open = [low, high].filter((end) => !Number.isFinite(end)).length;
    const why = "Too few events were counted";
    if (open === 2 || (open === 0 && !isClosed(low, high, this.form))) return `${why} to say anything.`;
    if (open === 1) return `${why} for both ends: with ${sure} confidence the ${this.exactly} is ${ends(low, high, 0, this.form)}.`;
    return `The ${this.exactly} lies between these two ends with ${sure} confidence.`;
  }
}

/** Whether a series tells windows that end and none is over yet: then it tells nothing at all, no end either. */
export const noneOver = (series, told) => series.parameters?.told === ENDED && told.every((each) => each === null);

/** Whether a window is the whole one before that which is open. */
export const isBefore = (name) => /^\S+ before$/.test(name ?? "");

// Drawing of one value over time: a line or bars with their band, and the period before as a ghost.
// Rules: colours come from the style sheet. On a logarithmic scale what is not above 0 has no place: a band that goes there is
// cut at the foot of the picture. Charts know no API.


/** A line or bars with their band; `reading` says what stands at a time, and stood before. */
export class BandChart extends Chart {
  constructor(place, reading) {
    super(place);
    this.reading = reading;
    this.bars = false;
    this.percent = false;
    this.floor = -Infinity;
    this.marks = [];
  }

  /** `marks` are times at which something begins, with the text that stands there; `ghost` is a column of values or null. */
  draw(found, range, marks = [], ghost = null) {
    if (this.percent) found = unbounded(found);
    this.weigh(found);
    const { columns, range: heights } = framed(floored(found, this.floor));
    if ((ghost !== null) !== this.ghostly) this.forget();
    this.ghostly = ghost !== null;
    this.framed = heights;
    this.step = range.step;
    this.marks = marks;
    const all = ghost === null ? columns : [...columns, ghost];
    this.plotted(range.scale === "log" ? aboveZero(all) : all, range, () => this.#own());
  }

  saidAt(plot, index) {
    return this.reading(plot.data[0][index], plot.data[4]?.[index]);
  }

  get fades() {
    return !this.bars;
  }

  get margin() {
    return this.bars ? this.step / 2 : 0;
  }

  /** A share neither begins below 0 nor ends above 1. */
  heights(low, high) {
    const [bottom, top] = this.bars && this.scale === "" && low !== null ? uPlot.rangeNum(Math.min(0, low), Math.max(0, high), 0.1, true) : super.heights(low, high);
    return this.percent && this.scale !== "log" ? [Math.max(0, bottom), Math.min(1, top)] : [bottom, top];
  }

  #own() {
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const value = this.bars
      ? { fill: colour("--bar"), width: 0, paths: uPlot.paths.bars({ size: [0.7] }), points: { show: false } }
      : { stroke: fading(colour("--accent"), 1, 2), width: 2, points: { show: false } };
    const ghost = { stroke: colour("--ghost"), width: 1.5, dash: [5, 4], points: { show: false } };
    return {
      wholes: (data) => !this.percent && data[3].every(Number.isInteger),
      series: [{}, edge, edge, value, ...(this.ghostly ? [ghost] : [])],
      bands: this.bars ? [] : [{ series: [2, 1], fill: colour("--band") }],
      hooks: { drawAxes: [drawZero], draw: [this.bars ? drawWhiskers : (plot) => drawLone(plot, [{ low: 1, high: 2, value: 3, stroke: colour("--accent") }]), (plot) => drawMarks(plot, this.marks)] },
      ...(this.percent ? { labels: axisShare } : {}),
    };
  }
}

/** The band of each bar: a line from its low end to its high one, thin where bars are. */
function drawWhiskers(plot) {
  const { ctx: context, data: [x, low, high], bbox } = plot;
  context.save();
  context.strokeStyle = colour("--text");
  context.lineWidth = Math.min(2 * uPlot.pxRatio, bbox.width / x.length / 6);
  context.beginPath();
  x.forEach((at, index) => {
    const left = plot.valToPos(at, "x", true);
    context.moveTo(left, plot.valToPos(low[index], "y", true));
    context.lineTo(left, plot.valToPos(high[index], "y", true));
  });
  context.stroke();
  context.restore();
}
