// The guarantee: one plain line first, the exact statement one click away.
// Rules: nothing is claimed here that the plan does not say; a factor is rounded up, never down. Words come before symbols.

import { amount, atMost, band, count, el, percent, spelled, titleOf, toNumber, words } from "./format.js";

const NEIGHBOURS = {
  add_remove: ["add or remove one", "Adding or removing one"],
  replace: ["replace one", "Replacing one"],
  replace_any_tick: ["replace one, its time included", "Replacing one (its time included)"],
};
const WINDOWS = { "1m": "minute", "1h": "hour", "1d": "day", "7d": "week" }; // as `plan` calls them
const windowName = (per) => WINDOWS[per] ?? `window of ${spelled(per)}`;
const STRONG = 2; // above this epsilon the promise is called weak
const TELLING = 100; // a factor from which on nobody would say that nothing can be told

export function showPromise(holder, pipeline, plan) {
  const open = holder.querySelector("details")?.open ?? false;
  const budget = holder.querySelector("#budget") ?? el("div", { class: "budget", id: "budget" });
  const exactly = el("details", { class: "exactly" }, el("summary", {}, "The exact statement"), ...statement(pipeline, plan));
  exactly.open = open;
  holder.replaceChildren(
    el("div", { class: "guarantee" },
      el("h2", {}, "Privacy"),
      el("p", { class: "plain" }, plainly(pipeline, plan)),
      pipeline.public_data ? el("p", { class: "badge" }, "This source is declared public data (a demonstration).") : null,
      exactly,
      el("p", {}, el("a", { href: "#proof" }, "How is this private?"))),
    budget,
  );
}

const whole = (plan) => plan.promise ?? plan; // with all that is asked while it runs
const protectedUsers = (pipeline, plan) => (typeof plan.users === "object" ? plan.users : null) ?? pipeline.users;

/** What is protected, as one thing: "event", or whose events together. */
function protectedThing(pipeline, plan) {
  const users = protectedUsers(pipeline, plan);
  if (!users) return { thing: words(pipeline.unit ?? plan.unit ?? "event"), them: "it" };
  const who = words(users.field ?? "user");
  return { thing: `${who}'s events${users.per ? ` of one ${windowName(users.per)}` : ""}`, them: "them" };
}

/** The one line that everybody reads. */
export function plainly(pipeline, plan) {
  const { thing, them } = protectedThing(pipeline, plan);
  const factor = Math.exp(toNumber(whole(plan).epsilon));
  const change = (plan.neighbors ?? pipeline.neighbors) === "add_remove" ? `with or without ${them}` : `with ${them} or with others in their place`;
  const changed = them === "it" ? change.replace("others in their place", "another in its place") : change;
  const slack = toNumber(whole(plan).delta) === 0 ? "" : `, apart from a probability of ${amount(whole(plan).delta)}`;
  const weak = toNumber(whole(plan).epsilon) > STRONG ? " That is weak: people usually take an epsilon of 0.5 to 2." : "";
  const bound = `everything that this page shows is at most ${atMost(factor)} times as likely${slack}.${weak}`;
  if (!(factor < TELLING)) return `These numbers may reveal a single ${thing}: ${changed}, ${bound}`;
  return `These numbers hide any single ${thing}: ${changed}, ${bound}`;
}

function statement(pipeline, plan) {
  const unit = words(plan.unit ?? pipeline.unit ?? "event");
  const users = plan.users ?? pipeline.users;
  const whose = users?.per ? `${unit} with all their events of one ${windowName(users.per)}` : users ? `${unit} with all their events` : unit;
  const relation = plan.neighbors ?? pipeline.neighbors;
  const [change, changing] = NEIGHBOURS[relation] ?? [words(relation), `A change (${words(relation)}) of one`];
  const { epsilon, delta } = whole(plan);
  const slack = toNumber(delta) === 0 ? "" : `, apart from a probability of ${amount(delta)}`;
  const facts = [["Unit", users ? spelled(users.name) : `one ${unit}`], ["Neighbours", `${change} ${whose}`]];
  if (users) facts.push(["Events of one", `all together, at most ${count(users.max_events)} count ${users.per ? `in each ${windowName(users.per)}` : "for ever"}`]);
  if (plan.condition) facts.push(["Condition", spelled(plan.condition)]);
  if (plan.horizon) facts.push(["Horizon", `${count(plan.horizon)} ticks`]);
  return [
    el("p", {}, `${changing} ${whose} changes the probability of anything shown here, now or later, ` +
      `by a factor of at most ${atMost(Math.exp(toNumber(epsilon)))}${slack}.`),
    el("p", { class: "dp" }, `(ε = ${amount(epsilon)}, δ = ${amount(delta)})`, el("span", {}, "-DP")),
    el("dl", { class: "facts" }, ...facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text)))),
  ];
}

