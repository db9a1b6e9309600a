// The budget: a gauge of what is spent and left; one click away what for, the odometer, the analysts' quotas, and the queries that spend it.
// Rules: amounts are shown as they came; lengths of bars only are reckoned. What the answer does not say is
// not shown. A halted query stays in the list and leaves the bar. An analyst's ledger is paid for in full, so it is
// one piece of the bar, and what she asks is not. The bar is one piece where prices do not add up to what is spent:
// where series see different records, or the filter composes prices or counts something else than epsilon.

import { amount, beginning, count, el, percent, setChildren, setText, toNumber, versionOf, words } from "./format.js";

const COLOURS = 6;
const COMPOSED = "optimal"; // the filter whose prices do not add up
const MOST_ROWS = 300;
const REMEMBERED = 20; // of each ledger: so many halted ones are listed, the last

/** `titled` gives the title of a series. */
export function showBudget(holder, budget, queries, titled) {
  if (!budget.epsilon) return void holder.replaceChildren();
  const { total, spent, left } = budget.epsilon;
  const { unit = "epsilon", capacity = total, heaviest = "" } = budget;
  const plain = unit === "epsilon" && capacity === total;
  const added = plain && !heaviest && budget.filter !== COMPOSED;
  const whole = toNumber(capacity) || 1;
  const paid = payments(budget, queries, titled);
  const pieces = added
    ? paid.map((part, index) => ({ ...part, share: toNumber(part.epsilon) / whole, colour: `part-${index % COLOURS}` }))
    : [{ share: toNumber(spent) / whole, colour: "part-0" }];
  const [used, rest] = plain ? [`ε ${amount(spent)}`, `${amount(left)} left`] : [`${amount(spent)} ${unit}`, `ε ${amount(left)} left for one more`];
  const open = holder.querySelector("details")?.open ?? false;
  const where = heaviest ? ` (on records with ${heaviest}, where most was spent)` : "";
  const label = `Privacy budget${budget.scope === "file" ? " of the pipeline file" : ""}: ${used} of ${amount(capacity)} spent${where}, ${rest}`;
  const more = el("details", { class: "spending" }, el("summary", {}, "What the budget was spent on"), ...[
    el("ul", { class: "legend" }, ...(added ? pieces : paid).map(legendEntry)),
    givesBack(budget.series ?? []),
    toNumber(budget.delta?.total) === 0 ? null : el("p", { class: "muted small" }, `All series together: ε ${amount(total)} at δ ${amount(budget.delta.total)}.`),
    odometer(budget.odometer),
    quotas(budget.analysts ?? []),
    budget.filter ? el("p", { class: "muted small" }, `All charges go through one filter: ${words(budget.filter)}.`) : null,
  ].filter((part) => part !== null));
  more.open = open;
  const partly = budget.scope === "file";
  setChildren(holder,
    el("h2", {}, partly ? "Budget of the pipeline file" : "Budget"),
    partly ? el("p", { class: "muted small", "data-budget": "scope" }, "This page reads only published numbers. Series that were created while the engine ran cost budget too, but their prices are not known here: less may be left than is shown.") : "",
    el("p", { class: "spent" }, el("strong", { "data-budget": "spent" }, used), ` of ${amount(capacity)} spent${where}`,
      el("span", { class: "left", "data-budget": "left" }, rest)),
    gauge(pieces, label, 100 * Math.min(1, toNumber(spent) / whole)),
    more);
}

/** What the budget was paid for: the series that run, cost something and are nobody's, and the analysts' ledgers. */
function payments(budget, queries, titled) {
  const runs = new Set(queries.filter(({ end }) => !isHalted(end)).map(({ name }) => name)); // perhaps a later one of the name
  const gone = new Set(queries.filter(({ name, end, analyst }) => (isHalted(end) && !runs.has(name)) || analyst).map(({ name }) => name));
  const series = (budget.series ?? []).filter(({ name, epsilon }) => !gone.has(name) && toNumber(epsilon) > 0);
  const analysts = (budget.analysts ?? []).map(({ name, epsilon }) => ({ title: `Analyst ${words(name)}`, epsilon: epsilon.total }));
  return [...series.map(({ name, epsilon, records }) => ({ title: titled(name), epsilon, records })), ...analysts];
}

/** Which records are meant; nothing where it is all of them. */
export const onRecords = (records) => (records ? ` on records with ${records}` : "");

/** What an end of a live series gives back, where there is one. */
function givesBack(series) {
  const live = series.filter(({ frees }) => frees !== undefined);
  if (live.length === 0) return null;
  return el("p", { class: "muted small", "data-budget": "frees" }, live.some(({ frees }) => frees)
    ? "If a question ends, its ε is free again from the next tick on, for new questions on the records that it saw."
    : "If a question ends, no budget becomes free under this filter.");
}

