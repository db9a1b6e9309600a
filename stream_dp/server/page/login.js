// Who asks: an analyst's token, kept in this tab until it is closed, and what it may be used for.
// Rules: the token is in the session storage and the header of requests, and nowhere else: never in a request's address, a
// page, the console or the local storage. A link may bring one behind its #, which no browser sends; it leaves the address at once.
// Whoever changes (in, out, refused) is told by the event "change".

import { BASE } from "./view.js";

const KEY = `stream-dp token${BASE}`;
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

const NOBODY_ANSWERS = "The engine does not answer just now. Nothing is lost: ask the same again, it is done once.";

export class Session extends EventTarget {
  me = null;
  why = "";
  asked = 0;
  heard = 0;

  get token() {
    return sessionStorage.getItem(KEY) ?? "";
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
    if (!this.token) return null;
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
    const headers = { Authorization: `Bearer ${token}` };
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
