// The cards on the page: which can be seen, when they are drawn, over which time.
// Rules: drawing happens at most ten times a second, whatever arrives. A picture is drawn where it can be seen or soon can, and
// only if something changed; of the other cards the words are brought up to date, a few in each frame. Where there are few
// series all histories are loaded, of many those that can be seen.

import { isLine } from "./cards.js";
import { choice, onChoice, rangeAt } from "./view.js";

const FRAME_MILLISECONDS = 100;
const FEW_SERIES = 24;
const FAR_PER_FRAME = 4;
const MARGIN = "1500px";

export class Board {
  /** `frame` draws what is not a card, and gives the newest tick and its end. */
  constructor(holder, histories, frame) {
    Object.assign(this, { holder, histories, frame, clock: { step: 1, horizon: null }, cards: new Map(), order: [], dirty: false, drawn: 0, shown: "" });
    this.eyes = new IntersectionObserver((seen) => seen.forEach((entry) => this.#see(entry)), { rootMargin: MARGIN });
    new ResizeObserver(() => this.#anew(() => {})).observe(holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#anew((card) => card.recolour()));
    addEventListener("beforeprint", () => this.#print(true));
    addEventListener("afterprint", () => this.#print(false));
    onChoice(() => {
      for (const card of this.cards.values()) this.#find(card);
      this.wish();
    });
  }

  clear(clock) {
    this.clock = clock;
    this.eyes.disconnect();
    for (const card of this.cards.values()) card.leave();
    this.cards.clear();
    this.holder.replaceChildren();
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
    this.eyes.observe(card.element);
  }

  /** The series of these names come first, in this order; then the others. */
  arrange(order) {
    this.order = order;
    this.#place();
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

  wish() {
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame((now) => this.#draw(now));
  }

  #draw(now) {
    if (now - this.drawn < FRAME_MILLISECONDS) return void requestAnimationFrame((later) => this.#draw(later));
    this.drawn = now;
    this.dirty = false;
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
