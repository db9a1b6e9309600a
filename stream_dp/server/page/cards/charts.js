// Drawing with uPlot: what all charts have, and what is drawn of many points.
// Rules: colours come from the style sheet; what is drawn is thinned to the pixels there are, and the
// band of a thinned point covers the bands of all points it stands for. An open end reaches beyond the picture, which is
// as high as most of what is known needs. All charts show the same time and the same moment under the cursor. Charts know
// no API.

import { axisCount, axisTimes, el, setText, time, zoneShown } from "../format.js";
import { chooseBetween } from "../view.js";

const MOST_POINTS = 600;
const PLAIN_HEIGHT = 150; // pixels
const BESIDE = 88; // pixels of a chart that its axis and its edge take
const BANDS = 3; // no picture is lower than so many bands
const NEARBY = 1 / 6; // of a picture: where a movement is looked for
const FAINT = "59"; // the opacity of a line that says nothing
const STILL = "changes within the band, which may be noise alone";
const PARTLY = "faint where changes may be noise alone";
const WHY = "Every number was published with noise, and the band says how much. If a line moves less than the height of its band, perhaps nothing has changed.";
const STEPS = Array.from({ length: 21 }, (_, place) => [1, 2, 5].map((digit) => Number(`${digit}e${place - 6}`))).flat();
const WHOLE_STEPS = STEPS.filter(Number.isInteger);
const SHORTEST_DRAG = 8; // pixels
const LINKED = ["mousemove", "mouseleave"];

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Where points from `start` on, before `many`, are drawn in so many `columns`: the last of each stride, and the first of what it stands for. The newest point stands alone: it is the number above the chart. */
export function* strides(many, start, columns = MOST_POINTS) {
  const older = many - start - 1;
  const stride = older < columns ? 1 : Math.ceil(older / (columns - 1));
  for (let first = many - 1 - Math.ceil(older / stride) * stride; first < many - 1; first += stride) yield [Math.max(start, first), first + stride - 1];
  if (older >= 0) yield [many - 1, many - 1];
}

/** What points from `first` to `last` are together: the mean of their values, and from the least to the greatest end of their bands; nulls where nothing is known. */
export function together({ value, low, high }, first, last) {
  const found = { low: Infinity, high: -Infinity, sum: 0, many: 0 };
  for (let at = first; at <= last; at += 1) {
    if ((value[at] ?? null) === null) continue;
    found.low = Math.min(found.low, low[at]);
    found.high = Math.max(found.high, high[at]);
    found.sum += value[at];
    found.many += 1;
  }
  if (found.many === 0) return { low: null, high: null, value: null, many: 0 };
  return { ...found, value: found.many === 1 ? found.sum : found.sum / found.many };
}

/** Points from `start` on, before `stop`, as uPlot columns [x, low, high, value], at most so many; null where nothing is known. */
export function thin(points, start, stop = points.x.length, most = MOST_POINTS) {
  const columns = [[], [], [], []];
  for (const [first, last] of strides(stop, start, most)) {
    const { low, high, value } = together(points, first, last);
    [points.x[last], low, high, value].forEach((told, place) => columns[place].push(told));
  }
  return columns;
}

/** How high the bands of these columns usually are, from end to end: the median of what is known. */
function bandOf([, ...columns]) {
  const heights = columns.flatMap((lows, place) => (place % 3 === 0 ? lows.map((low, at) => (low === null ? NaN : columns[place + 1][at] - low)) : []));
  const known = heights.filter(Number.isFinite).sort((one, two) => one - two);
  return known[known.length >> 1] ?? 0;
}

/** The greatest of `values` at most `reach` places away, for each place. */
function nearbyMost(values, reach) {
  const queue = []; // places whose values fall
  const found = [];
  for (let at = 0; at < values.length + reach; at += 1) {
    while (at < values.length && queue.length > 0 && values[queue.at(-1)] <= values[at]) queue.pop();
    if (at < values.length) queue.push(at);
    if (queue[0] < at - 2 * reach) queue.shift();
    if (at >= reach) found.push(values[queue[0]]);
  }
  return found;
}

