// The page: a client of the HTTP API. It loads what was published, then follows the stream.
// Rules: the stream resumes after the last sequence taken, so nothing is missed or taken twice; another
// fingerprint, a log that starts again, or a gap loads everything anew. Releases of a series that is new wait
// until it is described. Drawing happens at most ten times a second, whatever arrives.

import { isOverTime, makeCard, shapeOf } from "./cards.js";
import { count, duration, el, seconds, setText, time, words } from "./format.js";
import { isHalted, showBudget, showQueries } from "./budget.js";
import { showPromise, showProof } from "./promise.js";

const FRAME_MILLISECONDS = 100;
const BUDGET_MILLISECONDS = 10_000;
const RETRY_MILLISECONDS = 1000;
const LAG_TICKS = 2; // a series this far behind the others was halted
const WINDOWS = [48, 336, Infinity];
const LARGE_DOMAIN = 200;
const RECENT_TICKS = 2000;

const byId = (id) => document.getElementById(id);
const state = { pipeline: null, plan: null, budget: {}, queries: [], waiting: [], cards: new Map(), sequence: -1, head: -1, late: false, latest: null, window: WINDOWS[0], connection: "connecting" };
let stream = null;
let generation = 0;
const spending = { asked: 0, shown: 0 };
let dirty = false;
let drawn = 0;
let looking = null;

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

/** Load everything, then follow; a newer call makes this one give up. */
async function load() {
  const mine = ++generation;
  stream?.close();
  stream = null;
  const loaded = await fetchAll().catch(() => null);
  if (mine !== generation) return;
  if (loaded === null) {
    connection("reconnecting");
    setTimeout(() => mine === generation && load(), RETRY_MILLISECONDS);
    return;
  }
  build(loaded);
  loaded.releases.sort((one, two) => one.sequence - two.sequence).forEach(take);
  state.sequence = loaded.series.sequence;
  follow();
}

async function fetchAll() {
  const names = ["pipeline", "plan", "budget", "queries", "series"];
  const [pipeline, plan, budget, { queries }, series] = await Promise.all(names.map((name) => get(`/api/${name}`)));
  const running = series.series.filter(({ name }) => !halted(queries, name));
  const histories = await Promise.all(running.map(({ name, latest }) => history(pipeline, name, latest)));
  return { pipeline, plan, budget, queries, series, releases: histories.flat() };
}

/** The releases a card starts from: all of what is drawn over time, only the newest of everything else. */
async function history(pipeline, name, latest) {
  if (latest === null) return [];
  const series = describe(pipeline, name);
  const shape = shapeOf(series, latest);
  if (!isOverTime(shape)) return [latest];
  const large = shape === "flags" && (series.domain?.length ?? 0) > LARGE_DOMAIN;
  const from = large ? Math.max(0, latest.tick - RECENT_TICKS) : 0;
  return (await get(`/api/series/${encodeURIComponent(name)}?from=${from}&to=${latest.tick}`)).releases;
}

const halted = (queries, name) => queries.some((query) => query.name === name && isHalted(query.end));
const describe = (pipeline, name) => ({ ...(pipeline.series.find((series) => series.name === name) ?? { name }), capped: Boolean(pipeline.users), step: Number(pipeline.clock?.step ?? 0) });

function build({ pipeline, plan, budget, queries, series }) {
  Object.assign(state, { pipeline, plan, budget, queries, waiting: [], sequence: -1, head: series.sequence, latest: null });
  state.cards.clear();
  byId("cards").replaceChildren();
  const latest = new Map(series.series.map((entry) => [entry.name, entry.latest]));
  const names = [...new Set([...pipeline.series.map(({ name }) => name), ...latest.keys()])];
  for (const name of names.filter((name) => !halted(queries, name))) addCard(name, latest.get(name) ?? null);
  document.title = `${words(pipeline.name)} · stream_dp`;
  setText(byId("name"), words(pipeline.name));
  const step = Number(pipeline.clock?.step ?? 0);
  setText(byId("subtitle"), `live, differentially private${step > 0 ? `, one release per ${duration(step).replace(/^1 /, "")}` : ""}`);
  showClaims();
  showWindows(step);
}

/** All that the plan and the ledger say. */
function showClaims() {
  showPromise(byId("promise"), state.pipeline, state.plan);
  showSpending();
  showProof(byId("proof"), state.plan);
}

function showSpending() {
  showBudget(byId("budget"), state.budget, state.queries);
  showQueries(byId("queries"), state.queries);
  for (const name of state.cards.keys()) tell(name);
}

/** The foot of a card, from what was loaded last. */
function tell(name) {
  const planned = state.plan.series?.find((entry) => entry.name === name);
  state.cards.get(name).tell(planned, state.queries.find((query) => query.name === name) ?? {});
}

function addCard(name, release) {
  const series = describe(state.pipeline, name);
  const planned = state.plan.series?.find((entry) => entry.name === name);
  const card = makeCard(series, planned, shapeOf(series, release));
  state.cards.get(name)?.element.remove();
  state.cards.set(name, card);
  tell(name);
  byId("cards").append(card.element);
  return card;
}

