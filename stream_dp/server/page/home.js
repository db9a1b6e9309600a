// The home page of several pipelines: of each its state, its promise and its newest tick, and the way to its page.
// Rules: all of it comes from the API of each pipeline, which lies under its name; one that does not answer is said to be away.

import { count, el, seconds, setChildren, setText, time, titleOf, words } from "./format.js";
import { plainly } from "./promise.js";

const REFRESH_MILLISECONDS = 10_000;
const MOST_NAMED = 6;
const CLOSED = [401, 403];
const holder = document.getElementById("cards");

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error(`${path}: ${answer.status}`), { status: answer.status });
  return answer.json();
}

function stateOf({ over }, { status, behind }) {
  if (over) return "ended";
  return status === "ok" && behind === undefined ? "live" : "catching up";
}

/** What stands of a pipeline on its card. */
async function told(name) {
  const paths = ["api/pipeline", "api/plan", "api/series", "healthz"];
  const [pipeline, plan, { series }, health] = await Promise.all(paths.map((path) => get(`${encodeURIComponent(name)}/${path}`)));
  const newest = series.map(({ latest }) => latest).filter(Boolean).sort((one, two) => two.tick - one.tick)[0];
  const titles = pipeline.series.map(titleOf);
  const more = titles.length - MOST_NAMED;
  const state = stateOf(pipeline, health);
  return [
    el("p", { class: "pill", "data-state": state.replace(" ", "-") }, state),
    el("p", {}, newest ? `${time(seconds(newest.end))} · tick ${count(newest.tick)}` : "No release yet"),
    el("p", { class: "note" }, `${titles.slice(0, MOST_NAMED).join(", ")}${more > 0 ? ` and ${count(more)} more` : ""}`),
    el("p", { class: "note" }, plainly(pipeline, plan)),
  ];
}

async function show() {
  if (document.hidden) return;
  const empty = document.getElementById("empty");
  const { pipelines, status } = await get("api/pipelines").catch((error) => ({ pipelines: null, status: error.status }));
  empty.hidden = pipelines !== null;
  if (pipelines === null) return void setText(empty, CLOSED.includes(status) ? "Reading needs a token. Log in on your pipeline's own page: add its name to this address." : "The server does not answer. The page tries again by itself.");
  const cards = await Promise.all(pipelines.map(async (name) => {
    const said = await told(name).catch(() => [el("p", { class: "pill", "data-state": "away" }, "away")]);
    return el("article", { class: "card pipeline", "data-pipeline": name }, el("h3", {}, el("a", { href: `${encodeURIComponent(name)}/` }, words(name))), ...said);
  }));
  setChildren(holder, ...cards);
}

document.addEventListener("visibilitychange", show);
setInterval(show, REFRESH_MILLISECONDS);
show();
