// Which cards an analyst sees, and in what order: kept in this browser for each pipeline and analyst.
// Rules: names of public series are kept and nothing else; a card that nothing was said of comes last and is shown.

import { el } from "./format.js";

export class Layout {
  constructor(board, list) {
    Object.assign(this, { board, list, place: "", kept: { order: [], hidden: [] } });
    new MutationObserver(() => this.show()).observe(board.holder, { childList: true });
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

  show() {
    this.board.arrange(this.kept.order);
    const cards = [...this.board.holder.children];
    for (const card of cards) card.classList.toggle("put-away", this.kept.hidden.includes(card.dataset.series));
    const { id } = this.list.contains(document.activeElement) ? document.activeElement : {};
    this.list.replaceChildren(...(this.place ? cards.map((card, at) => this.row(card, at, cards.map(({ dataset }) => dataset.series))) : []));
    if (id) this.focus(id);
  }

  row(card, at, all) {
    const { series: name } = card.dataset;
    const title = card.querySelector("h3").textContent;
    const id = `layout-${name}`;
    const box = el("input", { type: "checkbox", id, checked: !this.kept.hidden.includes(name) });
    box.addEventListener("change", () => this.keep(all, box.checked ? this.kept.hidden.filter((each) => each !== name) : [...this.kept.hidden, name]));
    const up = el("button", { type: "button", class: "quiet", id: `${id}-up`, "aria-label": `Move ${title} up`, disabled: at === 0 }, "↑");
    up.addEventListener("click", () => this.keep(all.with(at, all[at - 1]).with(at - 1, name), this.kept.hidden));
    return el("li", {}, box, el("label", { for: id }, title), up);
  }

  keep(order, hidden) {
    this.kept = { order, hidden };
    if (this.place) localStorage.setItem(this.place, JSON.stringify(this.kept));
    this.show();
  }

  /** What was pressed has the focus again; a button that can do no more, leaves it to the box beside it. */
  focus(id) {
    const pressed = document.getElementById(id);
    (pressed?.disabled ? pressed.closest("li").querySelector("input") : pressed)?.focus();
  }
}

function read(place) {
  try {
    return JSON.parse((place && localStorage.getItem(place)) || "{}");
  } catch {
    return {};
  }
}