/** Where a line moves more than its band: two bands nearby do not meet. Elsewhere its ups and downs may be noise alone. */
export function moving(lows, highs) {
  const reach = Math.max(1, Math.ceil(lows.length * NEARBY));
  const most = nearbyMost(lows.map((low) => low ?? -Infinity), reach);
  const least = nearbyMost(highs.map((high) => -(high ?? Infinity)), reach);
  return most.map((low, at) => low > -least[at]);
}

/** The colour of a line over time, faint where it does not move more than its band. */
export function fading(stroke, low, high) {
  return (plot) => {
    const { data, bbox, ctx: context } = plot;
    const moves = moving(data[low], data[high]);
    if (moves.every(Boolean) || bbox.width === 0) return stroke;
    const paint = context.createLinearGradient(bbox.left, 0, bbox.left + bbox.width, 0);
    moves.forEach((firm, at) => {
      if (at > 0 && at < moves.length - 1 && moves[at - 1] === firm && moves[at + 1] === firm) return;
      const part = (plot.valToPos(data[0][at], "x", true) - bbox.left) / bbox.width;
      paint.addColorStop(Math.min(1, Math.max(0, part)), firm ? stroke : stroke + FAINT);
    });
    return paint;
  };
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
  const still = el("p", { class: "still", hidden: true });
  return { holder, readout, still, box: el("div", { class: "chart-box" }, holder, readout, still) };
}

/** A chart that follows its holder's width and is read point by point, by pointer or keys. */
export class Chart {
  constructor({ holder, readout, still }) {
    Object.assign(this, { holder, readout, still });
    this.height = PLAIN_HEIGHT;
    this.least = 0; // how high the picture is at least
    this.plot = null;
    this.span = [0, 1];
    this.scale = "";
    this.framed = null; // the range of a picture that does not hold all there is
    new ResizeObserver(() => this.#fit()).observe(holder);
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
    this.#fit();
    this.plot.setData(columns);
  }

  /** As high as its size says, or as there is room in its row of cards. */
  get high() {
    return Math.max(this.height, this.holder.clientHeight);
  }

  #fit() {
    const [width, height] = [Math.floor(this.holder.clientWidth), this.high];
    if (this.plot !== null && width > 0 && (this.plot.width !== width || this.plot.height !== height)) this.plot.setSize({ width, height });
  }

  forget() {
    this.plot?.destroy();
    this.plot = null;
    setText(this.readout, "");
  }

  /** How many points have room: one for each pixel. */
  get columns() {
    return Math.max(24, Math.floor(this.holder.clientWidth) - BESIDE);
  }

  /** Look at columns x, then low, high and value of each line: how high a picture they need, and what is to be said of lines that do not move more than their band. */
  weigh(columns) {
    this.least = BANDS * bandOf(columns);
    const lines = columns.slice(1).filter((_, place) => place % 3 === 0);
    const moves = columns[0].length < 3 ? [] : lines.flatMap((lows, place) => (lows.every((low) => low === null) ? [true] : moving(lows, columns[3 * place + 2])));
    const firm = moves.filter(Boolean).length;
    this.still.hidden = firm === moves.length || (firm > 0 && !this.fades);
    setText(this.still, firm === 0 ? STILL : PARTLY);
    this.still.title = `${this.still.textContent}. ${WHY}`;
  }

  /** Whether its lines are pale where they do not move; bars are not. */
  get fades() {
    return true;
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
    return this.scale === "zero" ? uPlot.rangeNum(Math.min(0, low), Math.max(0, high), 0.1, true) : this.#roomy(low, high);
  }

