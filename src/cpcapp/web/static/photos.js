// The photos page: takes photos in, sends them one after another, and shows what was found.

import { ApiError, ask, askPatiently, follow } from "/static/api.js";
import { byId, element, fill } from "/static/page.js";
import { ResultPanel } from "/static/result.js";

const settings = JSON.parse(document.body.dataset.settings);
const panel = new ResultPanel(settings);
const WORDS = { signs: "Signs of splicing", weak: "Weak signs", none: "No signs found", unknown: "Can't tell" };
const STORED = "cpcapp-jobs";

const items = [];
const waiting = [];
let active = 0;
let current = null;

// --- one photo in the list

class Item {
  constructor(name, send) {
    this.name = name;
    this.send = send;
    this.job = null;
    this.error = null;
    this.state = "waiting";
    this.announced = 0;
    this.preview = null;
    this.removed = false;
    this.#build();
  }

  #build() {
    this.row = element("li", "item");
    this.open = element("button", "item-open");
    this.open.type = "button";
    this.thumb = element("img", "thumb");
    this.thumb.alt = "";
    this.label = element("span", "name", this.name);
    this.label.title = this.name;
    this.text = element("span", "state");
    this.bar = element("progress", "bar");
    this.bar.max = 1;
    this.bar.setAttribute("aria-label", `Progress of ${this.name}`);
    this.open.append(this.thumb, this.label, this.text, this.bar);
    this.open.addEventListener("click", () => select(this));
    this.close = element("button", "item-close", "×");
    this.close.type = "button";
    this.close.setAttribute("aria-label", `Remove ${this.name}`);
    this.close.addEventListener("click", () => remove(this));
    this.row.append(this.open, this.close);
  }

  // Formats that the browser can't show have no preview until the server has made one.
  setPreview(address) {
    this.forgetPreview();
    this.preview = address;
    this.thumb.onerror = () => {
      this.preview = null;
      this.thumb.onerror = null;
      this.thumb.src = "/static/no-picture.svg";
      this.refresh();
    };
    this.thumb.src = address;
  }

  // A preview made here keeps the whole file in memory until it is given back.
  forgetPreview() {
    if (this.thumb.src.startsWith("blob:")) URL.revokeObjectURL(this.thumb.src);
  }

  get isFinished() {
    return this.state === "done" || this.state === "failed";
  }

  refresh() {
    const { job } = this;
    this.bar.hidden = this.isFinished;
    delete this.text.dataset.code;
    if (this.state === "done") {
      this.text.textContent = WORDS[job.result.verdict_code];
      this.text.dataset.code = job.result.verdict_code;
    } else if (this.state === "failed") {
      this.text.textContent = this.error.message;
      this.text.dataset.code = "error";
    } else if (this.state === "waiting" || !job) {
      this.text.textContent = this.state === "sending" ? "Sending" : "Waiting";
      this.bar.removeAttribute("value");
    } else if (job.status === "queued") {
      this.text.textContent = job.position > 1 ? `Waiting, ${job.position - 1} before it` : "Waiting";
      this.bar.removeAttribute("value");
    } else {
      this.text.textContent = `${job.step || "Working"}, ${Math.round(100 * job.share)} %`;
      this.bar.value = job.share;
    }
    if (this === current) showCurrent();
  }

  async work() {
    this.state = "sending";
    this.refresh();
    try {
      this.update(this.job || (await this.send()));
      // Taken out of the list while it was being sent: nobody wants the result.
      if (this.removed) return forget(this.job);
      store();
      const job = this.job.status === "done" ? this.job : await follow(this.job.id, (state) => this.update(state));
      this.update(job);
      if (job.status === "failed") throw job.error;
      this.state = "done";
      this.setPreview(job.result.previews.photo);
      say([`${this.name}: ${job.result.sentence}`, ...job.result.facts.warnings].join(" "));
    } catch (error) {
      if (this.removed) return;
      this.state = "failed";
      this.error = { message: error.message || String(error), help: error.help || "" };
      say(`${this.name}: ${this.error.message}`);
    }
    this.refresh();
    store();
  }

  update(job) {
    this.job = job;
    this.state = "working";
    // A screen reader hears every quarter, not every percent.
    const quarter = Math.floor(4 * job.share);
    if (job.status === "running" && quarter > this.announced) {
      this.announced = quarter;
      if (quarter < 4) say(`${this.name}: ${25 * quarter} %`);
    }
    this.refresh();
  }
}

function forget(job) {
  ask(`/api/jobs/${job.id}`, { method: "DELETE" }).catch(() => {});
}

const say = (text) => fill("live", text);

// --- the list

function add(item) {
  items.push(item);
  byId("list").append(item.row);
  document.body.classList.add("busy");
  byId("work").hidden = false;
  waiting.push(item);
  item.refresh();
  if (!current) select(item);
  next();
}

