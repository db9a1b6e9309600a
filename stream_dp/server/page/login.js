// Who reads and asks: a token, kept in this tab until it is closed, and what it may be used for.
// Rules: the token is in the session storage and the header of requests, and nowhere else: never in a request's address, a
// page, the console or the local storage. A link may bring one behind its #, which no browser sends; it leaves the address at once.
// Whoever changes (in, out, refused) is told by the event "change". Where the server asks who reads, a token is exchanged for a
// cookie that no script sees and that only reads; questions take the token itself, or a user whom the server's proxy names.

import { complaint } from "./ask/answer.js";
import { el } from "./format.js";
import { BASE } from "./view.js";

const KEY = `stream-dp token${BASE}`;
const READS = `stream-dp reads${BASE}`;
const BROUGHT = /^#token=([\w.-]+)$/.exec(location.hash);

if (BROUGHT !== null) {
  sessionStorage.setItem(KEY, BROUGHT[1]);
  history.replaceState(null, "", location.pathname + location.search);
}

/** What the engine refused: its own words, with the status. */
export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const asksWho = "access" in document.documentElement.dataset;
let seen = null;

/** As whom the server knows this browser, asked once; null where it does not matter who reads. A token of this tab lets it in. */
export const visitor = () => (seen ??= asksWho ? look() : Promise.resolve(null));

async function look() {
  const answer = await fetch(`${BASE}/api/access`, { cache: "no-store" }).catch(() => null);
  if (!answer?.ok) return null; // what is asked next says why
  const known = await answer.json();
  const token = sessionStorage.getItem(READS) ?? sessionStorage.getItem(KEY);
  return known.admitted || !token ? known : logIn(token).catch(() => known);
}

/** Let a token in, until the browser is closed. */
export async function logIn(token) {
  const answer = await fetch(`${BASE}/api/login`, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  const said = await answer.json();
  if (!answer.ok) throw new Refusal(answer.status, said.detail);
  sessionStorage.setItem(said.asks ? KEY : READS, token);
  return said;
}

/** Forget who reads, here and on the server. */
export async function logOut() {
  if (!asksWho) return;
  sessionStorage.removeItem(READS);
  await fetch(`${BASE}/api/login`, { method: "DELETE" }).catch(() => null);
  location.reload();
}

/** What an answer with this status means for the page: where nobody is known any more, it begins anew, with a login. */
export function lost(status) {
  if (asksWho && status === 401) location.reload();
}

/** A form for a token; `enter` takes one and returns why it is refused, or nothing. */
export function loginForm(why, enter) {
  const token = el("input", { id: "ask-token", type: "password", required: true, autocomplete: "off", spellcheck: "false" });
  const said = el("div");
  const tell = (text) => said.replaceChildren(...(text ? [complaint(text)] : []));
  const form = el("form", { class: "ask-login" }, el("label", { for: "ask-token" }, "Your token"), token, el("button", { class: "primary" }, "Log in"),
    el("p", { class: "muted small" }, "The operator makes the token with ", el("code", {}, "stream-dp token"), ". The token stays in this tab, and is sent only to this engine."), said);
  tell(why);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    tell(await enter(token.value.trim()));
  });
  return form;
}

const NOBODY_ANSWERS = "The engine does not answer now. Nothing is lost: ask the same again, and it is done only once.";

export class Session extends EventTarget {
  me = null;
  why = "";
  proxied = false; // a user of the server's proxy, who asks without a token
  asked = 0;
  heard = 0;

  get token() {
    return sessionStorage.getItem(KEY) ?? "";
  }

  get known() {
    return this.proxied || this.token !== "";
  }

  /** Take a token, if the engine does. */
  async enter(token) {
    sessionStorage.setItem(KEY, token);
    this.#forget();
    return this.refresh();
  }

  leave(why = "") {
    sessionStorage.removeItem(KEY);
    this.#forget();
    this.me = null;
    this.why = why;
    this.dispatchEvent(new Event("change"));
  }

  /** Learn anew who this is and what is left; an engine that is away for a while keeps her logged in. */
  async refresh() {
    if (!this.known) return null;
    const turn = ++this.asked;
    const [me, refusal] = await this.ask("GET", "/api/me").then((said) => [said, null], (refused) => [this.me, refused]);
    if (turn < this.heard || refusal?.status === 401) return this.me;
    Object.assign(this, { heard: turn, me, why: refusal?.message ?? "" });
    this.dispatchEvent(new Event("change"));
    return this.me;
  }

  /** What was asked until now is not of the one who is here now: its answers come too late. */
  #forget() {
    this.heard = ++this.asked;
  }

  /** The answer to a request with the token; under the same `key` it is done once, however often it is sent. */
  async ask(method, path, body, key) {
    const { token } = this;
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (key) headers["Idempotency-Key"] = key;
    const request = { method, headers, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) };
    const answer = await fetch(BASE + path, request).catch(() => { throw new Refusal(0, NOBODY_ANSWERS); });
    const said = await answer.json().catch(() => ({}));
    if (answer.ok) return said;
    const detail = said.detail ?? said.refused?.detail ?? NOBODY_ANSWERS;
    if (answer.status === 401 && token === this.token) this.leave(detail);
    throw new Refusal(answer.status, detail);
  }
}

/** 128 random bits: the key of a request. */
export const freshKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
