// What is drawn beside the values: where 0 is, where something begins, alerts on a strip.
// Rules: colours come from the style sheet; of very many marks only the foot is drawn.

import { colour } from "./charts.js";

const MOST_LINES = 40;
const DOT = 3.5; // pixels
export const UNTOLD = "too few to tell";

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
