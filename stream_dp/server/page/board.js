// The cards on the page: which can be seen, when they are drawn, over which time.
// Rules: drawing happens at most ten times a second, whatever arrives. A picture is drawn where it can be seen or soon can, and
// only if something changed; of the other cards the words are brought up to date, a few in each frame. Where there are few
// series all histories are loaded, of many those that can be seen. Rows of cards are as wide as the page: what is left of one is
// given to its last cards.

import { LARGE, SMALL } from "./cards/tools.js";
import { isLine } from "./cards/kinds.js";
import { READERS, UTC, setZone } from "./format.js";
import { OWN_ZONE, choice, onChoice, rangeAt } from "./view.js";

const FRAME_MILLISECONDS = 100;
const FEW_SERIES = 24;
const FAR_PER_FRAME = 4;
const MARGIN = "1500px";

export class Board {
  /** `frame` draws what is not a card, and gives the newest tick and its end. */
  constructor(holder, histories, frame) {
    Object.assign(this, { holder, histories, frame, clock: { step: 1, horizon: null, zone: UTC }, width: 0, laid: true, cards: new Map(), order: [], dirty: false, drawn: 0, shown: "" });
    this.eyes = new IntersectionObserver((seen) => seen.forEach((entry) => this.#see(entry)), { rootMargin: MARGIN });
    new ResizeObserver(() => this.#widen()).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#anew((card) => card.recolour()));
    addEventListener("beforeprint", () => this.#print(true));
    addEventListener("afterprint", () => this.#print(false));
    onChoice(() => {
      this.#say();
      for (const card of this.cards.values()) this.#find(card);
      this.#lays();
    });
  }

  clear(clock) {
    this.clock = clock;
    this.eyes.disconnect();
    for (const card of this.cards.values()) card.leave();
    this.cards.clear();
    this.holder.replaceChildren();
    this.#say();
  }

  /** Times are those of the pipeline file's zone, or the reader's. */
  #say() {
    if (setZone(choice("zone") === OWN_ZONE ? READERS : this.clock.zone)) this.#anew((card) => card.recolour());
  }

  #widen() {
    if (this.holder.clientWidth === this.width) return; // what is drawn makes it longer only
    this.width = this.holder.clientWidth;
    this.laid = false;
    this.#anew(() => {});
  }

  /** Each card as large as is chosen, in rows without a gap: a row that is not full gives what is left to its cards, the last first. */
  #lay() {
    this.laid = true;
    const shown = [...this.holder.children].map((element) => this.cards.get(element)).filter((card) => card && card.element.offsetParent !== null);
    const columns = Number(getComputedStyle(this.holder).getPropertyValue("--columns"));
    const rows = [];
    for (const card of shown) {
      card.resize(choice(`size.${card.series.name}`) || (this.cards.size > FEW_SERIES ? SMALL : card.usual));
      const span = Math.min(columns, card.size === LARGE ? 2 : 1);
      const row = rows.find(({ left }) => left >= span) ?? rows[rows.push({ left: columns, cards: [] }) - 1];
      row.cards.push({ card, span });
      row.left -= span;
    }
    for (const { left, cards } of rows) for (let place = 0; place < left; place += 1) cards[cards.length - 1 - (place % cards.length)].span += 1;
    for (const { card, span } of rows.flatMap(({ cards }) => cards)) card.widen(span);
  }

  /** Put a card on the page; or in the stead of another. */
  put(card, other) {
    if (other !== undefined) {
      this.eyes.unobserve(other.element);
      this.cards.delete(other.element);
      other.leave();
      other.element.remove();
    }
    this.cards.set(card.element, card);
    this.#place();
    this.#find(card);
    this.#lays();
    this.eyes.observe(card.element);
  }

  /** The series of these names come first, in this order; then the others. */
  arrange(order) {
    this.order = order;
    this.#place();
    this.#lays();
  }

  /** The cards as they are read, from the top: those in order, then lines over time, then the rest. Only what is elsewhere is moved. */
  #place() {
    this.holder.classList.toggle("many", this.cards.size > FEW_SERIES);
    const rank = ({ series, shape }) => (this.order.includes(series.name) ? this.order.indexOf(series.name) : this.order.length + Number(!isLine(shape)));
    const ranked = [...this.cards.values()].map((card) => [rank(card), card.element]).sort(([one], [two]) => one - two);
    let at = this.holder.firstElementChild;
    for (const [, element] of ranked) {
      if (element === at) at = at.nextElementSibling;
      else this.holder.insertBefore(element, at);
    }
  }

  #lays() {
    this.laid = false;
    this.wish();
  }

