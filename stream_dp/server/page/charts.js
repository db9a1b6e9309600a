// Drawing with uPlot: what all charts have, and what is drawn of many points.
// Rules: colours come from the style sheet; what is drawn is thinned to the pixels there are, and the
// band of a thinned point covers the bands of all points it stands for. An open end reaches beyond the picture, which is
// as high as most of what is known needs. All charts show the same time and the same moment under the cursor. Charts know
// no API.

import { axisCount, axisTimes, el, setText, time } from "./format.js";
import { chooseBetween } from "./range.js";

const MOST_POINTS = 600;
const HEIGHT = 190;
const STEPS = Array.from({ length: 21 }, (_, place) => [1, 2, 5].map((digit) => Number(`${digit}e${place - 6}`))).flat();
const WHOLE_STEPS = STEPS.filter(Number.isInteger);
const SHORTEST_DRAG = 8; // pixels
const LINKED = ["mousemove", "mouseleave"];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Where points from `start` on, before `many`, are drawn: the last of each stride, and the first of what it stands for. */
export function* strides(many, start) {
  const stride = Math.max(1, Math.ceil((many - start) / MOST_POINTS));
  for (let last = many - 1 - (Math.floor((many - start - 1) / stride) * stride); last < many; last += stride) yield [Math.max(start, last - stride + 1), last];
}

