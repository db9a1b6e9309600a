// Quantiles over time: a fan, its lines the quantiles, and the newest ones in words.
// Rules: a release tells, for each quantile, a value and from where to where it may be; where it tells none yet, nothing
// is drawn. Of a window that ended these are the ends of its bucket on a public grid, and the error is in ranks, which
// no picture of values can show: it is said.

import { Card, lowerBound } from "./card.js";
import { chartPlace } from "./charts.js";
import { FanChart, thinLines } from "./fan_chart.js";
import { band, count, el, isoOf, seconds, setText, share } from "./format.js";

/** `tick`, `x` and, by quantile, the values told and their ends. */
export const noFan = () => ({ tick: [], x: [], lines: new Map(), ends: new Map() });

const ENDED = "when a window ends";
const asked = (quantiles) => Object.keys(quantiles).sort((one, two) => Number(one) - Number(two));

export class FanCard extends Card {
  constructor(series, planned, shape = "fan") {
    super(series, planned, shape);
    this.fan = noFan();
    this.figures = el("dl", { class: "quantiles" });
    const place = chartPlace();
    this.holder = place.holder;
    this.body.append(this.figures, place.box);
    this.chart = new FanChart(place, series.parameters?.told === ENDED);
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
      fan.ends.get(name).push(told ? [told.low, told.high] : null);
    }
  }

  get overTime() {
    return true;
  }

  /** The first tick that is kept. */
  get since() {
    return this.fan.tick[0];
  }

  empty() {
    this.fan = noFan();
  }

  show() {
    const { quantiles, band: width } = this.latest;
    const names = asked(quantiles);
    this.#tell(names.map((name) => [name, quantiles[name]]));
    setText(this.note, names.length === 0 ? "No window has ended yet: its quantiles are told when it does." : this.#meaning(width));
    this.holder.setAttribute("aria-label", `Line chart of the quantiles ${this.title}${this.over}: ` +
      `${names.map((name) => `${share(Number(name))} below ${count(quantiles[name].value)}`).join(", ") || "none yet"}. Arrow keys read single points.`);
  }

  early() {
    if (this.latest !== null) this.show();
  }

  picture(range) {
    const [start, stop] = [lowerBound(this.fan.tick, range.first), lowerBound(this.fan.tick, range.last + 1)];
    this.chart.draw(thinLines(this.fan, start, stop), range, [...this.fan.lines.keys()].map((name) => ({ name, at: Number(name), text: share(Number(name)) })));
  }

  rows({ first, last }) {
    const { tick, x, lines, ends } = this.fan;
    const rows = [];
    for (let at = lowerBound(tick, first); at < tick.length && tick[at] <= last; at += 1) {
      for (const [name, line] of lines) if (line[at] !== null) rows.push([isoOf(x[at]), tick[at], this.window ?? "", Number(name), line[at], ...ends.get(name)[at]]);
    }
    return { names: ["end", "tick", "window", "quantile", "value", "low", "high"], rows };
  }

  headline() {
    return Object.entries(this.latest.quantiles).map(([name, { value }]) => `${share(Number(name))} below ${count(value)}`).join(", ");
  }

  #meaning(width) {
    const sure = `all at once, with ${this.confidence()} confidence`;
    if (this.series.parameters?.told !== ENDED) return `Each exact quantile${this.over} lies in the range below it, ${sure}.`;
    return `Their ranks${this.over} are off by ${count(width)} events at most, ${sure}. A value is told by its bucket.`;
  }

  expected({ error, ...said }) {
    return `${super.expected({ error, ...said }).replace(band(error), `${band(error)} events in rank`)}`;
  }

  get counted() {
    return this.series.unit ? [" ", el("span", { class: "unit" }, this.series.unit)] : [];
  }

  #tell(entries) {
    const text = JSON.stringify(entries);
    if (text === this.drawn) return;
    this.drawn = text;
    this.figures.replaceChildren(...entries.map(([name, { value, low, high }]) => el("div", {},
      el("dt", {}, name === "0.5" ? "half below" : `${share(Number(name))} below`),
      el("dd", { class: "value" }, count(value), ...this.counted),
      el("dd", { class: "bucket" }, low === high ? "at the end of its range" : `${count(low)} to ${count(high)}`))));
  }
}
