// Drawing: a line or bars with their error band (uPlot), marks in time, and strips of alert marks (canvas).
// Rules: colours come from the style sheet; what is drawn is thinned to the pixels there are, and the
// band of a thinned point covers the bands of all points it stands for. An open end reaches beyond the picture, which is
// as high as most of what is known needs. Charts know no API.

import { axisCount, axisShare, axisTimes, count, time } from "./format.js";

const MOST_POINTS = 600;
const MOST_LINES = 40; // of marks; of more only the foot is drawn
const HEIGHT = 190;
const STEPS = Array.from({ length: 21 }, (_, place) => [1, 2, 5].map((digit) => Number(`${digit}e${place - 6}`))).flat();
const WHOLE_STEPS = STEPS.filter(Number.isInteger);

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Where points from `start` on are drawn: the last of each stride, and the first of what it stands for. */
export function* strides(many, start) {
  const stride = Math.max(1, Math.ceil((many - start) / MOST_POINTS));
  for (let last = many - 1 - (Math.floor((many - start - 1) / stride) * stride); last < many; last += stride) yield [Math.max(start, last - stride + 1), last];
}

/** Points from `start` on as uPlot columns [x, low, high, value]; null where nothing is known. */
export function thin(points, start) {
  const columns = [[], [], [], []];
  for (const [first, last] of strides(points.x.length, start)) {
    let low = Infinity;
    let high = -Infinity;
    for (let index = first; index <= last; index += 1) {
      if (points.value[index] === null) continue;
      low = Math.min(low, points.low[index]);
      high = Math.max(high, points.high[index]);
    }
    columns[0].push(points.x[last]);
    columns[1].push(low <= high ? low : null);
    columns[2].push(low <= high ? high : null);
    columns[3].push(points.value[last]);
  }
  return columns;
}

/** Columns with open ends cut where the picture ends, and that range; null: the picture holds all there is. */
export function framed([x, lows, highs, values]) {
  if ([...lows, ...highs].every((end) => end === null || Number.isFinite(end))) return { columns: [x, lows, highs, values], range: null };
  const places = values.map((_, place) => place).filter((place) => values[place] !== null);
  const known = places.filter((place) => Number.isFinite(highs[place] - lows[place]));
  const shown = known.length > 0 ? known.flatMap((place) => [lows[place], values[place], highs[place]]) : places.map((place) => values[place]);
  const sorted = shown.sort((one, two) => one - two);
  const at = (part) => sorted[Math.round((sorted.length - 1) * part)] ?? 0;
  const spread = (at(0.95) - at(0.05)) / 3 || Math.abs(at(0.5)) || 1;
  const [bottom, top] = [at(0.05) - spread, at(0.95) + spread];
  const cut = (end) => (end === null ? null : Math.min(top + spread, Math.max(bottom - spread, end)));
  return { columns: [x, lows.map(cut), highs.map(cut), values.map(cut)], range: [bottom, top] };
}

/** A chart that follows its holder's width and is read point by point, by pointer or keys. */
export class Chart {
  constructor(holder, readout) {
    this.holder = holder;
    this.readout = readout;
    this.plot = null;
    holder.addEventListener("keydown", (event) => this.#move(event));
    holder.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
  }

  /** Draw columns; `special` makes the options of the plot that are this chart's own, once. */
  plotted(columns, special) {
    const width = Math.floor(this.holder.clientWidth);
    if (width <= 0 || columns[0].length === 0) return;
    if (this.plot === null) this.plot = new uPlot(this.#options(width, special()), columns, this.holder);
    else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
      this.plot.setData(columns);
    }
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
  }

  #options(width, { hooks = {}, wholes, labels = axisCount, ...special }) {
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: colour("--muted"), font, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    return {
      width,
      height: HEIGHT,
      padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 8 } },
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC"),
      axes: [
        { ...axis, space: 64, size: 30, values: (_plot, splits, _axis, _space, increment) => axisTimes(splits, increment) },
        { ...axis, size: 62, incrs: (plot) => (wholes(plot.data) ? WHOLE_STEPS : STEPS), values: (_plot, splits) => splits.map(labels) },
      ],
      hooks: { setCursor: [(plot) => this.#read(plot)], ...hooks },
      ...special,
    };
  }

