// Sorts tables and changes colours; the page is complete without it.
const root = document.documentElement;
const wished = matchMedia("(prefers-color-scheme: dark)");

function theme(chosen) {
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  root.dataset.shade = root.dataset.theme || (wished.matches ? "dark" : "light");
}

// Numbers by value, words in the order of the locale; cells without a number come last in both directions.
function sort(table, column, down) {
  const body = table.tBodies[0];
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
  };
  const numbers = [...body.rows].some((row) => key(row) !== null);
  const sign = down ? -1 : 1;
  const rows = [...body.rows].sort((one, other) => {
    if (!numbers) return sign * one.cells[column].textContent.localeCompare(other.cells[column].textContent);
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (a - b);
  });
  body.append(...rows);
  for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", down ? "descending" : "ascending");
}

try {
  const wish = new URLSearchParams(location.search);
  theme(wish.get("theme"));
  document.getElementById("theme").addEventListener("click", () => theme(root.dataset.shade === "dark" ? "light" : "dark"));
  wished.addEventListener("change", () => theme());
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "t" && !event.ctrlKey && !event.metaKey && !event.altKey) theme(root.dataset.shade === "dark" ? "light" : "dark");
  });
  const tables = [...document.querySelectorAll("table.sheet")];
  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.firstChild.addEventListener("click", () => sort(table, column, head.getAttribute("aria-sort") === "ascending"));
    });
  }
  // ?sort=1.3 sorts the first table by its third column; a second time reverses the order.
  for (const place of wish.getAll("sort")) {
    const [table, column] = place.split(".").map((number) => Number(number) - 1);
    tables[table]?.tHead.rows[0].cells[column]?.firstChild.click();
  }
  root.dataset.drawn = `tables ${tables.length} rows ${tables.reduce((all, table) => all + table.tBodies[0].rows.length, 0)} pictures ${document.querySelectorAll("figure.strip").length}`;
  // For tests of narrow screens: pixels that the page is too wide, and the size of its smallest text.
  root.dataset.over = Math.max(0, root.scrollWidth - root.clientWidth);
  root.dataset.smallest = Math.min(...[...document.body.querySelectorAll("*")].map((one) => parseFloat(getComputedStyle(one).fontSize)));
  root.dataset.requests = performance.getEntriesByType("resource").length;
} catch (error) {
  root.dataset.error = String(error);
}