// Few at a time: a browser keeps at most six connections to a server open.
async function next() {
  while (active < settings.at_once && waiting.length) {
    const item = waiting.shift();
    active += 1;
    item.work().finally(() => {
      active -= 1;
      next();
    });
  }
}

function remove(item) {
  const at = items.indexOf(item);
  const hadFocus = item.row.contains(document.activeElement);
  items.splice(at, 1);
  if (waiting.includes(item)) waiting.splice(waiting.indexOf(item), 1);
  item.removed = true;
  item.row.remove();
  item.forgetPreview();
  if (item.job) forget(item.job);
  store();
  const neighbour = items[Math.min(at, items.length - 1)] || null;
  if (item === current) select(neighbour);
  if (hadFocus) (neighbour ? neighbour.open : byId("files")).focus();
}

function select(item) {
  if (current) current.open.removeAttribute("aria-current");
  current = item;
  byId("work").hidden = !item;
  document.body.classList.toggle("busy", Boolean(item));
  if (!item) return;
  item.open.setAttribute("aria-current", "true");
  item.open.scrollIntoView({ block: "nearest", inline: "nearest" });
  panel.result = null;
  showCurrent();
}

function showCurrent() {
  const { state, job, error, name } = current;
  const done = state === "done";
  byId("result").hidden = !done;
  byId("message").hidden = done;
  if (done) {
    if (panel.result !== job.result) panel.show(job);
    return;
  }
  panel.result = null;
  const failed = state === "failed";
  byId("message").classList.toggle("failed", failed);
  fill("message-title", name);
  fill("message-text", failed ? error.message : current.text.textContent);
  fill("message-help", failed ? error.help : "");
  const photo = byId("message-photo");
  photo.hidden = failed || !current.preview;
  if (!photo.hidden && photo.src !== current.preview) photo.src = current.preview;
  const bar = byId("message-progress");
  bar.hidden = failed;
  bar.setAttribute("aria-label", `Progress of ${name}`);
  if (job && job.status === "running") bar.value = job.share;
  else bar.removeAttribute("value");
}

// A reload of the page shows the same photos, as long as the server has them.
function store() {
  const ids = items.filter((item) => item.job && item.state !== "failed").map((item) => item.job.id);
  sessionStorage.setItem(STORED, JSON.stringify(ids));
}

async function restore() {
  let ids = [];
  try {
    ids = JSON.parse(sessionStorage.getItem(STORED) || "[]");
  } catch {
    sessionStorage.removeItem(STORED);
  }
  for (const id of ids) {
    const job = await ask(`/api/jobs/${id}`).catch(() => null);
    if (!job || job.kind !== "photo") continue;
    const item = new Item(job.name, null);
    item.job = job;
    add(item);
  }
}

// --- photos come in

function addFiles(files) {
  for (const file of files) {
    const model = byId("model").value;
    const item = new Item(file.name || "pasted.png", () => {
      const form = new FormData();
      form.append("file", file, file.name || "pasted.png");
      form.append("model", model);
      return askPatiently("/api/localize?wait=false", () => ({ method: "POST", body: form }));
    });
    if (file.size > settings.max_bytes) {
      item.send = () => Promise.reject(new ApiError(413, {
        message: `The file is larger than ${settings.max_bytes / 1e6} MB.`,
        help: "Send a smaller file, or start the server with a larger --max-megabytes.",
      }));
    }
    item.setPreview(URL.createObjectURL(file));
    add(item);
  }
}

byId("files").addEventListener("change", (event) => {
  addFiles([...event.target.files]);
  event.target.value = "";
});

for (const button of document.querySelectorAll(".example")) {
  button.addEventListener("click", () => {
    const name = button.dataset.example;
    const model = encodeURIComponent(byId("model").value);
    const address = `/api/examples/${encodeURIComponent(name)}?wait=false&model=${model}`;
    const item = new Item(name, () => askPatiently(address, () => ({ method: "POST" })));
    item.setPreview(button.querySelector("img").src);
    add(item);
  });
}

const hasFiles = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
let depth = 0;
addEventListener("dragenter", (event) => {
  if (!hasFiles(event)) return;
  depth += 1;
  byId("drop-cover").hidden = false;
});
addEventListener("dragleave", (event) => {
  if (!hasFiles(event)) return;
  depth -= 1;
  byId("drop-cover").hidden = depth > 0;
});
addEventListener("dragover", (event) => {
  if (hasFiles(event)) event.preventDefault();
});
addEventListener("drop", (event) => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  depth = 0;
  byId("drop-cover").hidden = true;
  addFiles([...event.dataTransfer.files]);
});
addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files || [])];
  if (files.length) {
    event.preventDefault();
    addFiles(files);
  }
});

restore();
