// A card that shows one window of its releases, which its reader chooses.
// Rules: the choice is offered where there is one. Counts and sums begin with the single tick; what a tick holds too
// little for begins with the window after it. Once there are enough releases, a card whose reader has not chosen goes to
// the shortest window that says something at most times, and stays there. A tick is told by its length.

import { duration, el, spelled, theLength, words } from "./format.js";
import { ANEW, ENDED, isBefore } from "./line_card.js";
import { choice, choose } from "./view.js";

export const TICK = "tick";
export const EVER = "ever";

const ENOUGH = 48; // releases

/** What a window is over, by what its series says of when it tells it; windows slide unless it says otherwise. */
const SPANS = { [ENDED]: (length) => `in the ${length} that ended last`, [ANEW]: (length) => `since the ${length} began` };

function overText(series, name) {
  if (name === EVER) return "so far";
  if (isBefore(name)) return `in the whole ${theLength(name)}`;
  if (name === TICK && series.step > 0) return `in the last ${theLength(duration(series.step))}`;
  return name === "" ? "" : (SPANS[series.parameters?.told] ?? ((length) => `in the last ${length}`))(theLength(name));
}

/** The parts of a release by window; what has no windows is one, without a name. */
export const partsOf = (release) => release.windows ?? { "": release };

/** `begins` is the place of the window that is shown until another is chosen, `points` what is kept of each. */
export const windowed = (Base, { shape, begins = 0, points = () => null }) => class extends Base {
  constructor(series, planned) {
    super(series, planned, shape);
    this.windows = new Map();
    this.choice = el("div", { class: "segmented over", role: "group", "aria-label": `Window of ${words(series.name)}`, hidden: true });
    this.body.prepend(this.choice);
  }

  /** The expected error is that of the window. */
  tell(planned, query) {
    this.query = query;
    super.tell(planned && { ...planned, ...planned.windows?.find(({ window }) => window === this.window) }, query);
  }

  take(release) {
    const parts = partsOf(release);
    this.whole = release;
    for (const [name, part] of Object.entries(parts)) {
      if (!this.windows.has(name)) this.#offer(name);
      super.take({ ...release, ...part }, this.windows.get(name));
    }
    const names = Object.keys(parts);
    const asked = choice(this.#asked);
    if (this.window === undefined && names.includes(asked)) this.settled = true;
    if (this.window === undefined) this.#choose(this.settled ? asked : names[Math.min(begins, names.length - 1)]);
    else if (!this.settled) this.#settle(names);
    this.latest = { ...release, ...parts[this.window] };
  }

  get stores() {
    return [...this.windows.values()];
  }

  empty() {
    super.empty();
    for (const name of this.windows.keys()) this.windows.set(name, points());
    if (this.window !== undefined) this.look(this.window);
  }

  /** How the address names the window that was chosen here. */
  get #asked() {
    return `window.${this.series.name}`;
  }

  #settle(names) {
    if (!((this.windows.get(this.window)?.tick.length ?? 0) >= ENOUGH)) return;
    this.settled = true;
    const better = names.slice(begins).find((name) => name !== EVER && (this.says?.(this.windows.get(name), ENOUGH) ?? true));
    if (better !== undefined && better !== this.window) this.#choose(better);
  }

  #offer(name) {
    const shown = name === TICK && this.series.step > 0 ? duration(this.series.step) : spelled(name);
    const said = name === EVER ? "ever, so far" : overText(this.series, name).replace(/^in /, "");
    const button = el("button", { type: "button", value: name, "aria-label": said.includes(shown) ? said : `${shown}: ${said}` }, shown);
    button.addEventListener("click", () => {
      choose({ [this.#asked]: name });
      this.settled = true;
      this.#choose(name);
      this.redraw();
    });
    this.windows.set(name, points());
    this.choice.append(button);
    this.choice.hidden = this.windows.size < 2;
  }

  #choose(name) {
    this.window = name;
    const over = overText(this.series, name);
    this.over = over && ` ${over}`;
    this.latest = { ...this.whole, ...partsOf(this.whole)[name] };
    for (const button of this.choice.children) button.setAttribute("aria-pressed", String(button.value === name));
    this.tell(this.planned, this.query);
    this.look(name);
  }

  /** What changes with the window, beside the figures. */
  look() {}
};
