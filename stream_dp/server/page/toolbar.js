// Above the cards: which time is shown, how values are drawn, which cards are listed.
// Rules: everything chosen here is in the address. Where a pipeline has few series there is nothing to look for.

import { READERS, el, inputMoment, inputTime, setText, spelled, words } from "./format.js";
import { ALL, OWN_ZONE, address, choice, choose, chooseBetween, chooseLast, chosenRange, offered, onChoice } from "./view.js";

const MANY_SERIES = 8;
const SCALES = [["", "Scale: to fit"], ["zero", "Scale: from zero"], ["log", "Scale: logarithmic"]];

export class Toolbar {
  constructor(lengths, tools) {
    this.lengths = lengths;
    this.clock = { step: 1, horizon: null };
    this.summary = el("summary", {}, "Between …");
    this.from = el("input", { type: "datetime-local", step: "1", required: true });
    this.to = el("input", { type: "datetime-local", step: "1", required: true });
    this.scale = el("select", { "aria-label": "Scale of values" }, ...SCALES.map(([value, text]) => el("option", { value }, text)));
    this.before = el("input", { type: "checkbox" });
    this.find = el("input", { type: "search", placeholder: "find a series", "aria-label": "Find a series", autocomplete: "off", hidden: true });
    this.zone = el("select", { "aria-label": "Time zone", hidden: true });
    this.link = el("button", { type: "button", class: "tool wide" }, "Copy link");
    this.between = this.#between();
    tools.append(this.between, this.scale, el("label", { class: "check" }, this.before, el("span", {}, el("span", { class: "wide" }, "period "), "before")), this.zone, this.find, this.link);
    this.scale.addEventListener("change", () => choose({ scale: this.scale.value }));
    this.before.addEventListener("change", () => choose({ before: this.before.checked ? "1" : "" }));
    this.zone.addEventListener("change", () => choose({ zone: this.zone.value }));
    this.find.addEventListener("input", () => choose({ find: this.find.value.trim() }));
    this.link.addEventListener("click", () => this.#copy());
    onChoice(() => this.show());
  }

  /** What the pipeline offers. */
  offer(clock, series) {
    this.clock = clock;
    this.find.hidden = series <= MANY_SERIES;
    this.zone.hidden = clock.zone === READERS;
    this.zone.replaceChildren(el("option", { value: "" }, `Times: ${words(clock.zone)}`), el("option", { value: OWN_ZONE }, `Times: yours (${words(READERS)})`));
    this.lengths.replaceChildren(...offered(clock).map((text) => {
      const said = text === ALL ? "all releases" : `last ${spelled(text)}`;
      const button = el("button", { type: "button", value: text, title: said }, spelled(text));
      button.addEventListener("click", () => chooseLast(text, this.clock));
      return button;
    }));
    this.show();
  }

  show() {
    const { last } = chosenRange(this.clock);
    for (const button of this.lengths.children) button.setAttribute("aria-pressed", String(button.value === last));
    this.between.classList.toggle("chosen", last === undefined);
    this.scale.value = choice("scale");
    this.zone.value = choice("zone");
    this.before.checked = choice("before") !== "";
    if (document.activeElement !== this.find) this.find.value = choice("find");
  }

  /** What stands on the fold for two times, and in its fields where nobody types. */
  told({ from, to, text }) {
    setText(this.summary, chosenRange(this.clock).last === undefined ? text : "Between …");
    if (this.between.open) return;
    [this.from.value, this.to.value] = [from, to].map(inputTime);
  }

  #between() {
    const form = el("form", {}, el("label", {}, "From", this.from), el("label", {}, "To", this.to), el("button", { class: "tool" }, "Show"));
    const fold = el("details", { class: "between" }, this.summary, form);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      chooseBetween(inputMoment(this.from.value), inputMoment(this.to.value));
      fold.open = false;
    });
    fold.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      fold.open = false;
      this.summary.focus();
    });
    return fold;
  }

  async #copy() {
    const whole = new URL(address(), location.href).href;
    const copied = await navigator.clipboard?.writeText(whole).then(() => true, () => false);
    setText(this.link, copied ? "Link copied" : "The link is in the address bar");
    setTimeout(() => setText(this.link, "Copy link"), 3000);
  }
}
