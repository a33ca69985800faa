"use strict";
// Without it the page lists everything; with it, what the fields ask for.
const fields = document.querySelectorAll("#search input, #search select");
const rows = document.querySelectorAll("tbody tr[data-name]");
const told = document.getElementById("told");
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
  told.textContent = `${shown} of ${rows.length} artifacts`;
}
document.getElementById("search").hidden = false;
fields.forEach((field) => field.addEventListener("input", narrow));
narrow();
