// Drawing of one value over time: a line or bars with their band, and the period before as a ghost.
// Rules: colours come from the style sheet. On a logarithmic scale what is not above 0 has no place: a band that goes there is
// cut at the foot of the picture. Charts know no API.

import { Chart, colour, framed } from "./charts.js";
import { axisShare } from "./format.js";
import { drawLone, drawMarks, drawZero } from "./marks.js";

const DEEPEST = 1e-4; // of the greatest value: the foot of a logarithmic picture

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
      : { stroke: colour("--accent"), width: 2, points: { show: false } };
    const ghost = { stroke: colour("--ghost"), width: 1.5, dash: [5, 4], points: { show: false } };
    return {
      wholes: (data) => !this.percent && data[3].every(Number.isInteger),
      series: [{}, edge, edge, value, ...(this.ghostly ? [ghost] : [])],
      bands: this.bars ? [] : [{ series: [2, 1], fill: colour("--band") }],
      hooks: { drawAxes: [drawZero], draw: [this.bars ? drawWhiskers : (plot) => drawLone(plot, [{ low: 1, high: 2, value: 3, stroke: value.stroke }]), (plot) => drawMarks(plot, this.marks)] },
      ...(this.percent ? { labels: axisShare } : {}),
    };
  }
}

/** Columns [x, low, high, value], or more such after x, whose bands end at `floor`. */
export function floored([x, ...columns], floor) {
  const cut = (low) => (low === null ? null : Math.max(floor, low));
  return [x, ...columns.map((column, place) => (place % 3 === 0 ? column.map(cut) : column))];
}

/** Columns for a logarithmic scale; the first is time. */
export function aboveZero([x, ...columns]) {
  const above = columns.flat().filter((value) => value > 0);
  if (above.length === 0) return [x, ...columns.map((column) => column.map(() => null))];
  const foot = Math.max(Math.min(...above), Math.max(...above) * DEEPEST);
  return [x, ...columns.map((column) => column.map((value) => (value === null ? null : Math.max(foot, value))))];
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
