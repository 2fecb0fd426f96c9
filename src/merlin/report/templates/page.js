"use strict";
// Sorting, within each group of rows; the page shows everything without it.
const protocol = () => document.querySelector("[name=protocol]:checked").value;

function value(row, column) {
  const cell = row.cells[column];
  if (cell.firstElementChild?.className === "cell" || cell.className === "none") {
    return cell.dataset[protocol()] ?? "";
  }
  return cell.textContent.trim();
}

function number(text) {
  const match = /^[-−+]?[\d,]*\.?\d+/.exec(text);
  return match ? Number(match[0].replace("−", "-").replaceAll(",", "")) : NaN;
}

function sort(heading, direction) {
  const table = heading.closest("table");
  const column = heading.cellIndex;
  for (const body of table.tBodies) {
    const all = [...body.rows];
    const fixed = (row) => row.classList.contains("group") || row.classList.contains("summary");
    const rows = all.filter((row) => !fixed(row)).map((row) => [value(row, column), row]);
    const missing = (text) => text === "" || text === "–";
    const numeric = rows.every(([text]) => missing(text) || !Number.isNaN(number(text)));
    rows.sort(([a], [b]) => {
      if (missing(a) || missing(b)) return missing(a) - missing(b); // always last
      const order = numeric ? number(a) - number(b) : a.localeCompare(b, "en", { numeric: true });
      return direction === "ascending" ? order : -order;
    });
    const groups = all.filter((row) => row.classList.contains("group"));
    const summaries = all.filter((row) => row.classList.contains("summary"));
    body.append(...groups, ...rows.map(([, row]) => row), ...summaries);
  }
  for (const other of heading.parentElement.cells) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", direction);
}

for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement;
    sort(heading, heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
  });
}

for (const choice of document.querySelectorAll("[name=protocol]")) {
  choice.addEventListener("change", () => {
    for (const heading of document.querySelectorAll(".scores th:is([aria-sort$=ending])")) {
      sort(heading, heading.getAttribute("aria-sort"));
    }
  });
}

// A number leads to its rows even where the browser does not open what is folded.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target?.closest("details:not([open])");
  if (folded) {
    folded.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", reveal);
reveal();
