// Which card shows a series: by the form of its releases, never by the name of its statistic.
// Rules: before there is a release, the shape that the API tells decides; a card that turns out to be another is made
// anew. What has no picture says so.

import { Card } from "./card.js";
import { FanCard, noFan } from "./fan.js";
import { FlagsCard } from "./flags.js";
import { duration, el, setText, spelled, theLength, words } from "../format.js";
import { HistogramCard, QuotientsByKeyCard, noKeys } from "./keys.js";
import { ANEW, ENDED, QuotientCard, ScalarCard, isBefore, noPoints } from "./line.js";
import { RanksCard } from "./ranks.js";
import { choice, choose } from "../view.js";

// A card that shows one window of its releases, which its reader chooses.
// Rules: the choice is offered where there is one. A card whose reader has not chosen begins with the shortest window whose value
// is more than two bands, of those that slide and are useful by the file's guesses, or else of all; once there are enough releases it goes to the shortest of which most are so too, and stays there. A tick is
// told by its length.

export const TICK = "tick";
export const EVER = "ever";

const BAR = 4; // pixels at least

const ENOUGH = 48; // releases
const CLEAR = [2, 1]; // bands that a value exceeds: what is wished, and what else will do

/** What a window is over, by what its series says of when it tells it; windows slide unless it says otherwise. */
const SPANS = { [ENDED]: (length) => `in the ${length} that ended last`, [ANEW]: (length) => `since the ${length} began` };

function overText(series, name) {
  if (name === EVER) return "so far";
  if (isBefore(name)) return `in the whole ${theLength(name)}`;
  if (name === TICK && series.step > 0) return `in the last ${theLength(duration(series.step))}`;
  return name === "" ? "" : (SPANS[series.parameters?.told] ?? ((length) => `in the last ${length}`))(theLength(name));
}

/** The parts of a release by window; what has no windows is one, without a name. */
export const partsOf = (release) => release.windows ?? { "": release };

/** `points`: what is kept of each window. */
export const windowed = (Base, { shape, points = () => null }) => class extends Base {
  constructor(series, planned) {
    super(series, planned, shape);
    this.windows = new Map();
    this.choice = el("div", { class: "segmented over", role: "group", "aria-label": `Window of ${words(series.name)}`, hidden: true });
    this.body.prepend(this.choice);
  }

  /** The expected error is that of the window. */
  tell(planned, query) {
    this.query = query;
    super.tell(planned && { ...planned, ...planned.windows?.find(({ window }) => window === this.window) }, query);
  }

  take(release) {
    const parts = partsOf(release);
    this.whole = release;
    for (const [name, part] of Object.entries(parts)) {
      if (!this.windows.has(name)) this.#offer(name);
      super.take({ ...release, ...part }, this.windows.get(name));
    }
    const names = Object.keys(parts);
    const asked = choice(this.#asked);
    if (this.window === undefined && names.includes(asked)) this.settled = true;
    if (this.window === undefined) this.#choose(this.settled ? asked : this.#clearest(names));
    this.latest = { ...release, ...parts[this.window] };
  }

  get stores() {
    return [...this.windows.values()];
  }

  empty() {
    super.empty();
    for (const name of this.windows.keys()) this.windows.set(name, points());
    if (this.window !== undefined) this.look(this.window);
  }

  /** How the address names the window that was chosen here. */
  get #asked() {
    return `window.${this.series.name}`;
  }

  show(range) {
    if (!this.settled && this.received >= ENOUGH) {
      this.settled = true;
      const better = this.#clearest([...this.windows.keys()]);
      if (better !== this.window) this.#choose(better);
    }
    super.show(range);
  }

  /** The shortest of these windows whose value exceeds its band twice, or once; the longest where none does. A useful one comes first: an hour at night is no day. */
  #clearest(names) {
    const parts = partsOf(this.whole);
    const useful = (name) => (this.planned?.verdicts ?? []).some(({ window, verdict }) => window === name && verdict === "useful");
    const first = names.find((name) => name !== EVER && name in parts && useful(name) && this.bandsOf(parts[name]) > CLEAR[0]);
    if (first !== undefined) return first;
    const most = (name, bands) => (this.windows.get(name)?.tick?.length ?? 0) < ENOUGH || (this.says?.(this.windows.get(name), ENOUGH, bands) ?? true);
    for (const bands of CLEAR) {
      const found = names.find((name) => name in parts && this.bandsOf(parts[name]) > bands && most(name, bands));
      if (found !== undefined) return found;
    }
    return names.at(-1);
  }

  #offer(name) {
    const shown = name === TICK && this.series.step > 0 ? duration(this.series.step) : spelled(name);
    const said = name === EVER ? "ever, so far" : overText(this.series, name).replace(/^in /, "");
    const button = el("button", { type: "button", value: name, "aria-label": said.includes(shown) ? said : `${shown}: ${said}` }, shown);
    button.addEventListener("click", () => {
      choose({ [this.#asked]: name });
      this.settled = true;
      this.#choose(name);
      this.redraw();
    });
    this.windows.set(name, points());
    this.choice.append(button);
    this.choice.hidden = this.windows.size < 2;
  }

  #choose(name) {
    this.window = name;
    const over = overText(this.series, name);
    this.over = over && ` ${over}`;
    this.latest = { ...this.whole, ...partsOf(this.whole)[name] };
    for (const button of this.choice.children) button.setAttribute("aria-pressed", String(button.value === name));
    this.tell(this.planned, this.query);
    this.look(name);
  }

  /** What changes with the window, beside the figures. */
  look() {}
};

// Which card shows a series.

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

/** A single tick is bars, for each stands alone; a window is a line, for it slides, and so is what is more than there is room for. */
class RateCard extends windowed(ScalarCard, { shape: "rate", points: noPoints }) {
  look(name) {
    this.points = this.windows.get(name);
    this.chart.bars = name === TICK;
    this.chart.forget();
  }

  bar(many) {
    const bars = this.window === TICK && BAR * many <= this.chart.columns;
    if (bars !== this.chart.bars) this.chart.forget();
    this.chart.bars = bars;
  }
}

/** A quotient is a line over every window, for it does not begin at 0. */
class MeanCard extends windowed(QuotientCard, { shape: "quotient", points: noPoints }) {
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

class MeansCard extends windowed(QuotientsByKeyCard, { shape: "quotients", points: noKeys }) {
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

class TopCard extends windowed(RanksCard, { shape: "ranks" }) {}

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
    setText(this.note, "There is no chart for this kind of series yet. Its releases are at /api/series.");
  }
}
