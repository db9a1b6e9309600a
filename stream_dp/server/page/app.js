// The page: a client of the HTTP API. It loads what was published, then follows the stream.
// Rules: the stream resumes after the last sequence taken, so nothing is missed or taken twice; another
// fingerprint, a log that starts again, or a gap loads everything anew. Releases of a series that is new wait
// until it is described. An engine that does not answer is asked again after a while, the later the more often it failed, and at once
// when somebody comes back to the page.

import { Board } from "./board.js";
import { isHalted, showBudget, showQueries } from "./budget.js";
import { makeCard, shapeOf } from "./cards/kinds.js";
import { UTC, count, duration, el, seconds, setText, theLength, time, titleOf, versionOf, words, zoneShown } from "./format.js";
import { Histories, Pause } from "./histories.js";
import { asksWho, logIn, logOut, loginForm, lost, visitor } from "./login.js";
import { openProof, showPromise, showProof } from "./promise.js";
import { Toolbar } from "./toolbar.js";
import { BASE, choice, onChoice, slowestOf } from "./view.js";

const BUDGET_MILLISECONDS = 10_000;
const LOOK_MILLISECONDS = 1000;
const LAG_TICKS = 2; // a series this far behind the others was halted

const byId = (id) => document.getElementById(id);
const state = { pipeline: null, plan: null, budget: {}, queries: [], waiting: [], cards: new Map(), sequence: -1, head: -1, late: false, behind: null, latest: null, connection: "connecting" };
let stream = null;
let generation = 0;
const again = new Pause();
const spending = { asked: 0, shown: 0, described: 0 }; // turns of looks: the last one, and whose answers are the newest
let looking = null;
const looked = new WeakMap(); // cards that fell behind, with the tick of which the engine was asked why
const toolbar = new Toolbar(byId("windows"), byId("tools"));
const histories = new Histories(get, () => board.wish());
export const board = new Board(byId("cards"), histories, showFrame);

