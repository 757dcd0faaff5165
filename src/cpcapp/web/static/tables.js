// The tables page: takes two tables in, lets people choose columns, and asks for a comparison.

import { ApiError, askPatiently, follow } from "/static/api.js";
import { byId, element, fill, listItems, plural } from "/static/page.js";
import { Comparison } from "/static/tables_result.js";

const ROLES = ["target", "background"];
const maxBytes = Number(document.body.dataset.maxBytes);
const chosen = {};
let tables = null; // what the server said of the two tables
let asked = 0; // counts what was asked for: the answer to an older question is not shown
const comparison = new Comparison(byId("comparison"));

const say = (text) => fill("live", text);

function show(...ids) {
  for (const id of ["start", "message", "setup", "comparison"]) byId(id).hidden = !ids.includes(id);
  document.body.classList.toggle("busy", !ids.includes("start"));
}

// --- messages

function showProgress(title, job = null) {
  byId("message").classList.remove("failed");
  fill("message-title", title);
  const waits = job && job.status === "queued" && job.position > 0;
  fill("message-text", waits ? `Waiting: ${job.position} before it.` : (job && job.step) || "");
  fill("message-help", "");
  const bar = byId("message-progress");
  bar.hidden = false;
  if (job && job.share > 0) bar.value = job.share;
  else bar.removeAttribute("value");
}

function showError(error) {
  const known = error instanceof ApiError || error.message;
  byId("message").classList.add("failed");
  fill("message-title", "That did not work");
  fill("message-text", known ? error.message : String(error));
  fill("message-help", error.help || "");
  byId("message-progress").hidden = true;
  byId("message").scrollIntoView({ block: "nearest" });
  say(`That did not work. ${error.message || ""} ${error.help || ""}`);
}

// --- files

function choose(role, file) {
  const box = byId(`drop-${role}`);
  if (file.size > maxBytes) {
    show("start", "message");
    showError(new ApiError(413, {
      message: `${file.name} is larger than ${maxBytes / 1e6} MB.`,
      help: "Send a smaller table, or start the server with a larger --max-megabytes.",
    }));
    return;
  }
  chosen[role] = file;
  box.classList.add("filled");
  byId(`chosen-${role}`).textContent = file.name;
  if (ROLES.every((each) => chosen[each])) send();
  else say(`${file.name} chosen. Choose the ${role === "target" ? "background" : "target"} next.`);
}

function send() {
  open("Reading the tables", () => {
    const body = new FormData();
    for (const role of ROLES) body.append(role, chosen[role], chosen[role].name);
    return askPatiently("/api/tables", () => ({ method: "POST", body }));
  });
}

async function open(title, request) {
  const number = (asked += 1);
  show("start", "message");
  showProgress(title);
  byId("message").scrollIntoView({ block: "nearest" });
  say(title);
  try {
    const found = await request();
    if (number !== asked) return;
    tables = found;
    fillSetup();
    if (tables.columns.filter((column) => column.selected).length >= 2) await compare();
    else {
      openChoices(true);
      show("setup");
      say("Choose at least two columns.");
    }
  } catch (error) {
    if (number !== asked) return;
    show("start", "message");
    showError(error);
  }
}

function startAgain() {
  asked += 1;
  if (tables) fetch(`/api/jobs/${tables.id}`, { method: "DELETE" }).catch(() => {});
  tables = null;
  for (const role of ROLES) {
    delete chosen[role];
    byId(`file-${role}`).value = "";
    byId(`drop-${role}`).classList.remove("filled");
    byId(`chosen-${role}`).textContent = "or drop it here";
  }
  show("start");
  byId("start-title").scrollIntoView({ block: "center" });
  byId("file-target").focus();
}

function listenForFiles() {
  for (const role of ROLES) {
    const box = byId(`drop-${role}`);
    byId(`file-${role}`).addEventListener("change", (event) => {
      if (event.target.files.length) choose(role, event.target.files[0]);
    });
    box.addEventListener("dragover", () => box.classList.add("over"));
    box.addEventListener("dragleave", () => box.classList.remove("over"));
  }
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    for (const role of ROLES) byId(`drop-${role}`).classList.remove("over");
    const files = [...event.dataTransfer.files];
    if (!files.length) return;
    if (tables) startAgain();
    // Two files at once: the first is the target. One: where it was dropped, or what is missing.
    if (files.length > 1) {
      ROLES.forEach((role, i) => choose(role, files[i]));
      return;
    }
    const box = event.target.closest ? event.target.closest(".table-drop") : null;
    choose(box ? box.dataset.role : ROLES.find((role) => !chosen[role]) || "target", files[0]);
  });
  for (const button of document.querySelectorAll("[data-example]")) {
    button.addEventListener("click", () => {
      const address = `/api/tables/examples/${button.dataset.example}`;
      open("Making the example", () => askPatiently(address, () => ({ method: "POST" })));
    });
  }
}

// --- columns and options