function take(release) {
  let card = state.cards.get(release.series);
  if (card === undefined) {
    state.waiting.push(release);
    if (state.waiting.length === 1) describeNew();
    return;
  }
  if (card.latest === null && !card.element.classList.contains(shapeOf(card.series, release))) card = addCard(release.series, release);
  card.push(release);
  if (state.latest === null || release.tick >= state.latest.tick) state.latest = release;
  wish();
}

/** Learn what series there are now; cards for the new ones, then the releases that wait for them. */
async function describeNew() {
  const mine = generation;
  const names = ["pipeline", "plan", "budget", "queries"];
  const said = await Promise.all(names.map((name) => get(`/api/${name}`))).catch(() => [state.pipeline, state.plan, state.budget, state]);
  if (mine !== generation) return;
  const [pipeline, plan, budget, { queries }] = said;
  const known = new Set(state.pipeline.series.map(({ name }) => name));
  const added = pipeline.series.filter(({ name }) => !known.has(name) && !halted(queries, name));
  if (added.some(({ name }) => state.cards.has(name))) return void load(); // it came before its description
  Object.assign(state, { pipeline, plan, budget, queries });
  for (const { name } of added) addCard(name, null);
  const waiting = state.waiting.splice(0);
  for (const release of waiting) if (!state.cards.has(release.series)) addCard(release.series, release);
  showClaims();
  waiting.forEach(take);
}

function follow() {
  const source = new EventSource(`/api/stream?after=${state.sequence}`);
  stream = source;
  source.addEventListener("head", (event) => {
    if (source !== stream) return;
    const head = JSON.parse(event.data);
    if (head.fingerprint !== (state.pipeline.fingerprint ?? null) || head.sequence < state.sequence) return void load();
    state.head = head.sequence;
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
    stream = null;
    setTimeout(() => stream === null && state.connection === "reconnecting" && follow(), RETRY_MILLISECONDS);
  });
}

function connection(now) {
  state.connection = now;
  wish();
}

async function refreshBudget() {
  if (state.connection !== "open" || document.hidden) return;
  const mine = generation;
  const turn = (spending.asked += 1);
  try {
    const [budget, { queries }, health] = await Promise.all([get("/api/budget"), get("/api/queries"), get("/healthz")]);
    if (mine !== generation || turn < spending.shown) return; // a late answer is not the newest
    spending.shown = turn;
    Object.assign(state, { budget, queries, late: health.status !== "ok" });
    showSpending();
    wish();
    const known = new Set(state.pipeline.series.map(({ name }) => name));
    if (queries.some(({ name }) => !known.has(name))) await describeNew();
  } catch {
    // the stream's own error event says that the connection is gone
  }
}

function stateName() {
  if (state.connection !== "open") return state.connection;
  if (state.late || state.sequence < state.head) return "catching up";
  const { horizon } = state.pipeline.clock ?? {};
  return horizon && state.latest !== null && state.latest.tick + 1 >= horizon ? "ended" : "live";
}

function showWindows(step) {
  const label = (ticks) => (ticks === Infinity ? "all" : step > 0 ? duration(ticks * step) : `${count(ticks)} ticks`);
  const { horizon } = state.pipeline.clock ?? {};
  const offered = WINDOWS.filter((ticks) => ticks === Infinity || !horizon || ticks < horizon);
  byId("windows").replaceChildren(...offered.map((ticks) => {
    const button = el("button", { type: "button", "aria-pressed": String(ticks === state.window) }, label(ticks));
    button.addEventListener("click", () => {
      state.window = ticks;
      showWindows(step);
      byId("windows").querySelector("[aria-pressed=true]").focus();
      wish();
    });
    return button;
  }));
  state.range = { first: (tick) => tick - state.window + 1, text: state.window === Infinity ? "all" : `last ${label(state.window)}` };
}

function wish() {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(frame);
}

function frame(now) {
  if (now - drawn < FRAME_MILLISECONDS) return void requestAnimationFrame(frame);
  drawn = now;
  dirty = false;
  const name = stateName();
  byId("state").dataset.state = name.replace(" ", "-");
  setText(byId("state"), name);
  if (state.latest !== null) {
    setText(byId("clock"), time(seconds(state.latest.end)));
    setText(byId("tick"), ` · tick ${count(state.latest.tick)}`);
  }
  document.documentElement.dataset.sequence = state.sequence;
  for (const card of state.cards.values()) card.draw(state.range);
  if ([...state.cards.values()].some(lags)) looking ??= setTimeout(look, RETRY_MILLISECONDS);
}

function look() {
  looking = null;
  refreshBudget();
}

const lags = ({ latest, halted }) => latest !== null && !halted && state.latest.tick - latest.tick >= LAG_TICKS;

new ResizeObserver(() => wish()).observe(byId("cards"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const card of state.cards.values()) card.recolour();
  wish();
});
document.addEventListener("visibilitychange", () => refreshBudget());
setInterval(refreshBudget, BUDGET_MILLISECONDS);
load();
