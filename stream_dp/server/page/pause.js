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
