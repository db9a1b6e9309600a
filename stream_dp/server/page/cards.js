// Which card shows a series: by the form of its releases, never by the name of its statistic.
// Rules: before there is a release, the shape that the API tells decides; a card that turns out to be another is made
// anew. What has no picture says so.

import { Card } from "./card.js";
import { FanCard, noFan } from "./fan_card.js";
import { FlagsCard } from "./flags_card.js";
import { setText } from "./format.js";
import { HistogramCard, QuotientsByKeyCard, noKeys } from "./keys_card.js";
import { QuotientCard, ScalarCard, noPoints } from "./line_card.js";
import { RanksCard } from "./ranks_card.js";
import { TICK, partsOf, windowed } from "./windowed_card.js";

/** How a part of a release is shown: by the first of these fields that it has. */
const PARTS = [["low", "quotient"], ["lows", "quotients"], ["quantiles", "fan"], ["ranks", "ranks"], ["fired", "flags"], ["values", "histogram"], ["value", "scalar"]];
const LINES = ["scalar", "rate", "quotient", "fan"];

/** Whether a card is a line over time, which comes before what is not. */
export const isLine = (shape) => LINES.includes(shape);

/** How a series is shown, by what its release says, before there is one by the shape that the API tells. */
export function shapeOf(series, release) {
  if (!release) return { scalar: "scalar", histogram: "histogram", flags: "flags", windows: series.domain ? "rates" : "rate" }[series.shape ?? "scalar"] ?? "unknown";
  const [part] = Object.values(partsOf(release));
  const [, shape] = PARTS.find(([field]) => field in (part ?? {})) ?? [];
  if (shape === undefined) return "unknown";
  return release.windows ? ({ scalar: "rate", histogram: "rates" }[shape] ?? shape) : shape;
}

export function makeCard(series, planned, shape) {
  const cards = { scalar: ScalarCard, histogram: HistogramCard, flags: FlagsCard, rate: RateCard, rates: RatesCard, quotient: MeanCard, quotients: MeansCard, fan: FansCard, ranks: TopCard };
  return new (cards[shape] ?? UnknownCard)(series, planned);
}

/** A single tick is bars, for each stands alone; a window is a line, for it slides. */
class RateCard extends windowed(ScalarCard, { shape: "rate", points: noPoints }) {
  look(name) {
    this.points = this.windows.get(name);
    this.chart.bars = name === TICK;
    this.chart.forget();
  }
}

/** A quotient is a line over every window, for it does not begin at 0. */
class MeanCard extends windowed(QuotientCard, { shape: "quotient", begins: 1, points: noPoints }) {
  look(name) {
    this.points = this.windows.get(name);
    this.chart.forget();
  }
}

class RatesCard extends windowed(HistogramCard, { shape: "rates", points: noKeys }) {
  look(name) {
    this.kept = this.windows.get(name);
    this.filled = -Infinity;
  }
}

class MeansCard extends windowed(QuotientsByKeyCard, { shape: "quotients", begins: 1, points: noKeys }) {
  look(name) {
    this.kept = this.windows.get(name);
    this.filled = -Infinity;
  }
}

class FansCard extends windowed(FanCard, { shape: "fan", points: noFan }) {
  look(name) {
    this.fan = this.windows.get(name);
    this.chart.forget();
  }
}

class TopCard extends windowed(RanksCard, { shape: "ranks", begins: 1 }) {}

/** What a newer engine may release. */
class UnknownCard extends Card {
  constructor(series, planned) {
    super(series, planned, "unknown");
  }

  get tabled() {
    return false;
  }

  take() {}

  show() {
    setText(this.note, "No picture for this yet: its releases are at /api/series.");
  }
}
