// What cards show of the time before the page was opened: asked for when it can be seen, in parts, one series at a time.
// Rules: of a series that is loading, what the stream brings waits beside it, so that nothing is missed or taken twice.
// A part is small enough to be read without a pause. What fails is asked for again.

const CELLS = 60_000; // numbers in one part
const AT_ONCE = 4;
const RETRY_MILLISECONDS = 1000;

export class Histories {
  constructor(get, changed) {
    this.get = get;
    this.changed = changed;
    this.loading = new Map(); // cards, with what came meanwhile
  }

  forget() {
    this.loading.clear();
  }

  /** A release that came while its card loads is kept for after. */
  note(card, release) {
    this.loading.get(card)?.push(release);
  }

  /** Load what a card misses, unless enough is being loaded. */
  ensure(card, range) {
    const from = card.missing(range);
    if (from === null || this.loading.has(card) || this.loading.size >= AT_ONCE) return;
    this.loading.set(card, []);
    void this.#load(card, from, card.latest.tick);
  }

  async #load(card, from, to) {
    const ticks = Math.max(10, Math.floor(CELLS / (card.series.domain?.length ?? 12)));
    const found = [];
    try {
      for (let first = from; first <= to; first += ticks) {
        const path = `/api/series/${encodeURIComponent(card.series.name)}?from=${first}&to=${Math.min(to, first + ticks - 1)}`;
        found.push(...(await this.get(path)).releases);
        if (!this.loading.has(card)) return;
      }
    } catch {
      setTimeout(() => this.loading.delete(card) && this.changed(), RETRY_MILLISECONDS);
      return;
    }
    const meanwhile = this.loading.get(card);
    this.loading.delete(card);
    card.restart([...found, ...meanwhile], from);
    this.changed();
  }
}
