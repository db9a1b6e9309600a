// Drawing: a line or bars with their error band (uPlot), and strips of alert marks (canvas).
// Rules: colours come from the style sheet; what is drawn is thinned to the pixels there are, and the
// band of a thinned point covers the bands of all points it stands for. Charts know no API.

import { axisCount, axisTimes, band, count, time } from "./format.js";

const MOST_POINTS = 600;
const HEIGHT = 190;
const STEPS = Array.from({ length: 21 }, (_, place) => [1, 2, 5].map((digit) => Number(`${digit}e${place - 6}`))).flat();
const WHOLE_STEPS = STEPS.filter(Number.isInteger);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Points from `start` on as uPlot columns [x, low, high, value]. */
export function thin(points, start) {
  const many = points.x.length - start;
  const stride = Math.max(1, Math.ceil(many / MOST_POINTS));
  const columns = [[], [], [], []];
  for (let last = points.x.length - 1 - (Math.floor((many - 1) / stride) * stride); last < points.x.length; last += stride) {
    let low = Infinity;
    let high = -Infinity;
    for (let index = Math.max(start, last - stride + 1); index <= last; index += 1) {
      low = Math.min(low, points.value[index] - points.band[index]);
      high = Math.max(high, points.value[index] + points.band[index]);
    }
    columns[0].push(points.x[last]);
    columns[1].push(low);
    columns[2].push(high);
    columns[3].push(points.value[last]);
  }
  return columns;
}

export class BandChart {
  constructor(holder, readout, bandAt) {
    this.holder = holder;
    this.readout = readout;
    this.bandAt = bandAt;
    this.plot = null;
    this.bars = false;
    holder.addEventListener("keydown", (event) => this.#move(event));
    holder.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
  }

  draw(columns) {
    const width = Math.floor(this.holder.clientWidth);
    if (width <= 0 || columns[0].length === 0) return;
    if (this.plot === null) this.plot = new uPlot(this.#options(width), columns, this.holder);
    else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
      this.plot.setData(columns);
    }
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }

  #options(width) {
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: colour("--muted"), font, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    return {
      width,
      height: HEIGHT,
      padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC"),
      axes: [
        { ...axis, space: 64, size: 30, values: (_plot, splits, _axis, _space, increment) => axisTimes(splits, increment) },
        { ...axis, size: 62, incrs: (plot) => (plot.data[3].every(Number.isInteger) ? WHOLE_STEPS : STEPS), values: (_plot, splits) => splits.map(axisCount) },
      ],
      series: [{}, edge, edge, { stroke: colour("--accent"), width: 2, points: { show: false } }],
      bands: [{ series: [2, 1], fill: colour("--band") }],
      hooks: { setCursor: [(plot) => this.#read(plot)], draw: this.bars ? [drawWhiskers] : [] },
      ...(this.bars ? barOptions(edge) : {}),
    };
  }

  #read(plot) {
    const index = plot.cursor.idx;
    const value = index === null || index === undefined ? null : plot.data[3][index];
    if (value === null || value === undefined || plot.cursor.left < 0) this.readout("");
    else this.readout(`${time(plot.data[0][index])}: ${count(value)} ${band(this.bandAt(plot.data[0][index]))}`);
  }

  #move(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || this.plot === null) return;
    event.preventDefault();
    const last = this.plot.data[0].length - 1;
    const now = this.plot.cursor.idx ?? last;
    const next = Math.min(last, Math.max(0, now + step));
    const left = this.plot.valToPos(this.plot.data[0][next], "x");
    this.plot.setCursor({ left, top: 10 });
  }
}

/** Bars from zero; half a bar stands beyond the first point and the last. */
function barOptions(edge) {
  const half = (plot, first, last) => (last - first) / (plot.data[0].length - 1) / 2 || 1;
  return {
    scales: {
      x: { range: (plot, first, last) => [first - half(plot, first, last), last + half(plot, first, last)] },
      y: { range: (_plot, low, high) => uPlot.rangeNum(Math.min(0, low), Math.max(0, high), 0.1, true) },
    },
    series: [{}, edge, edge, { fill: colour("--bar"), width: 0, paths: uPlot.paths.bars({ size: [0.7] }), points: { show: false } }],
    bands: [],
  };
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

/** One mark for each alert between the ticks `first` and `last`, over a faint base line. */
export function drawStrip(canvas, ticks, first, last) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.floor(canvas.clientWidth * ratio);
  const height = Math.floor(canvas.clientHeight * ratio);
  if (width === 0 || height === 0) return;
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, width, height);
  context.fillStyle = colour("--grid");
  context.fillRect(0, height / 2 - ratio / 2, width, ratio);
  const cell = width / Math.max(1, last - first + 1);
  const mark = Math.min(10 * ratio, Math.max(2 * ratio, cell * 0.7));
  context.fillStyle = colour("--alert");
  for (let index = ticks.length - 1; index >= 0 && ticks[index] >= first; index -= 1) {
    const centre = (ticks[index] - first + 0.5) * cell;
    context.beginPath();
    context.roundRect(Math.min(width - mark, Math.max(0, centre - mark / 2)), height * 0.12, mark, height * 0.76, Math.min(2 * ratio, mark / 2));
    context.fill();
  }
}
