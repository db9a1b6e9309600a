// Where there are no cards, or no new numbers: why, in words.

import { setText } from "./format.js";
import { choice } from "./view.js";

const NOT_YET = "Waiting for the engine, which does not answer. The page asks again by itself, after a second, then two, up to half a minute; nothing is lost.";
const AWAY = "The engine does not answer. The page goes on by itself as soon as it does;";

/** `connection` is that of the stream, `cards` are all there are; `ended`: nothing more will come. */
export function showEmpty(element, connection, cards, ended) {
  const text = why(connection, [...cards], ended);
  element.hidden = text === "";
  element.classList.toggle("away", ["waiting", "reconnecting"].includes(connection) && !ended);
  setText(element, text);
}

function why(connection, cards, ended) {
  if (connection === "reconnecting" && ended) return "The run is over, and its engine has gone. The numbers below are its last.";
  if (connection === "reconnecting") return cards.length === 0 ? `${AWAY} nothing is lost.` : `${AWAY} the numbers below were published before that.`;
  if (connection === "waiting") return NOT_YET;
  if (connection !== "open") return cards.length === 0 ? "Loading …" : "";
  if (cards.length === 0) return "No series runs.";
  return cards.every(({ element }) => element.hidden) ? `No series has “${choice("find")}” in its name or its words.` : "";
}
