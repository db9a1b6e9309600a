// One number over time: the newest one in large, a line or bars with their band.
// Rules: a value within its band is called noise. A quotient has two ends in place of a band, and one or both may be
// open: that is said, and drawn as far as the picture goes.

import { Card, lowerBound } from "./card.js";
import { BandChart, thin } from "./charts.js";
import { band, count, el, ends, near, percent, seconds, setText, words } from "./format.js";

export const noPoints = () => ({ tick: [], x: [], value: [], low: [], high: [], band: [] });

const pointAt = (points, at) => ({ value: points.value[at], low: points.low[at], high: points.high[at], band: points.band[at] });

export class ScalarCard extends Card {
  constructor(series, planned, shape = "scalar") {
    super(series, planned, shape);
    this.points = noPoints();
    this.value = el("span", { class: "value" }, "–");
    this.band = el("span", { class: "band" });
    this.holder = el("div", { class: "chart", tabindex: "0", role: "img" });
    this.readout = el("p", { class: "readout", "aria-live": "polite" }, " ");
    this.body.append(el("p", { class: "figure" }, this.value, " ", this.band), this.holder, this.readout);
    this.chart = new BandChart(this.holder, (text) => setText(this.readout, text || " "), (x) => this.#saidAt(x));
  }

  take(release, points = this.points) {
    const { tick, end, value, band } = release;
    const { low = value - band, high = value + band } = release;
    const point = { tick, x: seconds(end), value: value ?? null, low: low ?? -Infinity, high: high ?? Infinity, band };
    for (const [name, said] of Object.entries(point)) points[name].push(said);
  }

  /** A value with what is said of its error, and whether it says anything: of a count. */
  reading({ value, band: width }) {
    return { value: count(value), spread: band(width), noise: Math.abs(value) <= width };
  }

  /** The sentence under the picture. */
  meaning({ value, band: width }, sure) {
    if (Math.abs(value) <= width) return "Within its band: not distinguishable from zero (noise).";
    return `The ${this.exactly} lies between ${count(value - width)} and ${count(value + width)} with ${sure} confidence.`;
  }

  show(range) {
    const { value, spread, noise } = this.reading(this.latest);
    setText(this.value, value);
    setText(this.band, spread + this.over);
    this.value.classList.toggle("noise", noise);
    setText(this.note, this.meaning(this.latest, percent(this.latest.confidence ?? 0.95)));
    const start = Math.max(0, lowerBound(this.points.tick, range.first(this.latest.tick)));
    this.chart.draw(thin(this.points, start));
    this.holder.setAttribute("aria-label", `${this.chart.bars ? "Bar" : "Line"} chart of ${words(this.series.name)} with its error band, ` +
      `now ${value} ${spread}${this.over}. Arrow keys read single points.`);
  }

  recolour() {
    this.chart.forget();
  }

  /** Whether at least half of the last so many points say something. */
  says(points, many) {
    const last = points.tick.length - 1;
    const clear = Array.from({ length: many }, (_, back) => !this.reading(pointAt(points, last - back)).noise);
    return 2 * clear.filter(Boolean).length >= many;
  }

  #saidAt(x) {
    const { value, spread } = this.reading(pointAt(this.points, lowerBound(this.points.x, x)));
    return `${value} ${spread}`;
  }
}

/** A mean or a share: two ends, not one width. */
export class QuotientCard extends ScalarCard {
  reading({ value, low, high }) {
    const closed = [value, low, high].every(Number.isFinite);
    const width = closed ? (high - low) / 2 : 0;
    return { value: Number.isFinite(value) ? near(value, width) : "–", spread: ends(low, high, width), noise: !closed };
  }

  meaning({ low, high }, sure) {
    const open = [low, high].filter((end) => !Number.isFinite(end)).length;
    const why = "Too few events were counted";
    if (open === 2) return `${why} to say anything.`;
    if (open === 1) return `${why} for both ends: with ${sure} confidence the ${this.exactly} is ${ends(low, high, 0)}.`;
    return `The ${this.exactly} lies between these two ends with ${sure} confidence.`;
  }
}
