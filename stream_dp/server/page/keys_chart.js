// Drawing of chosen keys over time: a line with its band for each, told apart by colour and by name.
// Rules: colours come from the style sheet. Charts know no API.

import { aboveZero, floored } from "./band_chart.js";
import { Chart, colour, framed, strides } from "./charts.js";
import { drawLone } from "./marks.js";

export const COLOURS = 6;
const SOFT = "2b"; // the opacity of a band

/** What `noKeys` holds of these keys, from `start` on, before `stop`, as uPlot columns: x, then low, high and value of each. */
export function keyColumns({ x, columns }, keys, start, stop) {
  const shown = [...strides(stop, start)].map(([, last]) => last);
  const told = (key, end, at) => (columns.get(key)?.value[at] === null ? null : columns.get(key)?.[end][at] ?? null);
  const own = keys.flatMap((key) => ["low", "high", "value"].map((end) => shown.map((at) => told(key, end, at))));
  return [shown.map((at) => x[at]), ...own];
}

export class KeysChart extends Chart {
  constructor(place, reading, floor) {
    super(place);
    this.reading = reading;
    this.floor = floor;
    this.keys = [];
  }

  draw(found, range, keys) {
    const { columns, range: heights } = framed(floored(found, this.floor));
    this.framed = heights;
    if (this.keys.join("\n") !== keys.join("\n")) this.forget();
    this.keys = keys;
    this.plotted(range.scale === "log" ? aboveZero(columns) : columns, range, () => this.#own());
  }

  saidAt(plot, index) {
    return this.reading(plot.data[0][index]);
  }

  #own() {
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    const paint = this.keys.map((_, place) => colour(`--part-${place % COLOURS}`));
    return {
      wholes: (data) => data.slice(1).every((column) => column.every((value) => value === null || Number.isInteger(value))),
      series: [{}, ...paint.flatMap((stroke) => [edge, edge, { stroke, width: 2, points: { show: false } }])],
      hooks: { draw: [(plot) => drawLone(plot, paint.map((stroke, place) => ({ low: 3 * place + 1, high: 3 * place + 2, value: 3 * place + 3, stroke })))] },
      bands: paint.map((stroke, place) => ({ series: [3 * place + 2, 3 * place + 1], fill: stroke + SOFT })),
    };
  }
}
