// Under the picture of a card: its values as a table, as a file, and the picture as a file.
// Rules: all of it holds released values with their bands, and nothing else. A file has all of the time shown, so there is none
// while a part of that is still to be loaded. A table that is not open costs nothing.

import { colour } from "./charts.js";
import { count, el, spelled } from "../format.js";
import { choose } from "../view.js";

export const [SMALL, MEDIUM, LARGE] = ["s", "m", "l"];
export const SIZES = { [SMALL]: "Small", [MEDIUM]: "Medium", [LARGE]: "Large" };
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
    this.sizes = Object.entries(SIZES).map(([size, name]) => {
      const made = el("button", { type: "button", value: size, "aria-label": `${name}: ${card.title}`, title: name }, name[0]);
      made.addEventListener("click", () => choose({ [`size.${card.series.name}`]: size }));
      return made;
    });
    this.element = el("div", { class: "card-tools", hidden: true }, card.foot, card.tabled ? this.table : null,
      this.values, button("PNG", () => this.#savePicture()), el("div", { class: "segmented sizes", role: "group", "aria-label": `Size of ${card.title}` }, ...this.sizes));
  }

  sized(size) {
    for (const button of this.sizes) button.setAttribute("aria-pressed", String(button.value === size));
  }

  /** There is something to take away. */
  refresh() {
    this.element.hidden = false;
    const { lacks } = this.card;
    this.values.disabled = lacks;
    this.values.title = lacks ? "Earlier releases are still being loaded" : "";
    if (this.card.tabled !== this.table.isConnected && this.element.isConnected) this.card.tabled ? this.card.foot.after(this.table) : this.table.remove();
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
    const many = shown.length < rows.length ? `the newest ${count(shown.length)} of ${count(rows.length)} rows; the CSV file has all rows` : `${count(rows.length)} rows, the newest first`;
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

// Files made in the browser from what the page holds. Rules: nothing is asked of a server; a cell that a spreadsheet would
// take for a formula begins with an apostrophe.

const FORMULA = /^[=+@\t\r]|^-(?![\d.])/;

/** Rows as CSV (RFC 4180); null is an empty cell. */
export function csv(names, rows) {
  return [names, ...rows].map((row) => row.map(cell).join(",")).join("\r\n").concat("\r\n");
}

function cell(value) {
  if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) return "";
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Offer a file to the reader. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

// A card as a picture file: its title, what it says, and its chart or its bars with their bands.
// Rules: a chart is copied as it is drawn; bars are drawn from what the card holds. Colours are those of the page.

const WIDTH = 800;
const MARGIN = 24;
const LINE = 22;
const BAR = 26;
const SCALE = 2;

/** A PNG of a card, or null where it has nothing to show. */
export async function asPicture(card) {
  const source = card.element.querySelector(".uplot canvas");
  const bars = card.bars?.() ?? [];
  const lines = [card.headline?.() ?? "", card.note.textContent].filter(Boolean);
  const chart = source === null ? bars.length * BAR : Math.round(((WIDTH - 2 * MARGIN) * source.height) / source.width);
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const font = (size, weight = 400) => (context.font = `${weight} ${size}px system-ui, sans-serif`);
  font(14);
  const text = lines.flatMap((line) => wrapped(context, line, WIDTH - 2 * MARGIN));
  Object.assign(canvas, { width: WIDTH * SCALE, height: (2 * MARGIN + 34 + text.length * LINE + chart) * SCALE });
  context.scale(SCALE, SCALE);
  context.fillStyle = colour("--card");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.textBaseline = "top";
  context.fillStyle = colour("--text");
  font(20, 700);
  context.fillText(card.title, MARGIN, MARGIN);
  font(14);
  text.forEach((line, place) => context.fillText(line, MARGIN, MARGIN + 34 + place * LINE));
  const top = MARGIN + 40 + text.length * LINE;
  if (source !== null) context.drawImage(source, MARGIN, top, WIDTH - 2 * MARGIN, chart);
  else bars.forEach((bar, place) => drawBar(context, bar, top + place * BAR));
  return new Promise((made) => canvas.toBlob(made, "image/png"));
}

/** `from`, `to`, `low` and `high` are parts of the track; or it is a `canvas` that was drawn. */
function drawBar(context, { key, text, from, to, low, high, canvas }, top) {
  const [left, right] = [MARGIN + 150, WIDTH - MARGIN - 90];
  const at = (part) => left + (right - left) * part;
  context.fillStyle = colour("--text");
  context.fillText(key.length > 20 ? `${key.slice(0, 19)}…` : key, MARGIN, top + 3);
  context.fillText(text, right + 12, top + 3);
  if (canvas) {
    if (canvas.width > 0) context.drawImage(canvas, left, top, right - left, BAR - 8);
    return;
  }
  context.fillStyle = colour("--grid");
  context.fillRect(left, top, right - left, BAR - 8);
  context.fillStyle = colour("--bar");
  context.fillRect(at(from), top, at(to) - at(from), BAR - 8);
  context.fillStyle = colour("--text");
  context.fillRect(at(low), top + BAR / 2 - 5, Math.max(2, at(high) - at(low)), 2);
}

function wrapped(context, text, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && context.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}
