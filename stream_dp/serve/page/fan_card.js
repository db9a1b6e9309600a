// Quantiles over time: a fan, its lines the quantiles, and the newest ones in words.
// Rules: a release tells, for each quantile, a value and from where to where it may be; where it tells none yet, nothing
// is drawn. Of a window that ended these are the ends of its bucket on a public grid, and the error is in ranks, which
// no picture of values can show: it is said.

import { Card, lowerBound } from "./card.js";
import { FanChart, thinLines } from "./fan_chart.js";
import { band, count, el, seconds, setText, share, words } from "./format.js";

/** `tick`, `x` and, by quantile, the values told. */
export const noFan = () => ({ tick: [], x: [], lines: new Map() });

const ENDED = "when a window ends";
const asked = (quantiles) => Object.keys(quantiles).sort((one, two) => Number(one) - Number(two));

export class FanCard extends Card {
  constructor(series, planned, shape = "fan") {
    super(series, planned, shape);
    this.fan = noFan();
    this.figures = el("dl", { class: "quantiles" });
    this.holder = el("div", { class: "chart", tabindex: "0", role: "img" });
    this.readout = el("p", { class: "readout", "aria-live": "polite" }, " ");
    this.body.append(this.figures, this.holder, this.readout);
    this.chart = new FanChart(this.holder, (text) => setText(this.readout, text || " "));
  }

  take(release, fan = this.fan) {
    const names = asked(release.quantiles);
    if (names.length === 0 && fan.tick.length === 0) return;
    fan.tick.push(release.tick);
    fan.x.push(seconds(release.end));
    for (const name of names) if (!fan.lines.has(name)) fan.lines.set(name, Array(fan.tick.length - 1).fill(null));
    for (const [name, line] of fan.lines) line.push(release.quantiles[name]?.value ?? null);
  }

  show(range) {
    const { quantiles, band: width } = this.latest;
    const names = asked(quantiles);
    this.#tell(names.map((name) => [name, quantiles[name]]));
    setText(this.note, names.length === 0 ? "No window has ended yet: its quantiles are told when it does." : this.#meaning(width));
    const start = Math.max(0, lowerBound(this.fan.tick, range.first(this.latest.tick)));
    this.chart.draw(thinLines(this.fan, start), [...this.fan.lines.keys()].map((name) => ({ name, at: Number(name), text: share(Number(name)) })));
    this.holder.setAttribute("aria-label", `Line chart of the quantiles ${words(this.series.name)}${this.over}: ` +
      `${names.map((name) => `${share(Number(name))} below ${count(quantiles[name].value)}`).join(", ") || "none yet"}. Arrow keys read single points.`);
  }

  #meaning(width) {
    const sure = `all at once, with ${this.confidence()} confidence`;
    if (this.series.parameters?.told !== ENDED) return `Each exact quantile${this.over} lies in the range below it, ${sure}.`;
    return `Their ranks${this.over} are off by ${count(width)} events at most, ${sure}. A value is told by its bucket.`;
  }

  recolour() {
    this.chart.forget();
  }

  expected({ error, ...said }) {
    return `${super.expected({ error, ...said }).replace(band(error), `${band(error)} events in rank`)}`;
  }

  #tell(entries) {
    const text = JSON.stringify(entries);
    if (text === this.drawn) return;
    this.drawn = text;
    this.figures.replaceChildren(...entries.map(([name, { value, low, high }]) => el("div", {},
      el("dt", {}, name === "0.5" ? "half below" : `${share(Number(name))} below`),
      el("dd", { class: "value" }, count(value)),
      el("dd", { class: "bucket" }, low === high ? "at the end of its range" : `${count(low)} to ${count(high)}`))));
  }
}
