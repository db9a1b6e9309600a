// The form of a question: a statistic, what it takes, which records, and how exact; made of /api/schema.
// Rules: what can be asked is what the server says; nothing here knows a statistic by its name. A field has a label, a
// hint where it needs one, and the browser's own check. `definition` is what is sent, without its name's price.

import { el, words } from "../format.js";

const LABELS = {
  statistic: "Statistic", name: "Name", where: "Filter", error: "Error (half-width)", epsilon: "Budget ε",
  by: "Group by", of: "Field", clamp: "Clamp", buckets: "Buckets", at: "Quantiles", k: "Top k",
  rank: "Rank", level: "Minimum count", threshold: "Threshold", below: "Alert below the threshold", windows: "Sliding windows", every: "Tumbling windows",
  running: "Running totals within a window", hop: "Hop", plus: "Counts up", minus: "Counts down",
};
const HINTS = {
  clamp: "A value outside of the range counts as the nearer end.", at: "0.5 is the median. Separate several with commas.",
  windows: "Such as 1 hour or 24 hours. Empty: all time since the question was asked.", every: "Such as 24 hours: one number for each window, when the window is over. Less noise.",
  running: "A number at every tick, since the window began. More noise.",
  hop: "A part of the window, such as 12 hours: a number at the end of each part, with less noise. Empty: a number at every tick.", buckets: "A whole number that divides the range.",
  plus: "One value of the field, or several, separated by commas.", minus: "One value of the field, or several, separated by commas.",
};
const NUMBERS = ["integer", "number"];
const OPERATORS = {
  category: [["one_of", "is one of"]], text: [["one_of", "is one of"]], list: [["contains", "contains"]], boolean: [["equals", "is"]],
  integer: [["at_least", "is at least"], ["at_most", "is at most"], ["equals", "is"]], number: [["at_least", "is at least"], ["at_most", "is at most"]],
};
const MANY = 60;
let made = 0;

/** What the engine says of a key, with the label of its field in its place; `key` is the first such. */
export function inLabels(detail) {
  let key = null;
  const label = (text) => LABELS[text] ?? words(text);
  const line = (text) => text.replace(/^series, line \d+, column \d+: /i, "").replace(/^([a-z_]+)(?:\[\d+\])*(?:\.[a-z_]+)?(?=: )/, (_, found) => {
    key ??= found;
    return label(found);
  });
  return { text: detail.split("\n").map(line).join("\n").replace(/`([a-z_]+)`/g, (_, found) => `“${label(found)}”`), key };
}

/** A field with its label and hint. */
function labelled(text, input, hint) {
  made += 1;
  const control = input.matches("input, select") ? input : input.querySelector("input, select");
  control.id ||= `ask-field-${made}`;
  const told = hint ? el("small", { id: `${control.id}-hint`, class: "muted" }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return el("div", { class: "ask-field" }, el("label", { for: control.id }, text), input, told);
}

const select = (name, options, extra = {}) =>
  el("select", { name, ...extra }, ...options.map(([value, text]) => el("option", { value }, text)));
const listed = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);
/** A share as the engine reads it: "50%" is 0.5. */
const shareOf = (text) => (/^\d+(\.\d+)?\s*%$/.test(text) ? String(Number((parseFloat(text) / 100).toPrecision(12))) : text);
/** A window as the engine reads it: "6 hours" is 6h. */
const windowOf = (text) => text.replace(/^(\d+)\s*([smhd])[a-z]*$/i, (_, many, unit) => `${many}${unit.toLowerCase()}`);