  #read(plot) {
    const index = plot.cursor.idx;
    const said = index === null || index === undefined || plot.cursor.left < 0 ? "" : this.saidAt(plot, index);
    this.readout(said && `${time(plot.data[0][index])}: ${said}`);
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

/** A line or bars with their band; `reading` says what stands at a time. */
export class BandChart extends Chart {
  constructor(holder, readout, reading) {
    super(holder, readout);
    this.reading = reading;
    this.bars = false;
    this.percent = false;
    this.marks = [];
  }

  /** `marks` are times at which something begins, with the text that stands there. */
  draw(found, marks = []) {
    const { columns, range } = framed(found);
    this.range = range;
    this.marks = marks;
    this.plotted(columns, () => this.#own());
  }

  saidAt(plot, index) {
    return this.reading(plot.data[0][index]);
  }

  #own() {
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    return {
      wholes: (data) => !this.percent && data[3].every(Number.isInteger),
      scales: { y: { range: (_plot, low, high) => this.#height(low, high) } },
      series: [{}, edge, edge, { stroke: colour("--accent"), width: 2, points: { show: false } }],
      bands: [{ series: [2, 1], fill: colour("--band") }],
      hooks: { drawAxes: [drawZero], draw: [...(this.bars ? [drawWhiskers] : []), (plot) => drawMarks(plot, this.marks)] },
      ...(this.percent ? { labels: axisShare } : {}),
      ...(this.bars ? barOptions(edge) : {}),
    };
  }

  /** From where to where the picture goes; a share neither begins below 0 nor ends above 1. */
  #height(low, high) {
    if (this.range !== null) return this.range;
    if (low === null) return [0, 1];
    const [bottom, top] = uPlot.rangeNum(low, high, 0.1, true);
    return this.percent ? [Math.max(0, bottom), Math.min(1, top)] : [bottom, top];
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

/** Where 0 is, in a picture that goes below it. */
function drawZero(plot) {
  if (!(plot.scales.y.min < 0 && plot.scales.y.max > 0)) return;
  const { ctx: context, bbox } = plot;
  const top = Math.round(plot.valToPos(0, "y", true));
  context.save();
  context.fillStyle = colour("--muted");
  context.fillRect(bbox.left, top, bbox.width, Math.max(1, Math.round(uPlot.pxRatio)));
  context.restore();
}

/** A dashed line where something begins, its text beside it where there is room; of very many only the foot. */
function drawMarks(plot, marks) {
  const { ctx: context, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const many = marks.length > MOST_LINES;
  let free = bbox.left;
  context.save();
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.textAlign = "left";
  context.fillStyle = context.strokeStyle = colour("--muted");
  context.lineWidth = ratio;
  context.globalAlpha = 0.75;
  context.setLineDash(many ? [] : [2 * ratio, 3 * ratio]);
  context.beginPath();
  for (const { x } of marks) {
    const left = Math.round(plot.valToPos(x, "x", true)) + ratio / 2;
    context.moveTo(left, many ? bbox.top + bbox.height - 6 * ratio : bbox.top);
    context.lineTo(left, bbox.top + bbox.height);
  }
  context.stroke();
  context.globalAlpha = 1;
  for (const { x, text } of marks) {
    const left = plot.valToPos(x, "x", true) + 3 * ratio;
    const right = left + context.measureText(text).width;
    if (text === "" || left < free || right > bbox.left + bbox.width) continue;
    context.fillText(text, left, bbox.top);
    free = right + 6 * ratio;
  }
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
