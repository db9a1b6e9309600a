// Numbers, times and DOM elements as text. Rules: Intl formats, one time zone for the whole page, never innerHTML.

const integer = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 3 });
const decimal = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const TIMES = {
  moment: { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" },
  shortMoment: { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" },
  stamp: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" },
  exactStamp: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" },
  day: { day: "numeric", month: "short" },
  hour: { hour: "2-digit", minute: "2-digit" },
  second: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  month: { month: "short" },
  january: { month: "short", year: "numeric" },
  year: { year: "numeric" },
  named: { timeZoneName: "short" },
};
export const UTC = "UTC";
/** The time zone of whoever reads. */
export const READERS = (Intl.DateTimeFormat().resolvedOptions().timeZone || UTC).replace(/^Etc\/UTC$/, UTC);
const shown = { zone: "", formats: {}, wall: null };

/** Say all times in this zone from now on; whether that is another one than before. */
export function setZone(zone) {
  if (zone === shown.zone) return false;
  const formats = Object.entries(TIMES).map(([name, options]) => [name, new Intl.DateTimeFormat("en-GB", { timeZone: zone, ...options })]);
  const wall = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
  Object.assign(shown, { zone, formats: Object.fromEntries(formats), wall });
  return true;
}

setZone(UTC);
export const zoneShown = () => shown.zone;
const written = (form, seconds) => shown.formats[form].format(seconds * 1000);
/** The zone at a moment, in short: "UTC", "CET". */
const zoneAt = (seconds) => shown.formats.named.formatToParts(seconds * 1000).find(({ type }) => type === "timeZoneName").value;
const grid = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

/** A count as an integer; a sum on a finer grid, of at most 6 places, with its digits. */
const exactly = (value) => (Number.isInteger(value) ? integer : grid).format(value);
export const count = (value) => exactly(value).replace("-", "−");
export const axisCount = (value) => (Math.abs(value) < 1e6 ? count(value) : compact.format(value).replace("-", "−"));
export const axisShare = (value) => `${count(value * 100)}%`;
/** A number to three digits, where it is a guess. */
export const round = (value) => Number(value.toPrecision(3));
export const band = (value) => `± ${exactly(value)}`;
/** An end of an interval, or none where it is open; `width` is how wide the interval is about. */
export function ends(low, high, width, form = PLAIN) {
  const [from, to] = [low, high].map((end) => (end === null || end === undefined || !Number.isFinite(end) ? null : near(end, width, form)));
  if (from === null && to === null) return "anything";
  if (from === null) return `at most ${to}`;
  return to === null ? `at least ${from}` : `${from} to ${to}`;
}

/** A number with as many digits as an error of `width` leaves it; 0: those it has. */
export function near(value, width, { times, unit } = PLAIN) {
  if (!(width > 0)) return count(value * times) + unit;
  const places = Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(width * times))));
  const rounded = Number((value * times).toFixed(places)) || 0;
  return new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }).format(rounded).replace("-", "−") + unit;
}

/** How numbers are written that `near` and `ends` are asked for: as they are, or a part of one as per cent. */
export const PLAIN = { times: 1, unit: "" };
export const PER_CENT = { times: 100, unit: "%" };

export const percent = (value) => new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 }).format(value);
const rare = new Intl.NumberFormat("en", { style: "percent", maximumSignificantDigits: 2, roundingMode: "ceil" });
const RAREST = 1e-6;
/** A bound on a chance, rounded up. */
export const chance = (value) => (value < RAREST ? `below ${rare.format(RAREST)}` : `at most ${rare.format(value)}`);
/** A bound on a factor, rounded up to three digits. */
export function atMost(factor) {
  if (!Number.isFinite(factor)) return "∞";
  const size = 10 ** (Math.floor(Math.log10(factor)) - 2);
  const bound = Math.ceil(factor / size - 1e-9) * size;
  return bound < 10_000 ? new Intl.NumberFormat("en", { maximumSignificantDigits: 3 }).format(bound) : bound.toExponential(2);
}
/** A share such as 0.999, to the last digit. */
export const share = (value) => new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 6 }).format(value);
export const time = (seconds) => `${written("moment", seconds)} ${zoneAt(seconds)}`;
export const shortTime = (seconds) => written("shortMoment", seconds);
/** When a tick begins, from the API's time; seconds where there are any. */
export const beginning = (iso) => written(Date.parse(iso) % 60_000 === 0 ? "stamp" : "exactStamp", seconds(iso));
export const tickText = (tick, iso) => `tick ${count(tick)}${iso ? ` (${beginning(iso)} ${zoneAt(seconds(iso))})` : ""}`;
/** An expected error; `unit` is what it is measured in, where that is known. */
export const errorText = ({ error, tick, confidence }, unit) => `${band(error)}${unit ? ` ${unit}` : ""} at tick ${count(tick)} (${percent(confidence)})`;
/** Seconds as the API writes a time. */
export const isoOf = (seconds) => new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
export const seconds = (iso) => Date.parse(iso) / 1000;
/** A text as the beginning of a sentence. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
/** A release with its values by key: in an array they stand in the order of the series' keys, its `domain`. */
export function named(release, domain = []) {
  const byKey = (part) => (Array.isArray(part.values) ? { ...part, values: Object.fromEntries(part.values.map((value, place) => [domain[place], value])) } : part);
  const windows = Object.entries(release.windows ?? {}).map(([name, part]) => [name, byKey(part)]);
  return { ...byKey(release), ...(windows.length ? { windows: Object.fromEntries(windows) } : {}) };
}
/** What a series is called: by its title, else by its name. */
export const titleOf = ({ name, title }) => sentence(words(title || name));
/** How many series had the name of this one, or of this release, with its own. */
export const versionOf = ({ version = 1 }) => version;
export const words = (name) => String(name ?? "").replaceAll("_", " ");

