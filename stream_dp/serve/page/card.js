// What every card has: title, body, note, foot.
// Rules: a card takes releases in order (each sequence once) and draws when asked, so that many releases cost one
// drawing. The foot of every card says the same of every series, of the file or a live one: mechanism, price, expected
// error, start, end, analyst. Cards know no network.

import { amount, el, errorText, percent, setText, tickText, words } from "./format.js";

export class Card {
  constructor(series, planned, shape) {
    this.series = series;
    this.sequence = -1;
    this.received = 0;
    this.latest = null;
    this.halted = false;
    this.over = "";
    this.foot = el("footer", { class: "card-foot" });
    this.note = el("p", { class: "note" }, "Waiting for the first release.");
    this.body = el("div", { class: "card-body" });
    this.about = words(series.about) || shape;
    this.tag = el("span", { class: "tag" }, this.about);
    const title = el("h3", { id: `card-${series.name}` }, words(series.name));
    this.element = el(
      "article",
      { class: `card ${shape}`, "data-series": series.name, "aria-labelledby": `card-${series.name}` },
      el("header", { class: "card-head" }, title, this.tag),
      this.body,
      this.note,
      this.foot,
    );
    this.tell(planned, {});
  }

  /** Take a release; false when it was known. */
  push(release) {
    if (release.sequence <= this.sequence) return false;
    this.sequence = release.sequence;
    this.received += 1;
    this.latest = release;
    this.take(release);
    return true;
  }

  /** What the plan and the list of queries say of it; a halted series is in no plan, and keeps what it had. */
  tell(planned, query) {
    this.planned = planned ?? this.planned;
    this.halted = query.end !== null && query.end !== undefined;
    this.element.classList.toggle("halted", this.halted);
    setText(this.tag, this.halted ? `${this.about} · halted` : this.about);
    const lines = [mechanismText(this.planned, (said) => this.expected(said)), spanText(query)].filter(Boolean);
    if (lines.join() === this.told) return;
    this.told = lines.join();
    this.foot.replaceChildren(...lines.map((line) => el("p", {}, line)));
  }

  draw(range) {
    this.range = range;
    if (this.latest === null) return;
    Object.assign(this.element.dataset, { tick: this.latest.tick, received: this.received });
    this.show(range);
  }

  recolour() {}

  /** What a band is about: where the events of a user are capped, those that count. */
  get exactly() {
    return this.series.capped ? "exact figure of the events that count" : "exact figure";
  }

  /** The error that the plan expects, in words. */
  expected(said) {
    return errorText(said);
  }

  confidence() {
    return percent(this.latest.confidence ?? 0.95);
  }
}

function mechanismText(planned, expected) {
  if (!planned) return "";
  const delta = String(planned.delta ?? "0") === "0" ? "" : `, δ ${amount(planned.delta)}`;
  const last = planned.predicted_error?.at(-1);
  return `${planned.mechanism} · ε ${amount(planned.epsilon)}${delta}${last ? ` · expected error ${expected(last)}` : ""}`;
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
