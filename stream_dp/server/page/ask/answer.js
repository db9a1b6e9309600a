// What a question would cost: price, expected error beside what is known already, what stays left, and why; or why not.
// Rules: all amounts are the engine's, shown as they came; lengths only are reckoned. What is compared with was published.

import { EVER, TICK } from "../cards/kinds.js";
import { amount, band, chance, count, el, percent, round, sentence, spelled, toNumber, words } from "../format.js";

/** A preview that fits, with a button that asks it; what is mostly noise has a second one, which confirms that. */
export function priced(preview, beside, confirm) {
  const button = el("button", { type: "button", class: "primary" }, `Ask this for ε ${amount(preview.asked)}`);
  const noise = preview.noise === undefined ? null : warned(preview.noise, confirm);
  button.addEventListener("click", noise === null ? confirm : () => { button.disabled = true; noise.hidden = false; noise.focus(); });
  return el("section", { class: "ask-answer", "aria-label": "Price" },
    el("h3", { tabindex: "-1" }, `It costs ε ${amount(preview.asked)}`),
    el("dl", { class: "facts" }, ...facts(preview, [...judged(preview), ...falsely(preview.false_alarms), ["Left after it", `ε ${amount(preview.after ?? preview.left)}`]])),
    scale(preview, beside), why(preview.derivation),
    el("p", { class: "muted small" }, "This price is paid once. Then the question is answered at the end of every tick, from the next tick on, until you end it."), el("p", {}, button), noise);
}

/** Why alarms are mostly noise, and the button that asks for them all the same. */
function warned(noise, confirm) {
  const button = el("button", { type: "button" }, "Ask it all the same");
  button.addEventListener("click", confirm);
  return el("div", { class: "ask-noise", role: "alert", tabindex: "-1", hidden: true }, el("p", {}, `This would be ${noise}.`), el("p", {}, button));
}

/** What it would be worth by the public guesses of the file, of each window. */
function judged({ verdicts = [] }) {
  return verdicts.map(({ window, verdict, missing, typical, band: width, of }) => {
    const name = `Verdict${window ? ` ${over(window)}` : ""}`;
    if (verdict === null) return [name, `not known without ${missing} in the pipeline file`];
    const said = el("span", { class: "verdict", "data-verdict": verdict }, verdict);
    return [name, [said, ` ${width === null ? "an unlimited band" : band(round(width))} for a number of about ${count(round(typical))}${of ? ` (${of})` : ""}${verdict === "noise" ? ": mostly noise" : ""}`]];
  });
}

const over = (name) => (name === TICK ? "in a single tick" : name === EVER ? "so far" : `in ${spelled(name)}`);

/** How likely alarms are false ones; of several watches the likeliest. */
function falsely(alarms = []) {
  const [worst] = [...alarms].sort((one, two) => two.chance - one.chance);
  if (worst === undefined) return [];
  return [[`False alarm ${worst.keyed === false ? "per day" : "per key and day"}`, `${chance(worst.chance)}, while ${worst.of ? `the sum of ${words(worst.of)}` : "the count"} stays at ${count(worst.usual)}`]];
}

/** A preview that does not fit: what was asked, spent and left, and what would fit. */
export function refused(preview, fitting, me, take, wanted) {
  const account = me?.epsilon ?? {};
  const none = toNumber(preview.largest) === 0;
  const button = fitting && el("button", { type: "button", class: "primary" }, `Take ε ${amount(preview.largest)}: ${off(fitting)}`);
  button?.addEventListener("click", () => take(preview.largest));
  return el("section", { class: "ask-answer refusal", "aria-label": "Refusal" },
    el("h3", { tabindex: "-1" }, "It does not fit into the budget; nothing was spent"),
    el("p", {}, `${wanted ? `With an error of at most ± ${wanted} ${preview.error_unit}, it` : "It"} would cost ε ${amount(preview.asked)}. You have spent ε ${amount(account.spent)} of your ε ${amount(account.total)}, and ε ${amount(preview.left)} is left.`),
    el("p", {}, none || !fitting
      ? "No question fits now. If you end one of your questions, its price becomes free for later questions."
      : `This fits: ε ${amount(preview.largest)}, with an error of at most ${off(fitting)} (${percent(fitting.confidence)} of the time${supposed(fitting)}).`),
    button && el("p", {}, button),
    el("p", { class: "muted small" }, "To pay less, accept a larger error, or ask for windows instead of all time. Or end a question that you no longer need."));
}

