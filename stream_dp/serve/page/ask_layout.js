// Which cards an analyst sees, and in what order: kept in this browser for each pipeline and analyst.
// Rules: names of public series are kept and nothing else; a card that nothing was said of comes last and is shown.

import { el, words } from "./format.js";

export class Layout {
  constructor(holder, list) {
    Object.assign(this, { holder, list, place: "", kept: { order: [], hidden: [] } });
    new MutationObserver(() => this.show()).observe(holder, { childList: true });
  }

  /** Take the layout of an analyst; of nobody all cards are as they come. */
  of(pipeline, analyst) {
    const place = analyst === null ? "" : `stream-dp layout ${pipeline} ${analyst}`;
    if (place === this.place) return;
    this.place = place;
    const { order = [], hidden = [] } = read(place);
    this.kept = { order, hidden };
    this.show();
  }

  get cards() {
    return [...this.holder.querySelectorAll(".card[data-series]")];
  }

  /** The names, as they are shown. */
  get names() {
    const rank = (name) => (this.kept.order.includes(name) ? this.kept.order.indexOf(name) : Infinity);
    return this.cards.map((card) => card.dataset.series).sort((one, two) => (rank(one) === rank(two) ? 0 : rank(one) - rank(two)));
  }

  show() {
    for (const card of this.cards) {
      const at = this.kept.order.indexOf(card.dataset.series);
      const order = at < 0 ? "" : String(at - this.kept.order.length - 1);
      if (card.style.order !== order) card.style.order = order;
      card.classList.toggle("put-away", this.kept.hidden.includes(card.dataset.series));
    }
    if (this.place) this.list.replaceChildren(...this.names.map((name, at, all) => this.row(name, at, all)));
  }

  row(name, at, all) {
    const id = `layout-${name}`;
    const box = el("input", { type: "checkbox", id, checked: !this.kept.hidden.includes(name) });
    box.addEventListener("change", () => this.keep(all, box.checked ? this.kept.hidden.filter((each) => each !== name) : [...this.kept.hidden, name], id));
    const up = el("button", { type: "button", class: "quiet", id: `${id}-up`, "aria-label": `Move ${words(name)} up`, disabled: at === 0 }, "↑");
    up.addEventListener("click", () => this.keep(all.with(at, all[at - 1]).with(at - 1, name), this.kept.hidden, up.id));
    return el("li", {}, box, el("label", { for: id }, words(name)), up);
  }

  keep(order, hidden, focus) {
    this.kept = { order, hidden };
    if (this.place) localStorage.setItem(this.place, JSON.stringify(this.kept));
    this.show();
    document.getElementById(focus)?.focus();
  }
}

function read(place) {
  try {
    return JSON.parse((place && localStorage.getItem(place)) || "{}");
  } catch {
    return {};
  }
}