async function get(path) {
  const answer = await fetch(BASE + path, { cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${answer.status}`), { status: answer.status });
  return answer.json();
}

/** Load everything, then follow; a newer call makes this one give up. */
async function load() {
  const mine = ++generation;
  stream?.close();
  stream = null;
  const loaded = await fetchAll().catch(({ status }) => { lost(status); return null; });
  if (mine !== generation) return;
  if (loaded === null) {
    connection(state.pipeline === null ? "waiting" : "reconnecting");
    again.begin(() => mine === generation && load());
    return;
  }
  again.end();
  build(loaded);
  const newest = loaded.series.series.map(({ latest }) => latest).filter((latest) => latest !== null && state.cards.has(latest.series));
  newest.sort((one, two) => one.sequence - two.sequence).forEach(take);
  state.sequence = loaded.series.sequence;
  follow();
}

async function fetchAll() {
  const names = ["pipeline", "plan", "budget", "queries", "series"];
  const [pipeline, plan, budget, { queries }, series] = await Promise.all(names.map((name) => get(`/api/${name}`)));
  return { pipeline, plan, budget, queries, series };
}

const halted = (queries, name) => isHalted(queries.find((query) => query.name === name)?.end ?? null); // one that runs is listed first
const describe = (pipeline, name) => ({ ...(pipeline.series.find((series) => series.name === name) ?? { name }), capped: Boolean(pipeline.users), step: Number(pipeline.clock?.step ?? 0) });

function build({ pipeline, plan, budget, queries, series }) {
  Object.assign(state, { pipeline, plan, budget, queries, waiting: [], sequence: -1, head: series.sequence, latest: null });
  histories.forget();
  state.cards.clear();
  board.clear({ step: Number(pipeline.clock?.step) || 1, horizon: pipeline.clock?.horizon, zone: pipeline.clock?.zone ?? UTC, slowest: slowestOf(pipeline.series) });
  const latest = new Map(series.series.map((entry) => [entry.name, entry.latest]));
  const names = [...new Set([...pipeline.series.map(({ name }) => name), ...latest.keys()])];
  for (const name of names.filter((name) => !halted(queries, name))) addCard(name, latest.get(name) ?? null);
  document.title = `${words(pipeline.name)} · stream_dp`;
  setText(byId("name"), words(pipeline.name));
  showClaims();
}

/** All that the plan and the ledger say. */
function showClaims() {
  showPromise(byId("promise"), state.pipeline, state.plan);
  showSpending();
  showProof(byId("proof"), state.pipeline.series, state.plan);
}

function showSpending() {
  const titled = (name) => titleOf(describe(state.pipeline, name));
  showBudget(byId("budget"), state.budget, state.queries, titled);
  showQueries(byId("queries"), state.queries, (name) => (state.cards.has(name) ? el("a", { href: `#card-${name}` }, titled(name)) : titled(name)), isOver());
  for (const name of state.cards.keys()) tell(name);
}

/** The details of a card, from what was loaded last. */
function tell(name) {
  const planned = state.plan.series?.find((entry) => entry.name === name);
  state.cards.get(name).tell(planned, state.queries.find((query) => query.name === name) ?? {});
}

function addCard(name, release) {
  const series = describe(state.pipeline, name);
  if (release !== null && versionOf(release) > versionOf(series)) series.version = release.version; // nobody describes it
  const planned = state.plan.series?.find((entry) => entry.name === name);
  const card = makeCard(series, planned, shapeOf(series, release === null || versionOf(release) !== versionOf(series) ? null : release));
  board.put(card, state.cards.get(name));
  state.cards.set(name, card);
  tell(name);
  toolbar.offer(board.clock, state.cards.size);
  return card;
}

function take(release) {
  let card = state.cards.get(release.series);
  if (card === undefined || versionOf(release) > versionOf(card.series)) {
    state.waiting.push(release);
    if (state.waiting.length === 1) describeNew();
    return;
  }
  if (card.latest === null && versionOf(release) === versionOf(card.series) && !card.element.classList.contains(shapeOf(card.series, release))) card = addCard(release.series, release);
  histories.note(card, release);
  card.push(release);
  if (state.latest === null || release.tick >= state.latest.tick) state.latest = release;
  board.wish();
}

/** Learn what series there are now; cards for the new ones, then the releases that wait for them. */
async function describeNew() {
  const mine = generation;
  const turn = (spending.asked += 1);
  const names = ["pipeline", "plan", "budget", "queries"];
  const said = await Promise.all(names.map((name) => get(`/api/${name}`))).catch(() => null);
  if (mine !== generation || turn < spending.described) return; // a late answer is not the newest
  const [pipeline, plan, budget, { queries }] = said ?? [state.pipeline, state.plan, state.budget, state];
  if (said !== null) spending.described = turn;
  const known = new Map(state.pipeline.series.map((series) => [series.name, versionOf(series)]));
  const added = pipeline.series.filter(({ name }) => !known.has(name) && !halted(queries, name));
  const changed = pipeline.series.filter((series) => known.has(series.name) && versionOf(series) > known.get(series.name));
  if (added.some(({ name }) => state.cards.has(name))) return void load(); // it came before its description
  Object.assign(state, { pipeline, plan, budget, queries });
  for (const { name } of [...added, ...changed]) addCard(name, null);
  const waiting = state.waiting.splice(0);
  for (const release of waiting) {
    const card = state.cards.get(release.series);
    if (card === undefined || versionOf(release) > versionOf(card.series)) addCard(release.series, release);
  }
  showClaims();
  waiting.forEach(take);
}

function follow() {
  const source = new EventSource(`${BASE}/api/stream?after=${state.sequence}`);
  stream = source;
  source.addEventListener("head", (event) => {
    if (source !== stream) return;
    const head = JSON.parse(event.data);
    if (head.fingerprint !== (state.pipeline.fingerprint ?? null) || head.sequence < state.sequence) return void load();
    state.head = head.sequence;
    again.end();
    histories.resume();
    connection("open");
    refreshBudget();
  });
  source.addEventListener("gap", () => load());
  source.addEventListener("message", (event) => {
    if (source !== stream) return;
    const release = JSON.parse(event.data);
    if (release.sequence <= state.sequence) return;
    state.sequence = release.sequence;
    take(release);
  });
  source.addEventListener("error", () => {
    if (source !== stream) return;
    connection("reconnecting");
    if (source.readyState !== EventSource.CLOSED) return; // the browser reconnects by itself
    if (asksWho) get("/api/queries").catch(({ status }) => lost(status)); // a stream does not say why it was refused
    stream = null;
    const mine = generation;
    again.begin(() => mine === generation && follow());
  });
}

function connection(now) {
  state.connection = now;
  board.wish();
}

async function refreshBudget() {
  if (state.connection !== "open" || document.hidden) return;
  const mine = generation;
  const turn = (spending.asked += 1);
  try {
    const [budget, { queries }, health] = await Promise.all([get("/api/budget"), get("/api/queries"), get("/healthz")]);
    if (mine !== generation || turn < spending.shown) return; // a late answer is not the newest
    spending.shown = turn;
    Object.assign(state, { budget, queries, late: health.status !== "ok", behind: health.behind === undefined ? null : health });
    showSpending();
    board.wish();
    const known = new Set(state.pipeline.series.map(({ name }) => name));
    if (queries.some(({ name }) => !known.has(name))) await describeNew();
  } catch {
    // the stream's own error event says that the connection is gone
  }
}

/** What the numbers are; live while more come, or how late they are and when they will not be. */
function subtitle(ended) {
  const step = Number(state.pipeline?.clock?.step ?? 0);
  if (!ended && state.behind !== null) {
    const { behind, caught_up_in: left } = state.behind;
    return `${duration(behind)} behind${left === undefined ? "" : `, caught up in ${duration(left)}`}, differentially private`;
  }
  return `${ended ? "" : "live, "}differentially private${step > 0 ? `, one release per ${theLength(duration(step))}` : ""}`;
}

/** Whether a release is of the last tick. */
const isLast = (release) => release !== null && state.pipeline?.clock?.horizon > 0 && release.tick + 1 >= state.pipeline.clock.horizon;

/** Whether all ticks are released, as the engine says it, or what it released. */
const isOver = () => Boolean(state.pipeline?.over) || isLast(state.latest);

/** An engine may go as soon as its last tick is out: what all cards show then is the end. */
function stateName() {
  const over = isLast(state.latest);
  if (over && [...state.cards.values()].every(({ latest, halted }) => halted || latest === null || isLast(latest))) return "ended";
  if (state.connection !== "open") return state.connection;
  if (state.late || state.behind !== null || state.sequence < state.head) return "catching up";
  return over ? "ended" : "live";
}

/** What stands above the cards; the newest tick and its end, for the cards. */
function showFrame() {
  if (state.connection === "closed") return null;
  const name = stateName();
  const ends = name === "ended" && byId("state").dataset.state !== name;
  byId("state").dataset.state = name.replace(" ", "-");
  setText(byId("state"), name);
  if (state.pipeline !== null) setText(byId("subtitle"), subtitle(name === "ended"));
  if (ends) showSpending();
  showEmpty(byId("empty"), state.connection, state.cards.values(), name === "ended");
  document.documentElement.dataset.sequence = state.sequence;
  if (state.latest === null) return null;
  const { tick, end } = state.latest;
  setText(byId("zone"), words(zoneShown()));
  setText(byId("clock"), time(seconds(end)));
  setText(byId("tick"), ` · tick ${count(tick)}`);
  if (ends || [...state.cards.values()].some(lags)) looking ??= setTimeout(look, LOOK_MILLISECONDS);
  return { tick, end: seconds(end), told: (range) => toolbar.told(range) };
}

/** Look anew, and whoever else does so. */
function look() {
  looking = null;
  for (const card of state.cards.values()) if (lags(card)) looked.set(card, card.latest.tick);
  document.dispatchEvent(new Event("visibilitychange"));
}

/** Whether a card fell behind and the engine was not asked why. */
function lags(card) {
  const { latest, halted } = card;
  return latest !== null && !halted && state.latest.tick - latest.tick >= LAG_TICKS && looked.get(card) !== latest.tick;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) again.now();
  refreshBudget();
});
onChoice(() => state.pipeline !== null && showSpending()); // it says times
setInterval(refreshBudget, BUDGET_MILLISECONDS);
openProof(byId("proof"));
visitor().then((seen) => (seen?.admitted === false ? shut() : enter(seen)));