/** A refusal in the engine's words. */
export function complaint(text) {
  return el("p", { class: "ask-complaint", role: "alert" }, ...lines(sentence(String(text))));
}

const lines = (text) => text.split("\n").flatMap((line, at) => (at === 0 ? [line] : [el("br"), line]));

const off = ({ error, error_unit: unit }) => `${band(error)} ${unit}`;

/** What an error is for, or in, where that is not plain. */
const supposed = ({ supposing }) => (supposing ? `, ${supposing}` : "");

/** The expected error, or that of each window. */
function offs({ windows, ...preview }) {
  if (!windows) return off(preview);
  return Object.entries(windows).map(([name, error]) => `${off({ ...preview, error })} ${over(name)}`).join(", ");
}

function facts({ error_tick: tick, confidence, ...preview }, more) {
  const told = [["Expected error", offs(preview)], ["This holds", `${percent(confidence)} of the time, at tick ${count(tick)}${supposed(preview)}`], ...more];
  return told.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, ...[value].flat())));
}

/** The error on the scale of a series that tells such numbers already; in words where there is none. */
function scale({ error }, beside) {
  if (!beside) return el("p", { class: "muted small" }, "No series here releases such numbers yet, so there is nothing to compare with.");
  const whole = Math.max(beside.value + error, 2 * error, 1);
  const bar = el("span", { class: "bar" });
  const whisker = el("span", { class: "whisker" });
  bar.style.width = `${(100 * beside.value) / whole}%`;
  whisker.style.left = `${(100 * Math.max(0, beside.value - error)) / whole}%`;
  whisker.style.width = `${(100 * Math.min(2 * error, beside.value + error)) / whole}%`;
  const share = beside.value > error ? `, ${percent(error / beside.value)} of it` : ", more than the number itself";
  const told = `${words(beside.name)}${beside.key ? ` (${beside.key})` : ""} shows ${count(beside.value)} now; an error of ${band(error)} is this part of it`;
  return el("figure", { class: "ask-scale" }, el("div", { class: "track", role: "img", "aria-label": told }, bar, whisker),
    el("figcaption", { class: "muted small" }, `Beside ${words(beside.name)}${beside.key ? `, ${beside.key}` : ""}, which shows ${count(beside.value)} now: ${band(error)}${share}.`));
}

/** The derivation, on demand: words first, then the tree. */
function why(tree) {
  return el("details", { class: "ask-why" }, el("summary", {}, "Why it costs this much"),
    el("p", { class: "small" }, "Each line is a theorem whose conditions were checked for this question. The price is what the theorems prove, rounded up."),
    el("ul", { class: "tree" }, node(tree)));
}

function node({ subject, rule, source, guarantee, conditions = [], premises = [] }) {
  const epsilon = guarantee?.epsilon === undefined ? "" : `, ε = ${amount(guarantee.epsilon)}`;
  return el("li", {}, el("div", { class: "step" },
    el("p", { class: "rule" }, el("strong", {}, words(rule)), source ? el("cite", {}, source) : null),
    el("p", { class: "result" }, `${words(subject)}${epsilon}`),
    ...conditions.map(({ name, holds, why: reason }) => el("p", { class: "small" }, `${holds ? "✓" : "✗"} ${words(name)}${reason ? ` – ${spelled(reason)}` : ""}`))),
    premises.length === 0 ? null : el("ul", {}, ...premises.map(node)));
}