  /** A range that holds these two and is as high as the picture is at least, above the floor where they are. */
  #roomy(low, high) {
    const [bottom, top] = uPlot.rangeNum(low, high, 0.1, true);
    const more = Math.max(0, this.least - (top - bottom)) / 2;
    const foot = low >= (this.floor ?? -Infinity) ? this.floor ?? -Infinity : -Infinity;
    const from = Math.max(foot, bottom - more);
    return [from, Math.max(top + more, from + this.least)];
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
      height: this.high,
      padding: [10, 26, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false, dist: SHORTEST_DRAG },
        points: { size: 8 },
        sync: { key: "time", setSeries: false, scales: ["x", null], filters: { pub: (type) => LINKED.includes(type) } },
        bind: { dblclick: () => null },
      },
      tzDate: (stamp) => uPlot.tzDate(new Date(stamp * 1000), zoneShown()),
      scales: {
        x: { range: () => this.#times() },
        y: { distr: this.scale === "log" ? 3 : 1, range: (_plot, low, high) => this.heights(low, high) },
      },
      axes: [
        { ...axis, space: 64, size: 30, values: (_plot, splits, _axis, _space, increment) => axisTimes(splits, increment) },
        { ...axis, size: 62, space: (_plot, _axis, _low, _high, high) => Math.min(30, Math.max(16, high / 4)), ...steps, values: (_plot, splits) => splits.map((split) => (split === null ? "" : labels(split))) },
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

const DEEPEST = 1e-4; // of the greatest value: the foot of a logarithmic picture

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

// What is drawn beside the values: where 0 is, where something begins, alerts on a strip.
// Rules: colours come from the style sheet; of very many marks only the foot is drawn.

const MOST_LINES = 40;
const DOT = 3.5; // pixels
export const UNTOLD = "too few events";

/** Where 0 is, in a picture that goes below it. */
export function drawZero(plot) {
  if (!(plot.scales.y.min < 0 && plot.scales.y.max > 0)) return;
  const { ctx: context, bbox } = plot;
  const top = Math.round(plot.valToPos(0, "y", true));
  context.save();
  context.fillStyle = colour("--muted");
  context.fillRect(bbox.left, top, bbox.width, Math.max(1, Math.round(uPlot.pxRatio)));
  context.restore();
}

/** A wash over the times of which no line says anything, with words where there is room. */
export function drawUntold(plot) {
  const { ctx: context, bbox, data: [x, ...lines] } = plot;
  const ratio = uPlot.pxRatio;
  const untold = (at) => lines.every((line) => line[at] === null);
  const place = (at) => (at <= 0 ? bbox.left : at >= x.length ? bbox.left + bbox.width : plot.valToPos((x[at - 1] + x[at]) / 2, "x", true));
  context.save();
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (let from = 0; from < x.length; from += 1) {
    if (!untold(from)) continue;
    let to = from;
    while (to < x.length && untold(to)) to += 1;
    const [left, right] = [place(from), place(to)];
    context.fillStyle = colour("--band-far");
    context.fillRect(left, bbox.top, right - left, bbox.height);
    context.fillStyle = colour("--muted");
    if (context.measureText(UNTOLD).width + 8 * ratio < right - left) context.fillText(UNTOLD, (left + right) / 2, bbox.top + bbox.height / 2);
    from = to;
  }
  context.restore();
}

/** What stands alone in its line, where there is no line to draw: a dot with its band. `low`, `high` and `value` are places of columns. */
export function drawLone(plot, lines) {
  const { ctx: context, bbox, data } = plot;
  const at = (number, scale) => plot.valToPos(number, scale, true);
  context.save();
  context.beginPath();
  context.rect(bbox.left - DOT * uPlot.pxRatio, bbox.top, bbox.width + 2 * DOT * uPlot.pxRatio, bbox.height);
  context.clip();
  context.lineWidth = DOT * uPlot.pxRatio;
  for (const { low, high, value, stroke } of lines) {
    const values = data[value];
    const there = (place) => (values[place] ?? null) !== null;
    context.fillStyle = context.strokeStyle = stroke;
    values.forEach((told, place) => {
      if (!there(place) || there(place - 1) || there(place + 1)) return;
      const left = at(data[0][place], "x");
      context.globalAlpha = 0.3;
      context.beginPath();
      context.moveTo(left, at(data[low][place], "y"));
      context.lineTo(left, at(data[high][place], "y"));
      context.stroke();
      context.globalAlpha = 1;
      context.beginPath();
      context.arc(left, at(told, "y"), DOT * uPlot.pxRatio, 0, 2 * Math.PI);
      context.fill();
    });
  }
  context.restore();
}

/** A dashed line where something begins, its text beside it where there is room; of very many only the foot. */
export function drawMarks(plot, marks) {
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