export class QuestionForm {
  /** `first` is what is proposed: a price, and a window or none. */
  constructor(schema, taken, changed, first) {
    this.schema = schema;
    this.first = first;
    this.taken = taken;
    this.named = false;
    const statistics = schema.statistics.map(({ statistic }) => [statistic, words(statistic)]);
    this.kind = select("statistic", statistics);
    this.about = el("p", { class: "muted small", id: "ask-about" });
    this.kind.setAttribute("aria-describedby", "ask-about");
    this.keys = el("div", { class: "ask-fields" });
    this.conditions = el("div", { class: "ask-conditions" });
    this.name = el("input", { name: "name", required: true, maxlength: 63, pattern: "[a-z0-9][a-z0-9_.\\-]*", autocomplete: "off", spellcheck: "false" });
    this.how = this.exactness();
    const add = el("button", { type: "button", class: "quiet" }, "Add a filter");
    add.addEventListener("click", () => this.condition());
    this.kind.addEventListener("change", () => this.show());
    this.name.addEventListener("input", () => { this.named = true; });
    this.element = el("form", { class: "ask-form", "aria-label": "A question" },
      el("div", { class: "ask-fields" }, labelled(LABELS.statistic, this.kind)), this.about, this.keys, this.conditions, add, this.how,
      labelled(LABELS.name, this.name, "Small letters, digits, _ . and -. A name can never be used again."),
      el("p", {}, el("button", { type: "submit", class: "primary" }, "Show the price")));
    this.element.addEventListener("input", ({ target }) => { target.removeAttribute?.("aria-invalid"); this.suggest(); changed(); });
    this.show();
  }

  get statistic() {
    return this.schema.statistics.find((each) => this.kind.value === each.statistic);
  }

  /** The fields of the statistic that is chosen. */
  show() {
    this.about.textContent = inLabels(this.statistic?.about ?? "").text;
    this.keys.replaceChildren(...(this.statistic?.keys ?? []).map((key) => this.control(key)).filter(Boolean));
    this.suggest();
  }

  control({ key, kind, required }) {
    const of = (types) => this.schema.fields.filter(({ type }) => types.includes(type)).map(({ name }) => [name, words(name)]);
    const none = required ? [] : [["", "–"]];
    const text = { name: key, required, autocomplete: "off" };
    const widgets = {
      grouping: () => {
        const groups = of(["category", "list", "boolean"]);
        const both = el("span", { class: "ask-pair" }, select(key, [...none, ...groups], { required }));
        if (groups.length > 1) both.append(" and ", select(`${key}-2`, [["", "–"], ...groups], { "aria-label": "and group by" }));
        return both;
      },
      amount: () => select(key, [...none, ...of(NUMBERS)], { required }),
      values_of: () => select(key, [...none, ...of(["category", "text", "boolean", "integer"])], { required }),
      values: () => el("input", text),
      range: () => el("span", { class: "ask-pair" }, el("input", { ...text, inputmode: "decimal", size: 8 }), " to ", el("input", { ...text, name: `${key}-2`, inputmode: "decimal", size: 8, "aria-label": "to" })),
      whole: () => el("input", { ...text, type: "number", min: 1, step: 1 }),
      shares: () => el("input", { ...text, value: "0.5" }),
      flag: () => el("input", { name: key, type: "checkbox" }),
      windows: () => el("input", { ...text, size: 16, value: key === "windows" ? this.first.window : "" }),
      window: () => el("input", { ...text, size: 16 }),
    };
    return widgets[kind] ? labelled(LABELS[key] ?? words(key), widgets[kind](), HINTS[key]) : null;
  }

  /** One more condition on the records. */
  condition() {
    const fields = this.schema.fields.map(({ name }) => [name, words(name)]);
    if (fields.length === 0) return;
    const field = select("where-field", fields, { "aria-label": "Filter: field" });
    const rest = el("span", { class: "ask-pair" });
    const remove = el("button", { type: "button", class: "quiet" }, "Remove");
    const row = el("div", { class: "ask-condition", role: "group", "aria-label": "Filter" }, field, rest, remove);
    const fill = () => {
      const { type, domain } = this.schema.fields.find(({ name }) => name === field.value);
      const operator = select("where-operator", OPERATORS[type] ?? OPERATORS.text, { "aria-label": "Filter: operator" });
      rest.replaceChildren(operator, this.value(type, domain));
    };
    field.addEventListener("change", fill);
    remove.addEventListener("click", () => { row.remove(); this.element.dispatchEvent(new Event("input")); });
    fill();
    this.conditions.append(row);
    field.focus();
  }

