"use strict";
// Makes the table of a page sortable by every column and filterable by outcome.
(function () {
  const table = document.querySelector("table.sortable");
  const body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells);

  function sortBy(column) {
    const head = heads[column];
    const down = head.getAttribute("aria-sort") === "ascending";
    const number = head.querySelector("button").dataset.kind === "number";
    const key = (row) => row.cells[column].dataset.key;
    const rows = Array.from(body.rows).sort((one, two) => {
      const a = key(one), b = key(two);
      // What was not measured stays at the end, whichever way the others go.
      if (a === "" || b === "") return (a === "") - (b === "");
      const order = number ? Number(a) - Number(b) : a.localeCompare(b);
      return down ? -order : order;
    });
    body.append(...rows);
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortBy(column));
  });

  const filter = document.getElementById("outcome-filter");
  const shown = document.getElementById("shown");
  function show() {
    let count = 0;
    for (const row of body.rows) {
      row.hidden = filter.value !== "" && row.dataset.outcome !== filter.value;
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = count === body.rows.length ? "" : count + " of " + body.rows.length + " shown";
  }
  filter.addEventListener("change", show);
  show();
})();
