// What cards show of the time before the page was opened: asked for when it can be seen, in parts, one series at a time.
// Rules: of a series that is loading, what the stream brings waits beside it, so that nothing is missed or taken twice.
// A part is small enough to be read without a pause. A series that the engine does not know is not asked for again until it
// releases something. What else fails is asked for again, the later the more often it failed; at once where the engine is back.

const CELLS = 60_000; // numbers in one part
const AT_ONCE = 4;
const UNKNOWN = 404;

export class Histories {
  constructor(get, changed) {
    this.get = get;
    this.changed = changed;
    this.loading = new Map(); // cards, with what came meanwhile
    this.pause = new Pause();
  }

  forget() {
    this.loading.clear();
    this.resume();
  }

  /** The engine is back: what failed is asked for now. */
  resume() {
    this.pause.end();
  }

  /** A release that came while its card loads is kept for after. */
  note(card, release) {
    this.loading.get(card)?.push(release);
  }

  /** Load what a card misses, unless enough is being loaded. */
  ensure(card, range) {
    const spans = card.missing(range);
    if (spans === null || card.unknown || this.pause.waits || this.loading.has(card) || this.loading.size >= AT_ONCE) return;
    this.loading.set(card, []);
    void this.#load(card, spans);
  }

  async #load(card, spans) {
    const ticks = Math.max(10, Math.floor(CELLS / (card.series.domain?.length ?? 12)));
    const meanwhile = this.loading.get(card);
    const found = [];
    const whole = spans.reduce((many, [from, to]) => many + to - from + 1, 0);
    let loaded = 0;
    card.loads(0);
    try {
      for (const [from, to] of spans) {
        for (let first = from; first <= to; first += ticks) {
          const path = `/api/series/${encodeURIComponent(card.series.name)}?from=${first}&to=${Math.min(to, first + ticks - 1)}`;
          found.push(...(await this.get(path)).releases);
          if (this.loading.get(card) !== meanwhile) return void card.loads(null);
          card.loads(Math.min(1, (loaded += ticks) / whole));
        }
      }
    } catch ({ status }) {
      card.loads(null);
      if (this.loading.get(card) !== meanwhile) return;
      this.loading.delete(card);
      if (status === UNKNOWN) card.lose();
      else this.#later();
      this.changed();
      return;
    }
    this.loading.delete(card);
    card.loads(null);
    this.pause.end();
    card.restart([...found, ...meanwhile], spans);
    this.changed();
  }

  /** Ask for nothing for a while; what fails during it was asked for before. */
  #later() {
    if (!this.pause.waits) this.pause.begin(this.changed);
  }
}

// How long to wait for an engine that does not answer: a second, then two, up to half a minute; once it answers, a second again.

const SHORTEST_MILLISECONDS = 1000;
const LONGEST_MILLISECONDS = 32_000;

export class Pause {
  constructor() {
    Object.assign(this, { timer: null, then: null, failures: 0 });
  }

  get waits() {
    return this.timer !== null;
  }

  /** It failed once more: go on after a while, and with nothing else that waited. */
  begin(then) {
    clearTimeout(this.timer);
    this.then = then;
    this.timer = setTimeout(() => this.now(), Math.min(LONGEST_MILLISECONDS, SHORTEST_MILLISECONDS * 2 ** this.failures));
    this.failures += 1;
  }

  /** Go on now, if something waits. */
  now() {
    if (!this.waits) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.then();
  }

  /** It answered. */
  end() {
    clearTimeout(this.timer);
    Object.assign(this, { timer: null, failures: 0 });
  }
}
