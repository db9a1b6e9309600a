// What an analyst does on a card: end a question of hers, ask a monitor's watch another threshold.
// Rules: a card is found by the name of its series; it is left as it is but for one element at its end, which is there only
// while she is logged in. Ending needs a second press, for it is for good.

import { onRecords } from "../budget.js";
import { amount, band, count, el, percent, tickText, toNumber, words } from "../format.js";
import { freshKey } from "../login.js";

export const isHers = (query, me) => me !== null && query.created && query.end === null && query.analyst === me.analyst;

/** What an end would give back, to which questions and from when. */
function givenBack({ freed, freed_everywhere: everywhere, budget, records, end, end_time: time }) {
  if (toNumber(freed) === 0) return "If you end it, no budget becomes free.";
  const others = everywhere === freed ? "" : ` For a question on all records, ε ${amount(everywhere)} becomes free, because more was spent on other records.`;
  return `If you end it, ε ${amount(freed)} of ${amount(budget)} becomes free for new questions${onRecords(records)}, from ${tickText(end, time)} on.${others}`;
}

export class CardActions {
  constructor(holder, session, done) {
    Object.assign(this, { holder, session, done, queries: [] });
    new MutationObserver(() => this.show()).observe(holder, { childList: true });
    session.addEventListener("change", () => this.show());
  }

  tell(queries) {
    this.queries = queries;
    this.show();
  }

  show() {
    const named = new Map(this.queries.map((query) => [query.name, query]));
    for (const card of this.holder.querySelectorAll(".card[data-series]")) {
      const query = named.get(card.dataset.series);
      const wanted = this.session.me !== null && query ? this.kinds(query) : "";
      const there = card.querySelector(":scope > .card-ask");
      if ((there?.dataset.kinds ?? "") === wanted) continue;
      there?.remove();
      if (wanted) card.append(this.actions(query, wanted));
    }
  }

  /** Which actions a card has, as a text that changes when they do. */
  kinds(query) {
    const watches = (query.watches ?? []).filter(({ end }) => end === null).map(({ name }) => name);
    return [isHers(query, this.session.me) ? "halt" : "", ...watches].filter(Boolean).join(" ");
  }

  actions(query, kinds) {
    const element = el("div", { class: "card-ask", "data-kinds": kinds });
    const watches = (query.watches ?? []).filter(({ end }) => end === null);
    if (watches.length > 0) element.append(this.threshold(query, watches));
    if (isHers(query, this.session.me)) element.append(this.halt(query));
    return element;
  }

  halt({ name }) {
    const said = el("span", { role: "status" });
    const first = el("button", { type: "button", class: "quiet" }, "End this question");
    const sure = el("button", { type: "button", class: "primary" }, "End it for good");
    const keep = el("button", { type: "button", class: "quiet" }, "Keep it");
    const key = freshKey();
    const show = (...parts) => row.replaceChildren(...parts, said);
    let turn = 0; // what is heard of an end after another press is not said
    first.addEventListener("click", async () => {
      const now = ++turn;
      show(sure, keep);
      sure.focus();
      const would = await this.session.ask("GET", `/api/queries/${encodeURIComponent(name)}/halt`).catch(() => null);
      if (would !== null && now === turn) said.textContent = givenBack(would);
    });
    keep.addEventListener("click", () => { turn += 1; said.textContent = ""; show(first); first.focus(); });
    sure.addEventListener("click", async () => {
      turn += 1;
      sure.disabled = true;
      try {
        const ended = await this.session.ask("DELETE", `/api/queries/${encodeURIComponent(name)}`, undefined, key);
        show();
        const back = toNumber(ended.freed ?? 0) === 0 ? "" : ` ε ${amount(ended.freed)} is free again for new questions${onRecords(ended.records)}.`;
        said.textContent = `Ended: it counts nothing from tick ${count(ended.end)} on.${back}`;
        this.done();
      } catch (refusal) {
        sure.disabled = false;
        said.textContent = ` ${refusal.message}`;
      }
    });
    const row = el("p", {}, first, said);
    return row;
  }

