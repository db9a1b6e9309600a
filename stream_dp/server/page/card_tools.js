// Under the picture of a card: its values as a table, as a file, and the picture as a file.
// Rules: all of it holds released values with their bands, and nothing else. A file has all of the time shown, so there is none
// while a part of that is still to be loaded. A table that is not open costs nothing.

import { csv, save } from "./export.js";
import { count, el, spelled } from "./format.js";
import { asPicture } from "./picture.js";

const MOST_ROWS = 300;
const REFRESH_MILLISECONDS = 1000;

export class CardTools {
  constructor(card) {
    this.card = card;
    this.filled = 0;
    this.waits = false;
    this.holder = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${card.title}` });
    this.table = el("details", { class: "as-table" }, el("summary", {}, "Table"), this.holder);
    this.table.addEventListener("toggle", () => this.#fill());
    const button = (text, act) => {
      const made = el("button", { type: "button", class: "tool", "aria-label": `${text}: ${card.title}` }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.values = button("CSV", () => this.#saveValues());
    this.element = el("div", { class: "card-tools", hidden: true }, card.tabled ? this.table : null,
      this.values, button("PNG", () => this.#savePicture()));
  }

  /** There is something to take away. */
  refresh() {
    this.element.hidden = false;
    const { lacks } = this.card;
    this.values.disabled = lacks;
    this.values.title = lacks ? "What was released before is still being loaded" : "";
    if (this.card.tabled !== this.table.isConnected && this.element.isConnected) this.card.tabled ? this.element.prepend(this.table) : this.table.remove();
    if (!this.table.open || this.waits) return;
    this.waits = true;
    setTimeout(() => this.#fill(), Math.max(0, this.filled + REFRESH_MILLISECONDS - performance.now()));
  }

  #fill() {
    this.waits = false;
    if (!this.table.open || this.card.latest === null) return;
    this.filled = performance.now();
    const { names, rows } = this.card.rows(this.card.range);
    const shown = rows.slice(-MOST_ROWS).reverse();
    const many = shown.length < rows.length ? `the newest ${count(shown.length)} of ${count(rows.length)} rows; CSV has all` : `${count(rows.length)} rows, the newest first`;
    const said = (cell, name) => (cell === null || cell === undefined ? "" : name === "window" ? spelled(cell) : String(cell));
    const cells = (row) => row.map((cell, place) => said(cell, names[place]));
    this.holder.replaceChildren(el("table", {}, el("caption", {}, `${this.card.title}${this.card.over}: ${many}`),
      el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...shown.map(cells).map(([first, ...others]) => el("tr", {}, el("th", { scope: "row" }, first), ...others.map((text) => el("td", {}, text)))))));
  }

  #saveValues() {
    const { names, rows } = this.card.rows(this.card.range);
    save(new Blob([csv(names, rows)], { type: "text/csv" }), `${this.card.series.name}.csv`);
  }

  async #savePicture() {
    const blob = await asPicture(this.card);
    if (blob !== null) save(blob, `${this.card.series.name}.png`);
  }
}