function enter(seen) {
  if (seen?.cookie) {
    const out = el("button", { type: "button", class: "quiet" }, "Log out");
    out.addEventListener("click", logOut);
    byId("visitor").replaceChildren(`You read as ${seen.name ? words(seen.name) : "the operator"}. `, out);
    byId("visitor").hidden = false;
  }
  load();
}

/** Nobody whom the server knows: a login, and nothing else. */
function shut() {
  state.connection = "closed";
  document.querySelector(".section-head").hidden = true;
  setText(byId("state"), "closed");
  setText(byId("subtitle"), "reading needs a token");
  byId("empty").hidden = false;
  byId("empty").replaceChildren(loginForm("", async (token) => {
    const why = await logIn(token).then(() => "", ({ message }) => message);
    if (why === "") location.reload();
    return why;
  }));
}

// Where there are no cards, or no new numbers: why, in words.

const NOT_YET = "Waiting for the engine, which does not answer. The page tries again by itself, first after one second, then more slowly, at least every half minute. Nothing is lost.";
const AWAY = "The engine does not answer. The page continues by itself as soon as the engine answers;";

/** `connection` is that of the stream, `cards` are all there are; `ended`: nothing more will come. */
export function showEmpty(element, connection, cards, ended) {
  const text = why(connection, [...cards], ended);
  element.hidden = text === "";
  element.classList.toggle("away", ["waiting", "reconnecting"].includes(connection) && !ended);
  setText(element, text);
}

function why(connection, cards, ended) {
  if (connection === "reconnecting" && ended) return "The run is over, and its engine has ended. The numbers below are the last ones.";
  if (connection === "reconnecting") return cards.length === 0 ? `${AWAY} nothing is lost.` : `${AWAY} the numbers below were published before.`;
  if (connection === "waiting") return NOT_YET;
  if (connection !== "open") return cards.length === 0 ? "Loading …" : "";
  if (cards.length === 0) return "No series runs.";
  return cards.every(({ element }) => element.hidden) ? `No series has “${choice("find")}” in its name or description.` : "";
}