  threshold({ name }, watches) {
    const id = `threshold-${name}`;
    const which = el("select", { "aria-label": "Watch" }, ...watches.map((watch) => el("option", { value: watch.name }, words(watch.name))));
    const key = el("input", { "aria-label": "Of which value", size: 8, placeholder: "value", required: true });
    const number = el("input", { id, type: "number", step: 1, required: true });
    const said = el("output", { for: id });
    const grouped = () => watches.find((watch) => watch.name === which.value)?.by;
    const form = el("form", { class: "ask-threshold" }, el("label", { for: id }, "Has it passed"), which, key, number, el("button", { class: "quiet" }, "Ask"), said);
    const fit = () => { key.hidden = !grouped(); key.disabled = key.hidden; };
    which.addEventListener("change", fit);
    fit();
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const watch = grouped() ? `${which.value}/${key.value.trim()}` : which.value;
      said.textContent = "…";
      try {
        const { answer } = await this.session.ask("POST", `/api/series/${encodeURIComponent(name)}/ask`, { watch, threshold: Number(number.value) }, freshKey());
        said.textContent = `${answer.fired ? "Yes" : "No"}: ${words(answer.watch)} ${answer.fired ? "has" : "has not"} passed ${count(answer.threshold)}, up to ${band(answer.band)} (${percent(answer.confidence)}).`;
      } catch (refusal) {
        said.textContent = refusal.message;
      }
    });
    return form;
  }
}

// Which cards an analyst sees, and in what order: kept in this browser for each pipeline and analyst.
// Rules: names of public series are kept and nothing else; a card that nothing was said of comes last and is shown.

export class Layout {
  constructor(board, list) {
    Object.assign(this, { board, list, place: "", kept: { order: [], hidden: [] } });
    new MutationObserver(() => this.show()).observe(board.holder, { childList: true });
  }

  /** Take the layout of an analyst; of nobody all cards are as they come. */
  of(pipeline, analyst) {
    const place = analyst === null ? "" : `stream-dp layout ${pipeline} ${analyst}`;
    if (place === this.place) return;
    this.place = place;
    const { order = [], hidden = [] } = read(place);
    this.kept = { order, hidden };
    this.show();
  }

  show() {
    this.board.arrange(this.kept.order);
    const cards = [...this.board.holder.children];
    for (const card of cards) card.classList.toggle("put-away", this.kept.hidden.includes(card.dataset.series));
    const { id } = this.list.contains(document.activeElement) ? document.activeElement : {};
    this.list.replaceChildren(...(this.place ? cards.map((card, at) => this.row(card, at, cards.map(({ dataset }) => dataset.series))) : []));
    if (id) this.focus(id);
  }

  row(card, at, all) {
    const { series: name } = card.dataset;
    const title = card.querySelector("h3").textContent;
    const id = `layout-${name}`;
    const box = el("input", { type: "checkbox", id, checked: !this.kept.hidden.includes(name) });
    box.addEventListener("change", () => this.keep(all, box.checked ? this.kept.hidden.filter((each) => each !== name) : [...this.kept.hidden, name]));
    const up = el("button", { type: "button", class: "quiet", id: `${id}-up`, "aria-label": `Move ${title} up`, disabled: at === 0 }, "↑");
    up.addEventListener("click", () => this.keep(all.with(at, all[at - 1]).with(at - 1, name), this.kept.hidden));
    return el("li", {}, box, el("label", { for: id }, title), up);
  }

  keep(order, hidden) {
    this.kept = { order, hidden };
    if (this.place) localStorage.setItem(this.place, JSON.stringify(this.kept));
    this.show();
  }

  /** What was pressed has the focus again; a button that can do no more, leaves it to the box beside it. */
  focus(id) {
    const pressed = document.getElementById(id);
    (pressed?.disabled ? pressed.closest("li").querySelector("input") : pressed)?.focus();
  }
}

function read(place) {
  try {
    return JSON.parse((place && localStorage.getItem(place)) || "{}");
  } catch {
    return {};
  }
}
