"use strict";
// Without it the page lists everything by name; with it, what the fields ask for, by any column.
const fields = document.querySelectorAll("#search input, #search select");
const rows = document.querySelectorAll("tbody tr[data-name]");
const summary = document.getElementById("shown");
function narrow() {
  const [words, target, licence] = [...fields].map((field) => field.value.toLowerCase().trim());
  let shown = 0;
  for (const row of rows) {
    const fits =
      words.split(/\s+/).every((word) => row.dataset.name.includes(word)) &&
      (!target || row.dataset.target === target) &&
      (!licence || row.dataset.licence === licence);
    row.hidden = !fits;
    shown += fits;
  }
  summary.textContent = `${shown} of ${rows.length} artifacts`;
}
document.getElementById("search").hidden = false;
fields.forEach((field) => field.addEventListener("input", narrow));
narrow();

// What a cell is sorted by: a figure as it was stored, else its text; null where there is none.
function key(row, column) {
  const cell = row.cells[column];
  const text = cell.dataset.order ?? cell.textContent.trim().toLowerCase();
  if (text === "" || text === "nan") return null;
  const figure = text === "inf" ? Infinity : Number(text);
  return Number.isNaN(figure) ? text : figure;
}
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other || 0;
  return String(one).localeCompare(String(other));
}
function sort(head) {
  const ascending = head.ariaSort !== "ascending";
  for (const each of head.parentElement.cells) each.ariaSort = null;
  head.ariaSort = ascending ? "ascending" : "descending";
  const now = head.closest("table").tBodies[0].querySelectorAll("tr[data-name]");
  const keyed = [...now].map((row) => [key(row, head.cellIndex), row]);
  const known = keyed.filter(([key]) => key !== null).sort(([a], [b]) => compare(a, b));
  const rest = keyed.filter(([key]) => key === null);
  const sorted = [...(ascending ? known : known.reverse()), ...rest];
  for (const [, row] of sorted) row.parentElement.append(row);
}
for (const head of document.querySelectorAll("thead th")) {
  const button = document.createElement("button");
  button.textContent = head.textContent;
  button.addEventListener("click", () => sort(head));
  head.replaceChildren(button);
}