/** How full the budget is: a piece for each that was paid for. */
function gauge(pieces, label, share) {
  const whole = el("div", { class: "budget-bar", role: "meter", "aria-label": "Privacy budget spent", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": share.toFixed(1), "aria-valuetext": label });
  for (const { title, epsilon, share, colour } of pieces) {
    const piece = el("span", { class: `piece ${colour}`, title: title && `${title}: ε ${amount(epsilon)}` });
    piece.style.width = `${Math.min(100, share * 100)}%`;
    whole.append(piece);
  }
  return whole;
}

/** A piece of the bar has a colour and a share; what is no piece of it has neither. */
function legendEntry({ title, epsilon, records, share, colour }) {
  return el("li", {}, colour ? el("span", { class: `dot ${colour}`, "aria-hidden": "true" }) : null,
    el("span", { class: "legend-name" }, title, records ? el("small", {}, onRecords(records)) : null),
    el("span", { class: "legend-amount" }, `ε ${amount(epsilon)}`, colour ? el("small", {}, ` ${percent(share)}`) : null));
}

/** What is lost so far, whatever was asked; null bound: no finite one holds. */
function odometer(said) {
  if (!said) return null;
  const bound = said.bound === null || said.bound === undefined ? "no finite bound" : `ε ≤ ${amount(said.bound)}`;
  const delta = toNumber(said.delta) === 0 ? "" : ` at δ ${amount(said.delta)}`;
  return el("div", { class: "odometer" },
    el("p", {}, "Odometer ", el("strong", { "data-budget": "odometer" }, bound), `${delta}, so far`),
    said.claim ? el("p", { class: "muted small" }, said.claim) : null);
}

function quotas(analysts) {
  if (analysts.length === 0) return null;
  return el("ul", { class: "quotas", "aria-label": "Quotas of analysts" }, ...analysts.map(({ name, epsilon, records }) => {
    const used = el("span", { class: "used" });
    used.style.width = `${Math.min(100, (100 * toNumber(epsilon?.spent)) / (toNumber(epsilon?.total) || 1))}%`;
    return el("li", {}, el("span", {}, `Analyst ${words(name)}`, records ? el("small", {}, onRecords(records)) : null), el("span", { class: "meter", "aria-hidden": "true" }, used),
      el("span", { class: "legend-amount" }, `ε ${amount(epsilon?.spent)} of ${amount(epsilon?.total)}, ${amount(epsilon?.left)} left`));
  }));
}

export const isHalted = (end) => end !== null && end !== undefined;

const COLUMNS = [["Series", ""], ["Asked by", ""], ["Statistic", "wide"], ["ε", "number"], ["Start", "ticks wide"], ["End", "ticks"]];

/** Who asked for a series, or put it into the pipeline file. */
const asker = ({ analyst, created }) => (analyst ? words(analyst) : created ? "Operator" : "Pipeline file");

const tickCell = (tick, time, none) => (isHalted(tick) ? [count(tick), time ? el("small", { class: "wide" }, ` ${beginning(time)}`) : null] : [none]).filter(Boolean);

/** The series that run, then the last ones that were halted, as `named` names them; nothing where the engine does not say. `over`: all ticks are released. */
export function showQueries(holder, queries, named, over) {
  holder.hidden = queries.length === 0;
  const running = queries.filter(({ end }) => !isHalted(end));
  const halted = queries.filter(({ end }) => isHalted(end)).sort((one, two) => two.end - one.end);
  const shown = [...running, ...halted].slice(0, MOST_ROWS);
  setText(holder.querySelector("p.count"), `${count(running.length)} ${over ? "ran to the end" : "running"}, ${halted.length < REMEMBERED ? "" : "the last "}${count(halted.length)} halted` +
    (shown.length < queries.length ? `; the first ${count(MOST_ROWS)} are listed here, and all of them at /api/queries` : ""));
  setChildren(holder.querySelector("tbody"), ...shown.map((query) => el("tr", { "data-query": query.name, class: isHalted(query.end) ? "halted" : "" },
    el("th", { scope: "row" }, named(query.name), versionOf(query) === 1 ? null : el("small", {}, ` version ${versionOf(query)}`)),
    el("td", {}, asker(query)),
    el("td", { class: "wide" }, words(query.statistic) || "–"),
    el("td", { class: "number" }, amount(query.epsilon)),
    el("td", { class: "ticks wide" }, ...tickCell(query.start, query.start_time, "–")),
    el("td", { class: "ticks" }, ...tickCell(query.end, query.end_time, over ? "ran to the end" : "runs")))));
  const head = holder.querySelector("thead");
  if (head.childElementCount === 0) head.append(el("tr", {}, ...COLUMNS.map(([name, kind]) => el("th", { scope: "col", class: kind }, name))));
}
