// The proof behind the guarantee, as the plan derives it.
// Rules: nothing is claimed here that the plan does not say; a condition that fails is shown as failing.

import { amount, band, count, el, percent, spelled, titleOf, words } from "./format.js";

/** Where it stands how a series is made. */
export const madeId = (name) => `made-${name}`;

export function showProof(holder, series, plan) {
  const open = holder.querySelector("details")?.open ?? false;
  const details = el("details", {}, el("summary", {}, el("h2", {}, "How is this private?")),
    el("p", {}, "The guarantee is derived, not typed in: each step below is a theorem whose conditions were checked, down to " +
      "mechanisms with a proof of their own."),
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
    el("caption", {}, "How each series is made, and the error to expect, from the plan alone: no data was read for it"),
    el("thead", {}, el("tr", {}, ...["Series", "Mechanism", "Expected error"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...rows)));
}
