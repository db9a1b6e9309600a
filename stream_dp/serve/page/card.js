// What every card has: title, body, note, foot, and the tools under its picture.
// Rules: a card takes releases in order (each sequence once) and draws when asked, so that many releases cost one
// drawing; a picture that nobody can see is not drawn, its words are. The foot of every card says the same of every series, of
// the file or a live one: price, expected error, start, end, analyst; how it is made is one click away. Cards know no network.

import { CardTools } from "./card_tools.js";
import { amount, el, errorText, percent, setText, tickText, titleOf, toNumber, words } from "./format.js";
import { madeId } from "./proof.js";

const RECENT_TICKS = 2000;
const UNKNOWN = "The engine does not know this series any more. What came of it stays; what was released before the page was opened cannot be loaded.";
const FAILED = "What was released before cannot be loaded just now. The page asks for it again by itself.";

export class Card {
  constructor(series, planned, shape) {
    this.series = series;
    this.shape = shape;
    this.sequence = -1;
    this.received = 0;
    this.pictures = 0;
    this.latest = null;
    this.halted = false;
    this.unknown = false; // whether the engine has no history of it
    this.over = "";
    this.near = undefined; // whether its picture can be seen, or soon can
    this.stale = true;
    this.reached = null; // the first tick of the history that was loaded
    this.foot = el("footer", { class: "card-foot" });
    this.note = el("p", { class: "note" }, "Waiting for the first release.");
    this.body = el("div", { class: "card-body" });
    this.about = words(series.about) || shape;
    this.tag = el("span", { class: "tag" }, this.about);
    this.title = titleOf(series);
    this.tools = new CardTools(this);
    const where = (series.where ?? []).map((text) => el("li", {}, text));
    this.element = el(
      "article",
      { class: `card ${shape}`, "data-series": series.name, "aria-labelledby": `card-${series.name}` },
      el("header", { class: "card-head" }, el("h3", { id: `card-${series.name}` }, this.title), this.tag),
      series.description ? el("p", { class: "description" }, series.description) : null,
      where.length > 0 ? el("ul", { class: "where", "aria-label": "Only what passes all of this is counted" }, ...where) : null,
      this.body,
      this.note,
      this.tools.element,
      this.foot,
    );
    this.tell(planned, {});
  }

  /** Take a release; false when it was known. */
  push(release) {
    if (release.sequence <= this.sequence) return false;
    if (this.unknown) this.#know();
    this.sequence = release.sequence;
    this.received += 1;
    this.latest = release;
    this.stale = true;
    this.take(release);
    return true;
  }

  /** Take a history in place of what was kept, from a tick on. */
  restart(releases, from) {
    this.sequence = -1;
    this.received = 0;
    this.reached = from;
    this.empty();
    releases.forEach((release) => this.push(release));
  }

  /** The engine has no history of it: what came is all there is, unless it releases once more. */
  lose() {
    this.unknown = true;
    this.reached ??= this.latest.tick;
    this.stale = true;
    this.#mark();
  }

  /** It releases, so its history is there. */
  #know() {
    this.unknown = false;
    this.reached = null;
    this.#mark();
  }

  /** Forget what is kept of releases but the last. */
  empty() {}

  /** Whether its picture needs more than the newest release. */
  get overTime() {
    return false;
  }

  /** Whether its tools offer a table: not where the card is one. */
  get tabled() {
    return true;
  }

  /** How many ticks at most are kept of it. */
  get mostTicks() {
    return Infinity;
  }

  /** The tick from which on its history is missing for a range, or null. */
  missing({ first, length, before }) {
    if (!this.overTime || this.latest === null) return null;
    const wanted = Math.min(before ? first - length : first, this.latest.tick - RECENT_TICKS);
    const from = Math.max(0, wanted, this.latest.tick - this.mostTicks);
    return this.reached !== null && this.reached <= from ? null : from;
  }

  /** What the plan and the list of queries say of it; a halted series is in no plan, and keeps what it had. */
  tell(planned, query) {
    this.planned = planned ?? this.planned;
    this.halted = query.end !== null && query.end !== undefined;
    this.#mark();
    const price = priceText(this.planned, this.series.error_unit);
    const lines = [price, spanText(query)].filter(Boolean);
    if (lines.join() === this.told) return;
    this.told = lines.join();
    this.foot.replaceChildren(...lines.map((line) => el("p", {}, line)));
    if (price) this.foot.firstChild.append(" · ", el("a", { href: `#${madeId(this.series.name)}` }, "How it is made"));
  }

  /** Whether it goes on, on its head. */
  #mark() {
    this.element.classList.toggle("halted", this.halted || this.unknown);
    setText(this.tag, [this.about, this.halted ? "halted" : this.unknown ? "not known any more" : ""].filter(Boolean).join(" · "));
  }

  /** Draw what changed, words always, the picture where it can be seen. */
  draw(range) {
    this.range = range;
    if (this.latest === null) return;
    Object.assign(this.element.dataset, { tick: this.latest.tick, received: this.received, pictures: this.pictures += Number(this.near) });
    this.stale = false;
    this.show(range);
    if (this.unknown) setText(this.note, UNKNOWN);
    if (this.near) this.picture(range);
    this.tools.refresh();
  }

  /** While the history is loaded: that it is, or `failed`; of a card that needs none for it, the newest number. */
  wait(failed) {
    if (this.latest === null) return;
    this.early();
    if (failed) setText(this.note, FAILED);
  }

  early() {
    setText(this.note, "Loading what was released before.");
  }

  /** Draw again now, for the reader chose something on the card. */
  redraw() {
    this.stale = true;
    if (this.range !== undefined) this.draw(this.range);
  }

  picture() {}

  /** Forget what was drawn, for colours or scales changed, or nobody sees it. */
  recolour() {
    this.chart?.forget();
    this.stale = true;
  }

  /** It is taken off the page: linked charts hold each other until they are forgotten. */
  leave() {
    this.chart?.forget();
  }

  /** Released values as columns with their names, for a table and for files; the newest last. */
  rows() {
    return { names: [], rows: [] };
  }

  /** What lies below is no true number of it: bands end here. */
  get floor() {
    return this.series.nonnegative ? 0 : -Infinity;
  }

  /** What a band is about: where the events of a user are capped, those that count. */
  get exactly() {
    return this.series.capped ? "exact figure of the events that count" : "exact figure";
  }

  confidence() {
    return percent(this.latest.confidence ?? 0.95);
  }
}

function priceText(planned, unit) {
  if (!planned) return "";
  const delta = String(planned.delta ?? "0") === "0" ? "" : `, δ ${amount(planned.delta)}`;
  const last = planned.predicted_error?.at(-1);
  const price = toNumber(planned.epsilon) === 0 ? "Free: made of other series" : `Costs ε ${amount(planned.epsilon)}${delta}`;
  return `${price}${last ? ` · expected error ${errorText(last, unit)}` : ""}`;
}

/** `start` is the first tick that it sees, `end` the first that it does not see. */
function spanText({ start, start_time: began, end, end_time: ended, analyst }) {
  if (start === undefined) return "";
  const parts = [`Start: ${tickText(start, began)}`];
  if (end !== null && end !== undefined) parts.push(`End: ${tickText(end, ended)}`);
  if (analyst) parts.push(`Analyst: ${words(analyst)}`);
  return parts.join(" · ");
}

/** The first index whose entry is at least `wanted`. */
export function lowerBound(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
