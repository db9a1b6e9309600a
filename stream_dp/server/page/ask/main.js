// Asking from the page: log in with a token, put a question, see its price, confirm; end one's own.
// Rules: this stands beside the page's own script and changes none of its state but the order of its cards: after
// something was asked or ended it lets the page look. Everything shown came from the API; a refusal is shown in the
// engine's words and never as a fault.

import { board } from "../app.js";
import { complaint, priced, refused } from "./answer.js";
import { CardActions, Layout } from "./on_cards.js";
import { QuestionForm, inLabels } from "./form.js";
import { EVER } from "../cards/kinds.js";
import { amount, el, lengthOf, named, setChildren, spelled, tickText, toNumber, words } from "../format.js";
import { ANEW, ENDED } from "../cards/line.js";
import { Session, freshKey, logOut, loginForm, visitor } from "../login.js";
import { BASE } from "../view.js";

const REFRESH_MILLISECONDS = 10_000;
const TENTH = 10;
const holder = document.getElementById("ask");
const session = new Session();
const state = { schema: null, windows: [], queries: [], form: null, pipeline: "", key: freshKey(), turn: 0, shown: undefined, over: false, asked: 0, heard: 0 };

async function get(path) {
  const answer = await fetch(BASE + path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

const who = el("p", { class: "ask-who" });
const body = el("div", { class: "ask-body" });
const answer = el("div", { class: "ask-result", "aria-live": "polite" });
const order = el("ol", { class: "ask-layout" });
const arrange = el("details", { hidden: true }, el("summary", {}, "Arrange my cards"), order);
const layout = new Layout(board, order);
const actions = new CardActions(board.holder, session, look);

/** What is there anew: series, and what is left of hers. */
async function refresh() {
  if (document.hidden) return;
  const turn = ++state.asked;
  const [{ queries = state.queries }, { over = state.over }] = await Promise.all(["queries", "pipeline"].map((name) => get(`/api/${name}`).catch(() => ({}))));
  if (turn < state.heard) return; // a late answer is not the newest
  Object.assign(state, { heard: turn, queries });
  if (over !== state.over) end(over);
  actions.tell(state.over ? [] : state.queries);
  if (session.known) await session.refresh();
}

/** Where all ticks are released, nothing can be asked any more: the form goes, and why is said. */
function end(over) {
  Object.assign(state, { over, shown: undefined });
  show();
}

const ended = () => el("p", { class: "ask-over" }, "All ticks are released, so nothing new can be asked: a question counts from its first tick on, and no tick is left. ",
  "The releases stay on this page.");

/** Let the page look at once, for something has changed. */
function look() {
  document.dispatchEvent(new Event("visibilitychange"));
}

function show() {
  const { me } = session;
  const analyst = me === null ? null : me.analyst;
  layout.of(state.pipeline, analyst);
  arrange.hidden = me === null;
  if (me !== null) {
    const { total, spent: used, left } = me.epsilon;
    const out = el("button", { type: "button", class: "quiet" }, "Log out");
    out.addEventListener("click", () => { session.leave(); logOut(); });
    const until = me.expires ? `, until ${me.expires.slice(0, 10)}` : "";
    setChildren(who, el("strong", {}, me.analyst ? words(me.analyst) : "Operator"), ` · of your budget of ε ${amount(total)}, ε ${amount(used)} is spent, `,
      el("strong", { "data-ask": "left" }, `ε ${amount(left)} left`), `${until} `, session.token ? out : "");
  }
  if (state.shown === analyst) return;
  state.shown = analyst;
  answer.replaceChildren();
  if (state.over) return void body.replaceChildren(...(me === null ? [] : [who]), ended());
  if (me === null) return void showLogin();
  state.form = new QuestionForm(state.schema, () => new Set(state.queries.map(({ name }) => name)), changed, proposed(me, state.windows));
  state.form.element.addEventListener("submit", (event) => { event.preventDefault(); price(); });
  body.replaceChildren(who, state.form.element, answer);
}

/** What the form proposes at first: a tenth of her budget, or what is left of it, over the longest window of the file. */
function proposed({ epsilon: { total, left } }, windows) {
  const most = Math.min(toNumber(total) / TENTH, toNumber(left));
  const digits = 10 ** (1 - Math.floor(Math.log10(most)));
  const longest = windows.filter((window) => lengthOf(window) !== null).sort((one, two) => lengthOf(two) - lengthOf(one));
  return { epsilon: most > 0 ? String(Number((Math.floor(most * digits + 1e-9) / digits).toPrecision(2))) : "0.1", window: spelled(longest[0] ?? "") };
}

function showLogin() {
  const form = loginForm(session.why, async (token) => {
    const me = await session.enter(token);
    if (me === null) return session.why;
    state.form.kind.focus();
  });
  body.replaceChildren(form);
  visitor().then((reader) => {
    if (reader?.name) form.prepend(el("p", {}, `You read as ${reader.name} and cannot ask. To ask, use an analyst's token.`));
  });
}

/** The question in the form is another one now: what was shown is not its price, and it is asked under a key of its own. */
function changed() {
  state.key = freshKey();
  state.turn += 1;
  answer.replaceChildren();
}

/** Show what the question in the form costs. */
async function price() {
  const turn = ++state.turn;
  const definition = state.form.definition();
  answer.replaceChildren(el("p", { class: "muted" }, "Reckoning …"));
  const shown = await previewed(definition).catch((refusal) => refusal);
  if (turn !== state.turn || state.form === null) return;
  if (shown instanceof Error) return void complain(shown.message);
  answer.replaceChildren(shown);
  shown.querySelector?.("h3")?.focus();
}

/** What the engine will not price, in the words of the form; an error that no price reaches leads to prices. */
function complain(detail) {
  const { text, key } = inLabels(detail);
  answer.replaceChildren(complaint(text));
  state.form.faulty(key);
  if (key !== "error") return;
  const button = el("button", { type: "button", class: "quiet" }, `See the error for ε ${state.form.price.value}`);
  button.addEventListener("click", () => { state.form.by("epsilon"); price(); });
  answer.append(el("p", {}, button));
}

async function previewed(definition) {
  const preview = await session.ask("POST", "/api/queries/preview", definition);
  const { error: wanted, ...asked } = definition;
  if (preview.fits) {
    const fixed = { ...asked, epsilon: preview.asked };
    return priced(preview, await beside(fixed, preview), () => create(fixed, preview.noise !== undefined));
  }
  await session.refresh();
  const fitting = toNumber(preview.largest) === 0 ? null : await session.ask("POST", "/api/queries/preview", { ...asked, epsilon: preview.largest }).catch(() => null);
  return refused(preview, fitting, session.me, (epsilon) => { state.form.by("epsilon", epsilon); price(); }, wanted);
}

/** The newest number, the largest of several, of a series that tells the same as the question: over the same window, of the same field and records. */
async function beside(definition, preview) {
  const [{ series: released }, { series: told }] = await Promise.all(["series", "pipeline"].map((name) => get(`/api/${name}`).catch(() => ({ series: [] }))));
  const running = new Set(state.queries.filter(({ end: ended }) => ended === null).map(({ name }) => name));
  const like = told.filter((each) => running.has(each.name) && tellsTheSame(definition, preview, each));
  const latest = ({ name, domain }) => [released.find((each) => each.name === name)?.latest, domain];
  return like.map(latest).map(([release, domain]) => release && numberOf(named(release, domain), widest(preview))).find((found) => found) ?? null;
}

const textOf = (value) => (Array.isArray(value) ? value.join(" to ") : String(value));
const conditionText = ({ field, ...how }) => Object.entries(how).map(([operator, value]) => `${field} ${operator.replaceAll("_", " ")} ${[value].flat().join(", ")}`).join();

/** Whether a series counts what is asked: the statistic, its groups, its conditions and its own keys; a rank is compared with no value. */
function tellsTheSame({ name, epsilon, windows, every, running, statistic: kind, by = "", where = [], ...own }, preview, told) {
  const conditions = [...where.map(conditionText)].sort().join("\n");
  const groups = [by].flat().join(" and ");
  const shown = told.parameters?.told;
  const alike = every === undefined ? ![ANEW, ENDED].includes(shown) : shown === (running ? ANEW : ENDED);
  return alike && kind === told.statistic && (told.by ?? "") === groups && [...(told.where ?? [])].sort().join("\n") === conditions
    && Object.entries(own).every(([key, value]) => String(told.parameters?.[key]) === textOf(value)) && !/ in rank$/.test(preview.error_unit);
}

/** The window of which a preview tells the error: the one where it is largest; the time so far where there are none. */
const widest = ({ windows, error }) => (windows ? Object.keys(windows).find((window) => windows[window] === error) : EVER);

function numberOf(release, window) {
  const part = release.windows ? release.windows[window] : window === EVER ? release : null;
  if (!part) return null;
  if (typeof part.value === "number") return { name: release.series, value: part.value };
  const ranked = Object.entries(part.values ?? {}).filter(([, value]) => typeof value === "number").sort(([, one], [, two]) => two - one);
  return ranked.length === 0 ? null : { name: release.series, key: ranked[0][0], value: ranked[0][1] };
}

/** Ask the question, once: sent again after a connection that broke, it is the same one. */
async function create(definition, accepted) {
  answer.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  try {
    const created = await session.ask("POST", `/api/queries${accepted ? "?accept_noise=true" : ""}`, definition, state.key);
    state.key = freshKey();
    answer.replaceChildren(el("p", { class: "ask-done", role: "status" }, `${words(created.name)} is asked: it counts every event from ${tickText(created.start, created.start_time)} on. `,
      el("a", { href: `#card-${created.name}` }, "Its card")));
    state.queries = [...state.queries, { ...created, created: true, end: null, analyst: session.me?.analyst ?? "", statistic: definition.statistic }];
    answer.querySelector("a").focus();
    state.form.again();
    look();
  } catch (refusal) {
    answer.querySelectorAll("button").forEach((button) => { button.disabled = false; });
    answer.querySelector(".ask-complaint")?.remove();
    answer.append(complaint(refusal.message));
    if (refusal.status === 409) await session.refresh();
  }
}

/** Where the engine takes questions, the page has a place for them. */
async function begin() {
  const seen = await visitor();
  if (seen?.admitted === false) return;
  session.proxied = Boolean(seen?.asks) && !session.token;
  const [schema, { name, series = [] }] = await Promise.all([get("/api/schema"), get("/api/pipeline")]).catch(() => [null, {}]);
  if (!schema) return void setTimeout(begin, REFRESH_MILLISECONDS);
  if (!(schema.statistics?.length > 0)) return;
  Object.assign(state, { schema, pipeline: name, windows: series.flatMap(({ windows = [] }) => windows) });
  session.addEventListener("change", show);
  await refresh(); // the form needs the names that are taken, and what a number is compared with
  show();
  holder.append(el("h2", { id: "ask-title" }, "Ask"), body, arrange);
  holder.hidden = false;
  document.addEventListener("visibilitychange", refresh);
  setInterval(refresh, REFRESH_MILLISECONDS);
}

begin();