/** The ends of a range: to the minute. */
export const rangeTime = (seconds) => written("stamp", seconds);
/** A time as a field for date and time has it. */
export const inputTime = (seconds) => shown.wall.format(seconds * 1000).replace(" ", "T");

/** What such a field holds, in seconds: of an hour that comes twice the first, of one that is skipped the next. */
export function inputMoment(text) {
  const wall = Date.parse(`${text}Z`) / 1000;
  const off = (moment) => Date.parse(`${inputTime(moment)}Z`) / 1000 - moment;
  return wall - off(wall - off(wall));
}

const DAY = 86400;

/** What stands below the lines of a time axis: what is told of each is as coarse as the lines are apart. */
export function axisTimes(splits, increment) {
  if (increment >= 365 * DAY) return splits.map((split) => written("year", split));
  if (increment >= 27 * DAY) return splits.map((split) => written(written("month", split) === "Jan" ? "january" : "month", split));
  if (increment >= DAY) return splits.map((split) => written("day", split));
  return splits.map((split) => written(written("second", split) === "00:00:00" ? "day" : increment < 60 ? "second" : "hour", split));
}

/** "1", 0.5 and "1/3" as a number; amounts are shown as they came, this is for lengths only. */
export function toNumber(amount) {
  const [top, bottom] = String(amount ?? 0).split("/");
  return bottom === undefined ? Number(top) : Number(top) / Number(bottom);
}

/** An amount of epsilon or delta as short text: decimals as they came unless very long. */
export function amount(value) {
  const text = String(value ?? "0");
  if (text.length <= 7 || text.includes("/")) return text;
  const number = Number(text);
  return number !== 0 && Math.abs(number) < 1e-4 ? number.toExponential(1) : decimal.format(number);
}

export function duration(seconds) {
  const units = [[DAY, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
  const [size, unit] = units.find(([size]) => seconds >= size) ?? [1, "second"];
  const many = Math.round((seconds / size) * 10) / 10;
  return counted(many, unit);
}

const counted = (many, unit) => `${many} ${unit}${many === 1 ? "" : "s"}`;
const NAMES = { ms: "millisecond", s: "second", m: "minute", h: "hour", d: "day" };

/** A text with the lengths of time in it in words: "24h" as "24 hours". */
export const spelled = (text) => text.replace(/(?<![\w.])(\d+)(ms|s|m|h|d)\b/g, (_, many, unit) => counted(Number(many), NAMES[unit]));
/** A length in words, as it stands behind "the" or "each": "1h" as "hour", "24h" as "24 hours". */
export const theLength = (text) => spelled(text).replace(/^1 /, "");

/** A length of time as the pipeline file writes it: "2d", "90s". */
export function short(seconds) {
  const [size, unit] = [[DAY, "d"], [3600, "h"], [60, "m"], [1, "s"]].find(([size]) => seconds % size === 0) ?? [1, "s"];
  return `${seconds / size}${unit}`;
}

const UNITS = { ms: 0.001, s: 1, m: 60, h: 3600, d: DAY };

/** "24h" in seconds; null where it is no duration. */
export function lengthOf(text) {
  const found = /^(\d+)(ms|s|m|h|d)$/.exec(text ?? "");
  return found && Number(found[1]) * UNITS[found[2]];
}

/** An element: el("p", {class: "muted", "aria-label": "..."}, "text", child, ...). */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Replace what an element holds only when it differs: what has the focus, or is being pressed, stays what it is. */
export function setChildren(element, ...children) {
  const made = element.cloneNode(false);
  made.append(...children);
  if (!made.isEqualNode(element)) element.replaceChildren(...made.childNodes);
}

/** Change a text only when it differs, so that screen readers and layout stay quiet. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
