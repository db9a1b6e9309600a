// What every card has: title, body, note, foot, and the tools under its picture.
// Rules: a card takes releases in order (each sequence once) and draws when asked, so that many releases cost one
// drawing; a picture that nobody can see is not drawn, its words are. What is kept is what the range needs, the newest ticks, and
// little more: the rest is let go, and loaded again for a range that needs it. The details of every card say the same of every series, of
// the file or a live one: price, expected error, start, end, analyst; how it is made is one click away. Cards know no network.

import { CardTools, LARGE, MEDIUM, SIZES, SMALL } from "./tools.js";
import { amount, band, count, duration, el, errorText, named, percent, round, sentence, setText, spelled, theLength, tickText, titleOf, toNumber, versionOf, words } from "../format.js";
import { madeId } from "../promise.js";

const RECENT_TICKS = 2000; // kept whatever the range
const SLACK_TICKS = 1000; // that nobody needs, before they are let go
const HEIGHTS = { [SMALL]: 84, [MEDIUM]: 150, [LARGE]: 250 }; // of a chart, in pixels
const WORTH = { useful: "at most a fifth of the number", rough: "more than a fifth of the number", noise: "at least as large as the number" };
const NEWEST = { first: 0, last: 0, length: 1, before: false, live: true };
const UNKNOWN = "The engine no longer knows this series. The releases shown here stay, but releases from before you opened the page cannot be loaded.";
const FAILED = "Earlier releases cannot be loaded now. The page tries again by itself.";

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
    this.reached = null; // the first tick of the history that was loaded, and is kept
    this.gap = null; // the first and the last tick of those within it that are not kept
    this.aimed = NEWEST; // the range that is chosen
    this.fails = false; // whether what it needs for that was asked for in vain
    this.about = spelled(words(series.about)).replace(/\bper tick\b/, series.step > 0 ? `per ${theLength(duration(series.step))}` : "$&") || shape;
    this.size = "";
    this.claims = el("div");
    this.judged = el("div", { class: "about" });
    this.foot = el("details", { class: "card-foot" }, el("summary", {}, "Details"), el("div", { class: "about" }, sentence(this.about)), this.judged, this.claims);
    this.worth = el("span", { class: "verdict", hidden: true });
    this.progress = el("progress", { class: "loading", max: 1, "aria-label": "Loading earlier releases", hidden: true });
    this.note = el("p", { class: "note" }, "Waiting for the first release.");
    this.body = el("div", { class: "card-body" });
    this.tag = el("span", { class: "tag", title: this.about }, this.about);
    this.title = titleOf(series);
    this.tools = new CardTools(this);
    this.anew = el("p", { class: "description version", hidden: versionOf(series) === 1 });
    const where = (series.where ?? []).map((text) => el("li", {}, text));
    this.element = el(
      "article",
      { class: `card ${shape}`, "data-series": series.name, "aria-labelledby": `card-${series.name}` },
      this.progress,
      el("header", { class: "card-head" }, el("h3", { id: `card-${series.name}` }, this.title), this.worth, this.tag),
      series.description ? el("p", { class: "description", title: series.description }, series.description) : null,
      this.anew,
      where.length > 0 ? el("ul", { class: "where", "aria-label": "Only events that meet all these conditions are counted" }, ...where) : null,
      this.body,
      this.note,
      this.tools.element,
    );
    this.tell(planned, {});
  }

  /** Take a release; false when it was known. */
  push(release) {
    if (release.sequence <= this.sequence || !this.#isMine(release)) return false;
    this.#add(release);
    this.#letGo();
    return true;
  }

  /** A release of another series that had this name before, or has it since, is none of its line. */
  #isMine(release) {
    return versionOf(release) === versionOf(this.series);
  }

  #add(published) {
    const release = named(published, this.series.domain);
    if (this.unknown) this.#know();
    this.sequence = release.sequence;
    this.received += 1;
    this.latest = release;
    this.stale = true;
    this.take(release);
  }

  /** Take a history in place of what was kept: of one span of ticks, or of two with a gap between them. */
  restart(releases, spans) {
    this.sequence = -1;
    this.received = 0;
    this.reached = spans[0][0];
    this.gap = gapOf(spans);
    this.empty();
    for (const release of releases) if (release.sequence > this.sequence && this.#isMine(release)) this.#add(release);
    this.#letGo();
  }

  /** Keep what this range needs; `failing`: nothing can be loaded just now. */
  aim(range, failing) {
    this.aimed = range;
    if (this.latest === null) return;
    this.#letGo();
    const fails = this.lacks && (failing || this.fails);
    if (fails !== this.fails) this.stale = true;
    this.fails = fails;
  }

  /** Let go what nobody needs, once it is much: before what is wanted, and in its gap. */
  #letGo() {
    if (!this.overTime) return;
    const spans = this.#wanted(this.aimed);
    const gap = gapOf(spans);
    for (const [first, last] of [[-Infinity, spans[0][0] - 1], ...(gap === null ? [] : [gap])]) {
      let many = 0;
      for (const kept of this.stores) {
        const [start, stop] = [lowerBound(kept.tick, first), lowerBound(kept.tick, last + 1)];
        many = Math.max(many, stop - start);
        if (stop - start >= SLACK_TICKS) cut(kept, start, stop - start);
      }
      if (many < SLACK_TICKS || this.reached === null) continue;
      if (first === -Infinity) this.reached = Math.max(this.reached, last + 1);
      else this.gap = gap;
    }
  }

  /** The ticks to be kept for a range, as [first, last]: its own with the period before, and the newest; one span where they meet. */
  #wanted({ first, last, length, before, live }) {
    const newest = this.latest.tick;
    const farthest = Math.max(0, newest - this.mostTicks);
    const recent = Math.max(farthest, newest - RECENT_TICKS);
    const begins = (live ? newest - length + 1 : first) - (before ? length : 0);
    const from = Math.max(farthest, Math.min(begins, recent));
    const until = live ? newest : Math.min(last, newest);
    if (until + 1 >= recent) return [[from, newest]];
    return until < from ? [[recent, newest]] : [[from, until], [recent, newest]];
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

  /** What is kept over time: each has `tick` and further columns. */
  get stores() {
    return [];
  }

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

  /** The spans of ticks to be loaded for a range, as [first, last], or null where what it needs is kept. */
  missing(range) {
    if (!this.overTime || this.latest === null) return null;
    const spans = this.#wanted(range);
    return spans.every((span) => this.#keeps(span)) ? null : spans;
  }

  #keeps([first, last]) {
    if (this.reached === null || this.reached > first) return false;
    return this.gap === null || last < this.gap[0] || first > this.gap[1];
  }

  /** Whether the history of the chosen range is still to come. */
  get lacks() {
    return !this.unknown && this.missing(this.aimed) !== null;
  }

  /** What the plan and the list of queries say of it; a halted series is in no plan, and keeps what it had. */
  tell(planned, query) {
    this.planned = planned ?? this.planned;
    this.halted = query.end !== null && query.end !== undefined;
    this.#mark();
    this.#judge();
    const since = query.start === undefined ? "" : `: the line starts from zero at ${tickText(query.start, query.start_time)}`;
    setText(this.anew, `Version ${versionOf(this.series)}. The definition was changed${since}.`);
    const price = priceText(this.planned, this.series.error_unit);
    const lines = [price, spanText(query)].filter(Boolean);
    if (lines.join() === this.told) return;
    this.told = lines.join();
    this.claims.replaceChildren(...lines.map((line) => el("p", {}, line)));
    if (price) this.claims.firstChild.append(" · ", el("a", { href: `#${madeId(this.series.name)}` }, "How it is made"));
  }

  /** How large it is until its reader chooses. */
  get usual() {
    return MEDIUM;
  }

  /** Take a size: how high its picture is and how much it says. */
  resize(size) {
    const known = size in SIZES ? size : this.usual;
    if (known === this.size) return;
    this.size = known;
    for (const each of Object.keys(SIZES)) this.element.classList.toggle(`size-${each}`, each === known);
    this.tools.sized(known);
    if (this.chart) this.chart.height = HEIGHTS[known];
    this.stale = true;
  }

  /** How many columns of the page it takes. */
  widen(span) {
    if (span === this.wide) return;
    this.wide = span;
    this.element.style.gridColumn = `span ${span}`;
    this.element.classList.toggle("broad", span > 1);
  }

  /** What part of the history that it waits for is loaded; null: it waits for none. */
  loads(part) {
    this.progress.hidden = part === null;
    this.progress.value = part ?? 0;
    this.element.setAttribute("aria-busy", String(part !== null));
  }

  /** What its number is worth by the public guesses of the file. */
  #judge() {
    const { verdict, typical, band: width, of, false_alarm: likely } = (this.planned?.verdicts ?? []).find(({ window = "" }) => window === (this.window ?? "")) ?? {};
    this.worth.hidden = !verdict;
    if (!verdict) return void setText(this.judged, "");
    setText(this.worth, verdict);
    this.worth.dataset.verdict = verdict;
    const about = `${count(round(typical))}${of ? ` (${of})` : ""}`;
    const alarms = likely ? `; the probability of a false alarm per key and day is ${percent(likely)}` : "";
    this.worth.title = `According to the guesses of the pipeline file, the number is about ${about}, and the band (${width === null ? "unlimited" : band(round(width))}) is ${WORTH[verdict]}${alarms}`;
    setText(this.judged, `${this.worth.title}.`);
  }

  /** Whether it goes on, on its head. */
  #mark() {
    this.element.classList.toggle("halted", this.halted || this.unknown);
    setText(this.tag, [this.about, this.halted ? "halted" : this.unknown ? "no longer known" : ""].filter(Boolean).join(" · "));
  }

  /** Draw what changed, words always, the picture where it can be seen. */
  draw(range) {
    this.range = range;
    if (this.latest === null) return;
    Object.assign(this.element.dataset, { tick: this.latest.tick, received: this.received, pictures: this.pictures += Number(this.near) });
    this.stale = false;
    this.show(range);
    if (this.unknown) setText(this.note, UNKNOWN);
    else if (this.fails) setText(this.note, FAILED);
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
    setText(this.note, "Loading earlier releases.");
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
  const price = toNumber(planned.epsilon) === 0 ? "Costs nothing: computed from other series" : `Costs ε ${amount(planned.epsilon)}${delta}`;
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

/** What lies between two spans of ticks, or null. */
const gapOf = (spans) => (spans.length === 2 ? [spans[0][1] + 1, spans[1][0] - 1] : null);

/** Take so many places from `start` on out of all columns. */
function cut(kept, start, many) {
  if (Array.isArray(kept)) kept.splice(start, many);
  else for (const part of kept instanceof Map ? kept.values() : Object.values(kept)) cut(part, start, many);
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
