// A card as a picture file: its title, what it says, and its chart or its bars with their bands.
// Rules: a chart is copied as it is drawn; bars are drawn from what the card holds. Colours are those of the page.

import { colour } from "./charts.js";

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