  value(type, domain) {
    const said = { name: "where-value", required: true, "aria-label": "Filter: value" };
    if (type === "boolean") return select("where-value", [["true", "true"], ["false", "false"]], said);
    if (type === "list" && domain.length <= MANY) return select("where-value", domain.map((each) => [each, each]), said);
    if (type === "category" && domain.length <= MANY) return el("span", {}, select("where-value", domain.map((each) => [each, each]), { ...said, multiple: true, size: Math.min(4, domain.length) }));
    return el("input", { ...said, inputmode: NUMBERS.includes(type) ? "decimal" : "text", placeholder: type === "category" ? "such as " + domain.slice(0, 2).join(", ") : "" });
  }

  exactness() {
    const error = el("input", { name: "error", inputmode: "decimal", disabled: true, required: true, size: 8, value: "25", "aria-label": LABELS.error });
    const epsilon = el("input", { name: "epsilon", inputmode: "decimal", required: true, size: 8, value: this.first.epsilon, "aria-label": LABELS.epsilon });
    this.price = epsilon;
    const choice = (value, text, input) => {
      const radio = el("input", { type: "radio", name: "exact", value, id: `ask-exact-${value}`, checked: value === "epsilon" });
      radio.addEventListener("change", () => this.by(value));
      return el("p", { class: "ask-choice" }, radio, el("label", { for: radio.id }, text), input);
    };
    return el("fieldset", { class: "ask-exact" }, el("legend", {}, "Accuracy"), choice("epsilon", "Spend ε", epsilon), choice("error", "Error at most ±", error),
      el("p", { class: "muted small" }, "Enter a budget to see the error. Or enter an error to see its price: a smaller error costs more. The error is the half-width of the 95% band (of quantiles: in ranks)."));
  }

  /** Ask for an error, or by a price. */
  by(which, value) {
    const { error, epsilon, exact } = this.element.elements;
    exact.value = which;
    error.disabled = which !== "error";
    epsilon.disabled = which !== "epsilon";
    if (value !== undefined) this.element.elements[which].value = value;
  }

  /** A name that nothing has, of what is asked, until she writes her own. */
  suggest() {
    if (this.named && this.name.value) return;
    const { by, of } = this.element.elements;
    const parts = [this.kind.value, of?.value, by?.value && `by_${by.value}`].filter(Boolean).join("_");
    const stem = parts.toLowerCase().replace(/[^a-z0-9_.-]+/g, "_").slice(0, 50) || "question";
    const taken = this.taken();
    let name = stem;
    for (let number = 2; taken.has(name); number += 1) name = `${stem}_${number}`;
    this.name.value = name;
  }

  /** Lead to the field of a key that the engine complains of. */
  faulty(key) {
    const field = [this.element.elements[key]].flat().find((each) => each instanceof HTMLElement);
    field?.setAttribute("aria-invalid", "true");
    field?.focus();
  }

  /** Begin another question like this one, under another name. */
  again() {
    this.named = false;
    this.suggest();
  }

  /** What is sent: with an epsilon, or with the error in its place. */
  definition() {
    const fields = this.element.elements;
    const found = { name: fields.name.value.trim(), statistic: this.kind.value };
    for (const { key, kind } of this.statistic.keys) {
      const value = fields[key]?.value?.trim() ?? "";
      const second = fields[`${key}-2`]?.value?.trim() ?? "";
      if (kind === "flag") { if (fields[key].checked) found[key] = true; }
      else if (kind === "grouping" && value && second) found[key] = [value, second];
      else if (kind === "range" && (value || second)) found[key] = [value, second];
      else if (value && kind === "windows") found[key] = listed(value).map(windowOf);
      else if (value && kind === "window") found[key] = windowOf(value);
      else if (value && kind === "shares") found[key] = listed(value).map(shareOf);
      else if (value && kind === "values") found[key] = listed(value);
      else if (value) found[key] = value;
    }
    const where = [...this.conditions.children].map(conditionOf);
    if (where.length > 0) found.where = where;
    const which = fields.exact.value;
    found[which] = fields[which].value.trim();
    return found;
  }
}

function conditionOf(row) {
  const named = (name) => row.querySelector(`[name=${name}]`);
  const operator = named("where-operator").value;
  const value = named("where-value");
  const said = value.multiple ? [...value.selectedOptions].map((option) => option.value) : value.value.trim();
  if (operator !== "one_of") return { field: named("where-field").value, [operator]: said };
  return { field: named("where-field").value, one_of: value.multiple ? said : listed(said) };
}
