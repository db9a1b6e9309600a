// Files made in the browser from what the page holds. Rules: nothing is asked of a server; a cell that a spreadsheet would
// take for a formula begins with an apostrophe.

const FORMULA = /^[=+@\t\r]|^-(?![\d.])/;

/** Rows as CSV (RFC 4180); null is an empty cell. */
export function csv(names, rows) {
  return [names, ...rows].map((row) => row.map(cell).join(",")).join("\r\n").concat("\r\n");
}

function cell(value) {
  if (value === null || value === undefined || (typeof value === "number" && !Number.isFinite(value))) return "";
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Offer a file to the reader. */
export function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  Object.assign(link, { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