/** Points from `start` on, before `stop`, as uPlot columns [x, low, high, value]; null where nothing is known. */
export function thin(points, start, stop = points.x.length) {
  const columns = [[], [], [], []];
  for (const [first, last] of strides(stop, start)) {
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

/** Columns x, then low, high and value of each line, with open ends cut beyond the picture, and its range; null: it holds all there is. */
export function framed([x, ...columns]) {
  if (columns.every((column) => column.every((end) => end === null || Number.isFinite(end)))) return { columns: [x, ...columns], range: null };
  const lines = Array.from({ length: columns.length / 3 }, (_, line) => columns.slice(3 * line, 3 * line + 3));
  const points = lines.flatMap(([lows, highs, values]) => values.map((value, place) => [lows[place], value, highs[place]])).filter(([, value]) => value !== null);
  const known = points.filter(([low, , high]) => Number.isFinite(high - low));
  const sorted = (known.length > 0 ? known.flat() : points.map(([, value]) => value)).sort((one, two) => one - two);
  const at = (part) => sorted[Math.round((sorted.length - 1) * part)] ?? 0;
  const spread = (at(0.95) - at(0.05)) / 3 || Math.abs(at(0.5)) || 1;
  const [bottom, top] = [at(0.05) - spread, at(0.95) + spread];
  const beyond = spread + Math.max(Math.abs(bottom), Math.abs(top)); // 0 is in some pictures
  const cut = (end) => Math.min(top + beyond, Math.max(bottom - beyond, end));
  const told = lines.flatMap(([lows, highs, values]) => [lows, highs, values].map((column) => column.map((end, place) => (values[place] === null ? null : cut(end)))));
  return { columns: [x, ...told], range: [bottom, top] };
}

/** Where a logarithmic scale has lines: at 1 to 9 of every power of ten, or in even steps where these would be too few. */
export function logSplits(low, high) {
  if (high / low < 10) {
    const step = STEPS.find((each) => (high - low) / each <= 5) ?? STEPS.at(-1);
    const [first, last] = [Math.ceil(low / step), Math.floor(high / step)];
    return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
  }
  const [first, last] = [low, high].map((end) => Math.floor(Math.log10(end)));
  const powers = Array.from({ length: last - first + 1 }, (_, place) => first + place);
  return powers.flatMap((power) => [1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => Number(`${digit}e${power}`))).filter((at) => low <= at && at <= high);
}

/** Which of these have a number beside them; null: they do not. */
export function logNamed(splits) {
  const width = splits.at(-1) / splits[0];
  const digits = width >= 100 ? "1" : width >= 8 ? "125" : "123456789";
  return splits.map((split) => (digits.includes(split.toExponential()[0]) ? split : null));
}

/** The place of a chart in a card, and what is told of the time under the cursor. */
export function chartPlace() {
  const holder = el("div", { class: "chart", tabindex: "0", role: "img", "aria-label": "A chart, empty before the first release" });
  const readout = el("p", { class: "readout" });
  return { holder, readout, box: el("div", { class: "chart-box" }, holder, readout) };
}

/** A chart that follows its holder's width and is read point by point, by pointer or keys. */
export class Chart {
  constructor({ holder, readout }) {
    this.holder = holder;
    this.readout = readout;
    this.plot = null;
    this.span = [0, 1];
    this.scale = "";
    this.framed = null; // the range of a picture that does not hold all there is
    holder.addEventListener("keydown", (event) => this.#move(event));
    holder.addEventListener("focus", () => readout.setAttribute("aria-live", "polite")); // of linked charts one speaks
    holder.addEventListener("blur", () => {
      readout.removeAttribute("aria-live");
      this.plot?.setCursor({ left: -10, top: -10 });
    });
  }

  /** Draw columns over a range of time; `special` makes the options of the plot that are this chart's own, once. */
  plotted(columns, range, special) {
    const width = Math.floor(this.holder.clientWidth);
    if (width <= 0 || columns[0].length === 0) return void this.forget();
    if (this.scale !== range.scale) this.forget();
    this.span = [range.from, range.to];
    this.scale = range.scale;
    if (this.plot === null) {
      this.plot = new uPlot(this.#options(width, special()), columns, this.holder);
      return;
    }
    if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData(columns);
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
    setText(this.readout, "");
  }

  /** How wide half a bar is, in seconds. */
  get margin() {
    return 0;
  }

  /** From where to where values go; `low` and `high` are the least and the greatest drawn. */
  heights(low, high) {
    if (low === null || high === null) return this.scale === "log" ? [1, 10] : [0, 1];
    if (this.framed !== null) return this.#framedHeights(low);
    if (this.scale === "log") return [low / 1.2, high * 1.2];
    return this.scale === "zero" ? uPlot.rangeNum(Math.min(0, low), Math.max(0, high), 0.1, true) : uPlot.rangeNum(low, high, 0.1, true);
  }

  /** The range of a picture with open ends, as the scale has it; `low` is the least drawn. */
  #framedHeights(low) {
    const [bottom, top] = this.framed;
    if (this.scale === "log") return [Math.max(low, bottom), Math.max(2 * low, top)];
    return this.scale === "zero" ? [Math.min(0, bottom), Math.max(0, top)] : [bottom, top];
  }

  #options(width, { hooks = {}, wholes, labels = axisCount, series, ...special }) {
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: colour("--muted"), font, grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const steps = this.scale === "log" ? { splits: (_plot, _axis, low, high) => logSplits(low, high), filter: (_plot, splits) => logNamed(splits) } : { incrs: (plot) => (wholes(plot.data) ? WHOLE_STEPS : STEPS) };
    return {
      width,
      height: HEIGHT,
      padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false, dist: SHORTEST_DRAG },
        points: { size: 8 },
        sync: { key: "time", setSeries: false, scales: ["x", null], filters: { pub: (type) => LINKED.includes(type) } },
        bind: { dblclick: () => null },
      },
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), "Etc/UTC"),
      scales: {
        x: { range: () => this.#times() },
        y: { distr: this.scale === "log" ? 3 : 1, range: (_plot, low, high) => this.heights(low, high) },
      },
      axes: [
        { ...axis, space: 64, size: 30, values: (_plot, splits, _axis, _space, increment) => axisTimes(splits, increment) },
        { ...axis, size: 62, ...steps, values: (_plot, splits) => splits.map((split) => (split === null ? "" : labels(split))) },
      ],
      hooks: { setCursor: [(plot) => this.#read(plot)], setSelect: [(plot) => this.#zoom(plot)], ...hooks },
      series,
      ...special,
    };
  }

  #times() {
    const [from, to] = this.span;
    const margin = this.margin || (from === to ? 1 : 0);
    return [from - margin, to + margin];
  }

  #read(plot) {
    const { idx: index, left } = plot.cursor;
    const said = index === null || index === undefined || left < 0 ? "" : this.saidAt(plot, index);
    setText(this.readout, said && `${time(plot.data[0][index])}: ${said}`);
    const right = left > plot.width / 2;
    this.readout.classList.toggle("to-left", right);
    this.readout.style.setProperty("--at", `${Math.round(plot.bbox.left / uPlot.pxRatio + left)}px`);
  }

  #zoom(plot) {
    const { left, width } = plot.select;
    if (width < SHORTEST_DRAG) return;
    const [from, to] = [left, left + width].map((at) => plot.posToVal(at, "x"));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    chooseBetween(from, to);
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
