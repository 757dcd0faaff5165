"use strict";
// Only so many rows are in the page at once: a browser lays out all that are.
const STEP = 200;
// Until the rest is taken out, so that a long table is never laid out as a whole.
document.documentElement.className = "loading";

document.addEventListener("DOMContentLoaded", () => {
  const byId = (id) => document.getElementById(id);
  const table = byId("results");
  const body = table.tBodies[0];
  const find = byId("find");
  const code = byId("code");
  const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
  const rows = Array.from(body.rows, (row, order) => ({ row, order, name: row.cells[1].textContent }));
  let limit = STEP;

  function number(text) {
    return text.trim() === "" ? NaN : Number(text);
  }

  // What a row is sorted by, for each kind of column; NaN where there is nothing.
  const KEYS = {
    text: (item) => item.name,
    order: (item) => item.order,
    number: (item, column) => number(item.row.cells[column].textContent),
    size: (item, column) => {
      const sides = item.row.cells[column].textContent.split("×").map(number);
      return sides.length === 2 ? sides[0] * sides[1] : NaN;
    },
  };

  // Of a long table, only the first rows come with pictures: without scripts, a browser would load
  // all of them.
  function addPicture(link) {
    const picture = document.createElement("img");
    picture.loading = "lazy";
    picture.alt = link.textContent;
    picture.src = link.dataset.small;
    delete link.dataset.small;
    link.replaceChildren(picture);
  }

  function show() {
    const text = find.value.trim().toLowerCase();
    const fitting = rows.filter(
      (item) => item.name.toLowerCase().includes(text) &&
        (code.value === "" || item.row.className === code.value));
    const shown = fitting.slice(0, limit);
    body.replaceChildren(...shown.map((item) => item.row));
    body.querySelectorAll("a[data-small]").forEach(addPicture);
    const all = fitting.length + (fitting.length === 1 ? " photo" : " photos");
    byId("shown").textContent = shown.length < fitting.length ? shown.length + " of " + all : all;
    byId("more").hidden = shown.length === fitting.length;
  }

  function sort(header, column, down) {
    const kind = header.dataset.sort;
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    byId("sort").value = String(column);
    const sign = down ? -1 : 1;
    for (const item of rows) item.key = KEYS[kind](item, column);
    rows.sort((one, other) => {
      if (kind === "text") return sign * collator.compare(one.key, other.key);
      // Rows without a value stay at the end, whichever way the rest is sorted.
      const missing = Number.isNaN(one.key) - Number.isNaN(other.key);
      return missing || sign * (one.key - other.key) || one.order - other.order;
    });
    limit = STEP;
    show();
  }

  const headers = table.tHead.rows[0].cells;
  byId("sort").addEventListener("input", (event) => {
    sort(headers[Number(event.target.value)], Number(event.target.value), false);
  });
  Array.from(headers).forEach((header, column) => {
    if (!header.dataset.sort) return;
    // A narrow page has no room for the headers.
    const option = new Option(header.textContent, String(column));
    option.selected = header.dataset.sort === "order";
    byId("sort").append(option);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      sort(header, column, header.getAttribute("aria-sort") === "ascending");
    });
  });
  for (const input of [find, code]) {
    input.addEventListener("input", () => { limit = STEP; show(); });
  }
  byId("more").firstElementChild.addEventListener("click", () => { limit += STEP; show(); });
  byId("tools").hidden = false;
  show();
  document.documentElement.className = "";
});