// The proof behind the guarantee, as the plan derives it.
// Rules: nothing is claimed here that the plan does not say; a condition that fails is shown as failing.

/** Where it stands how a series is made. */
export const madeId = (name) => `made-${name}`;

export function showProof(holder, series, plan) {
  const open = holder.querySelector("details")?.open ?? false;
  const details = el("details", {}, el("summary", {}, el("h2", {}, "How is this private?")),
    el("p", {}, "The guarantee is derived from the pipeline file. Each step below is a theorem whose conditions were checked, down to " +
      "mechanisms that have a proof of their own."),
    el("ul", { class: "tree" }, step((plan.promise ?? plan).derivation ?? {})),
    made(series, plan));
  details.open = open;
  holder.replaceChildren(details);
}

/** A link to the proof, or to what stands in it, opens it. */
export function openProof(holder) {
  document.addEventListener("click", ({ target }) => {
    const wanted = target.closest?.("a[href^='#']")?.hash.slice(1);
    if (!wanted) return;
    const found = document.getElementById(wanted);
    if (found !== null && holder.contains(found)) holder.querySelector("details").open = true;
  });
}

function step(node) {
  const conditions = node.conditions ?? [];
  const premises = node.premises ?? [];
  return el("li", {},
    el("div", { class: "step" },
      node.subject ? el("p", { class: "subject" }, spelled(node.subject)) : null,
      el("p", { class: "rule" }, el("strong", {}, words(node.rule)), node.source ? el("cite", {}, node.source) : null),
      el("p", { class: "result" }, guaranteeText(node.guarantee)),
      conditions.length === 0 ? null : el("ul", { class: "conditions" }, ...conditions.map(condition))),
    premises.length === 0 ? null : el("ul", {}, ...premises.map(step)));
}

function condition({ name, holds, why }) {
  return el("li", { class: holds ? "ok" : "not-ok" }, el("span", { class: "mark", role: "img", "aria-label": holds ? "holds" : "does not hold" }, holds ? "✓" : "✗"),
    el("span", {}, el("b", {}, words(name)), why ? ` – ${spelled(why)}` : ""));
}

function guaranteeText(guarantee) {
  if (guarantee === null || guarantee === undefined) return "";
  if (typeof guarantee !== "object") return String(guarantee);
  const whom = guarantee.users ? `, ${guarantee.users}` : "";
  const relation = (guarantee.neighbors ? `, ${words(guarantee.neighbors?.kind ?? guarantee.neighbors)}` : "") + whom;
  if (guarantee.epsilon === undefined) return Object.entries(guarantee).map(([name, value]) => `${words(name)} ${value}`).join(", ");
  return `ε = ${amount(guarantee.epsilon)}, δ = ${amount(guarantee.delta ?? "0")}${relation}`;
}

/** Each series with the mechanism that makes it, why that one, and the error to expect. */
function made(series, plan) {
  const known = new Map(series.map((each) => [each.name, each]));
  const rows = (plan.series ?? []).map(({ name, mechanism, why, predicted_error: errors }) => {
    const last = errors?.at(-1);
    return el("tr", { id: madeId(name), tabindex: "-1" }, el("th", { scope: "row" }, titleOf(known.get(name) ?? { name })),
      el("td", {}, mechanism, why ? el("small", {}, spelled(why)) : null),
      el("td", {}, last ? `${band(last.error)} ${known.get(name)?.error_unit ?? ""}` : "–", last ? el("small", {}, `tick ${count(last.tick)}, ${percent(last.confidence)}`) : null));
  });
  return rows.length === 0 ? null : el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "How each series is made" }, el("table", { class: "made" },
    el("caption", {}, "How each series is made, and its expected error. Both come from the plan: no data was read for them"),
    el("thead", {}, el("tr", {}, ...["Series", "Mechanism", "Expected error"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows)));
}
