// Drawing of a fan: a line for each quantile, the space between two neighbours filled, darker near the middle.
// Rules: colours come from the style sheet; each line is named where it ends, unless the names would meet. Charts know
// no API.

import { aboveZero } from "./band_chart.js";
import { Chart, colour, strides } from "./charts.js";
import { count } from "./format.js";
import { UNTOLD, drawLone, drawUntold } from "./marks.js";

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