function fillSetup() {
  const { target, background } = tables;
  fill("setup-title", `${target.name} against ${background.name}`);
  const usable = tables.columns.filter((column) => column.usable).length;
  byId("setup-text").textContent = `${plural(target.n_rows, "row")} against ${plural(background.n_rows, "row")}; `
    + `${plural(usable, "column")} can be compared.`;
  const problems = [target, background].filter((one) => one.n_bad_rows).map((one) => (
    `${one.name}: ${plural(one.n_bad_rows, "row")} can't be used and will be left out. ${one.problems.join("; ")}.`
  ));
  if (usable < 2) problems.unshift(`A comparison needs two columns of numbers that both tables have.${nameOthers()}`);
  byId("setup-problems").replaceChildren(...listItems(problems));
  byId("column-search").value = "";
  byId("column-list").replaceChildren(...tables.columns.map(makeColumn));
  const label = byId("label");
  const none = new Option("nothing", "");
  const options = tables.columns.filter((column) => column.distinct > 1).map((column) => {
    const kind = column.kind === "text" ? `text, ${column.distinct >= 1000 ? "many" : column.distinct} values` : "numbers";
    return new Option(`${column.name} (${kind})`, column.name);
  });
  label.replaceChildren(none, ...options);
  label.value = tables.label || "";
  freeLabel();
  openChoices(false);
}

function nameOthers() {
  const names = tables.only_in_background;
  if (!names.length) return "";
  const more = names.length > 5 ? `, and ${names.length - 5} more` : "";
  return ` Only in ${tables.background.name}: ${names.slice(0, 5).join(", ")}${more}.`;
}

function makeColumn(column) {
  const row = element("li");
  const label = element("label", column.usable ? "" : "unusable");
  const box = element("input");
  box.type = "checkbox";
  box.name = "column";
  box.value = column.name;
  box.checked = column.selected;
  box.disabled = !column.usable;
  const missing = column.missing + column.missing_in_background;
  const why = column.reason || (missing ? `${missing.toLocaleString("en")} missing` : "");
  label.append(box, element("span", "name", column.name), element("span", "why", why));
  row.append(label);
  return row;
}

const columnBoxes = () => [...byId("column-list").querySelectorAll("input")];

// A label is no feature: its own column can't be chosen.
function freeLabel() {
  const label = byId("label").value;
  for (const box of columnBoxes()) {
    const column = tables.columns.find((one) => one.name === box.value);
    const taken = column.name === label && column.usable;
    if (taken) box.checked = false;
    box.disabled = taken || !column.usable;
    const why = box.parentElement.querySelector(".why");
    if (taken) why.textContent = "gives the colours";
    else if (why.textContent === "gives the colours") why.textContent = "";
  }
  countColumns();
}

function countColumns() {
  const number = columnBoxes().filter((box) => box.checked).length;
  byId("column-count").textContent = `${number} chosen`;
  byId("compare").disabled = number < 2;
}

function openChoices(opened) {
  byId("choices").hidden = !opened;
  byId("toggle-setup").setAttribute("aria-expanded", String(opened));
  byId("toggle-setup").textContent = opened ? "Hide columns" : "Change columns";
}

function listenForChoices() {
  byId("toggle-setup").addEventListener("click", () => openChoices(byId("choices").hidden));
  byId("other-tables").addEventListener("click", startAgain);
  byId("column-list").addEventListener("change", countColumns);
  byId("label").addEventListener("change", freeLabel);
  byId("column-search").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const box of columnBoxes()) {
      box.closest("li").hidden = !box.value.toLowerCase().includes(wanted);
    }
  });
  const setShown = (checked) => {
    for (const box of columnBoxes()) if (!box.disabled && !box.closest("li").hidden) box.checked = checked;
    countColumns();
  };
  byId("columns-all").addEventListener("click", () => setShown(true));
  byId("columns-none").addEventListener("click", () => setShown(false));
  byId("choices").addEventListener("submit", (event) => {
    event.preventDefault();
    compare();
  });
}

// --- the comparison

async function compare() {
  const number = (asked += 1);
  const request = {
    columns: columnBoxes().filter((box) => box.checked).map((box) => box.value),
    label: byId("label").value || null,
    standardize: byId("standardize").value,
    missing: byId("missing").value,
  };
  const title = "Comparing the methods";
  const shown = byId("comparison").hidden ? ["setup", "message"] : ["setup", "message", "comparison"];
  show(...shown);
  showProgress(title);
  say(title);
  try {
    const options = {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request),
    };
    const job = await askPatiently(`/api/tables/${tables.id}/compare?wait=false`, () => options);
    const done = await follow(job.id, (state) => number === asked && showProgress(title, state));
    if (number !== asked) return;
    if (done.status === "failed") throw new ApiError(422, done.error);
    showProgress("Drawing", done);
    await comparison.load(done.result, request);
    if (number !== asked) return;
    show("setup", "comparison");
    comparison.show();
    say(comparison.describe());
  } catch (error) {
    if (number !== asked) return;
    if (error instanceof ApiError && error.status === 404) {
      // Removed after a while: nothing can be done with them any more.
      startAgain();
      show("start", "message");
    } else {
      show("setup", "message");
      openChoices(true);
    }
    showError(error);
  }
}

listenForFiles();
listenForChoices();
// Forgets the tables when the page is left; the server would remove them later anyway.
window.addEventListener("pagehide", () => {
  if (tables) fetch(`/api/jobs/${tables.id}`, { method: "DELETE", keepalive: true }).catch(() => {});
});
// For whoever wants to look inside: what is drawn, and how long that takes.
window.cpcappComparison = comparison;
