// The guarantee: one plain line first, the exact statement one click away.
// Rules: nothing is claimed here that the plan does not say; a factor is rounded up, never down. Words come before symbols.

import { amount, atMost, count, el, spelled, toNumber, words } from "./format.js";

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
  const bound = `each picture is at most ${atMost(factor)} times as likely${slack}.${weak}`;
  if (!(factor < TELLING)) return `One ${thing} may show in these numbers: ${changed} ${bound}`;
  return `No single ${thing} can be told from these numbers: ${changed} ${bound}`;
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