  wish() {
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame((now) => this.#draw(now));
  }

  #draw(now) {
    if (now - this.drawn < FRAME_MILLISECONDS) return void requestAnimationFrame((later) => this.#draw(later));
    this.drawn = now;
    this.dirty = false;
    if (!this.laid) this.#lay();
    const newest = this.frame();
    if (newest === null) return;
    const range = this.#range(newest);
    newest.told(range);
    const cards = [...this.cards.values()];
    for (const card of cards) {
      card.aim(range, this.histories.pause.waits);
      if (card.near || cards.length <= FEW_SERIES) this.histories.ensure(card, range);
    }
    const shown = this.#clipped(range, newest, cards);
    const text = JSON.stringify(shown);
    const moved = text !== this.shown;
    this.shown = text;
    for (const card of cards.filter(({ near, stale }) => near && (stale || moved))) this.#ready(card) ? card.draw(shown) : card.wait(this.histories.pause.waits);
    const far = cards.filter((card) => card.near === false && card.stale && card.latest !== null && this.#ready(card));
    for (const card of far.slice(0, FAR_PER_FRAME)) card.draw(shown);
    if (far.length > FAR_PER_FRAME) this.wish();
  }

  #range({ tick, end }) {
    const range = rangeAt(this.clock, tick, end);
    const before = choice("before") !== "" && Number.isFinite(range.length);
    return { ...range, step: this.clock.step, scale: choice("scale"), before };
  }

  /** A range that ends now begins no earlier than what is known. */
  #clipped(range, { tick, end }, cards) {
    const since = Math.min(...cards.filter(({ near }) => near).map((card) => card.since ?? Infinity));
    if (range.last !== tick || !(since > range.first) || since === Infinity) return range;
    const first = Math.min(since, tick);
    return { ...range, first, from: end + (first - tick) * this.clock.step };
  }

  /** Whether there is all that a card shows first. */
  #ready(card) {
    if (card.near === undefined) return false;
    const waits = card.near || this.cards.size <= FEW_SERIES;
    return !waits || !card.overTime || card.reached !== null || card.pictures > 0;
  }

  #see({ target, isIntersecting }) {
    const card = this.cards.get(target);
    if (card === undefined || card.near === isIntersecting) return;
    card.near = isIntersecting;
    card.stale = true;
    if (!isIntersecting) card.recolour();
    this.wish();
  }

  #find(card) {
    const wanted = choice("find").toLowerCase();
    const { name, description = "" } = card.series;
    card.element.hidden = ![name, card.title, card.about, description].some((text) => text.toLowerCase().includes(wanted));
  }

  #anew(change) {
    for (const card of this.cards.values()) {
      change(card);
      card.stale = true;
    }
    this.wish();
  }

  /** On paper all cards are drawn, in the colours of daylight. */
  #print(printing) {
    document.documentElement.classList.toggle("printing", printing);
    for (const card of this.cards.values()) {
      card.recolour();
      if (!printing || card.range === undefined) continue;
      const { near } = card;
      card.near = true;
      card.draw(card.range);
      card.near = near;
    }
    if (!printing) this.#anew(() => {});
  }
}
