// One comparison: three plots that move together, their features, and the rows that are selected.

import { byId, element, listItems, plural } from "/static/page.js";
import { Scatter, formatNumber, pack } from "/static/scatter.js";

const METHODS = ["pca", "cpca", "cpca++"];
const SHOWN_FEATURES = 8;
const LISTED_ROWS = 50;
// Colours of Okabe and Ito, told apart with any common kind of colour vision. Yellow is darker on
// white; the last one is for all classes beyond.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#111111", "#8f98a3"];
const DARK = ["#3d9fe0", "#f07f3c", "#1fbf94", "#e39cc4", "#f2b53a", "#8fd0f5", "#f2f4f6", "#7c8793"];
// Viridis: from dark to light in equal steps, also for people with colour blindness.
const RAMP = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

const dark = matchMedia("(prefers-color-scheme: dark)");

function toRgb(text) {
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

// A share from 0 to 1 as a colour; the end that could not be seen on the paper is left out.
function rampColour(share) {
  const trimmed = dark.matches ? 0.15 + 0.85 * share : 0.9 * share;
  const at = Math.min(RAMP.length - 1.001, Math.max(0, trimmed * (RAMP.length - 1)));
  const low = Math.floor(at);
  return RAMP[low].map((value, i) => Math.round(value + (at - low) * (RAMP[low + 1][i] - value)));
}

async function fetchFile(address, kind) {
  const response = await fetch(address);
  if (!response.ok) throw new Error("The result is no longer there. Compare again.");
  return kind === "json" ? response.json() : new Float32Array(await response.arrayBuffer());
}

export class Comparison {
  constructor(root) {
    this.root = root;
    this.plots = {};
    for (const card of root.querySelectorAll(".plot")) {
      const { method } = card.dataset;
      const scatter = new Scatter(card.querySelector(".scatter"));
      this.plots[method] = { card, scatter, tip: card.querySelector(".tip") };
      scatter.addEventListener("hover", (event) => this.#hover(method, event.detail));
      scatter.addEventListener("brush", (event) => this.#brush(event.detail));
      scatter.addEventListener("pick", (event) => this.#pick(event.detail));
      scatter.addEventListener("clear", () => {
        this.kept = undefined;
        this.select(null);
      });
    }
    this.slider = byId("alpha");
    this.slider.addEventListener("input", () => this.setAlpha(Number(this.slider.value)));
    byId("show-background").addEventListener("change", (event) => this.#showBackground(event.target.checked));
    byId("clear-selection").addEventListener("click", () => this.select(null));
    byId("download-shown").addEventListener("click", () => this.#download());
    dark.addEventListener("change", () => this.result && this.#recolour());
  }

  // --- loading

  async load(result, request) {
    const { points } = result;
    const both = async (kind) => Promise.all(["target", "background"].map((role) => fetchFile(points[role][kind])));
    const [pca, cpca, plus, labels, values, rows] = await Promise.all([
      both("pca"), both("cpca"), both("cpca++"),
      points.target.label ? fetchFile(points.target.label) : null,
      fetchFile(points.target.values),
      fetchFile(result.rows.target, "json"),
    ]);
    Object.assign(this, { result, request, labels, values, rows });
    this.points = { pca, "cpca++": plus };
    this.sweep = cpca;
    this.count = result.target.drawn;
    this.selected = null;
    this.pressed = new Set();
  }

  show() {
    const { methods } = this.result;
    const { alphas, automatic, offered } = methods.cpca;
    this.slider.max = String(alphas.length - 1);
    this.alpha = -1;
    byId("show-background").checked = false;
    for (const { scatter } of Object.values(this.plots)) {
      scatter.setSelected(null);
      scatter.showBackground = false;
      scatter.setHovered(-1);
    }
    this.#fillOffered(alphas, automatic, offered);
    this.#recolour();
    for (const method of ["pca", "cpca++"]) {
      this.plots[method].scatter.setPoints(...this.points[method], { animate: false });
      this.#fillFeatures(method, methods[method].top_features);
    }
    this.setAlpha(automatic, { animate: false });
    this.#fillPowers();
    this.#fillRows();
    this.#fillDownloads();
    this.#summarise();
    for (const { scatter } of Object.values(this.plots)) scatter.resize();
  }

  describe() {
    const { target, n_features: features } = this.result;
    return `Compared: ${plural(target.rows_used, "row")}, ${plural(features, "column")}.`;
  }

  // --- α

  setAlpha(index, { animate = true } = {}) {
    if (index === this.alpha) return;
    this.alpha = index;
    const size = 2 * this.count;
    const ground = 2 * this.result.background.drawn;
    const [target, background] = this.sweep;
    this.plots.cpca.scatter.setPoints(
      target.subarray(index * size, (index + 1) * size),
      background.subarray(index * ground, (index + 1) * ground),
      { animate },
    );
    const { alphas, automatic, top_features: tops } = this.result.methods.cpca;
    const text = formatNumber(alphas[index]);
    this.slider.value = String(index);
    const remark = index === automatic ? " (automatic)" : index === 0 ? " (as PCA of scaled columns)" : "";
    byId("alpha-value").textContent = `${text}${remark}`;
    this.slider.setAttribute("aria-valuetext", `alpha ${text}${remark}`);
    for (const button of byId("offered").querySelectorAll("button")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.index) === index));
    }
    this.#fillFeatures("cpca", tops[index]);
    this.#fillPowers();
  }

  #fillOffered(alphas, automatic, offered) {
    const buttons = offered.map((index) => {
      const button = element("button", "", formatNumber(alphas[index]));
      button.type = "button";
      button.dataset.index = String(index);
      if (index === automatic) button.title = "Chosen automatically";
      button.addEventListener("click", () => this.setAlpha(index));
      return button;
    });
    byId("offered").replaceChildren(element("span", "", "The automatic one is chosen from:"), ...buttons);
  }

  // --- colours and legend

  #recolour() {
    const style = getComputedStyle(document.body);
    const variable = (name) => style.getPropertyValue(name).trim();
    const theme = {
      line: variable("--muted"), text: variable("--text"), accent: variable("--accent"),
      ground: toRgb(variable("--ground")), back: toRgb(variable("--back")),
    };
    this.palette = (dark.matches ? DARK : LIGHT).map(toRgb);
    this.#assignColours();
    const colours = new Int32Array(this.count);
    for (let row = 0; row < this.count; row += 1) colours[row] = pack(this.colourOf(row));
    for (const { scatter } of Object.values(this.plots)) {
      scatter.theme = theme;
      scatter.setColours(colours);
    }
    this.#fillLegend();
    this.#listSelected();
  }

  // Classes keep their own colours as long as there are enough; of more, the commonest do.
  #assignColours() {
    const { label } = this.result;
    const last = this.palette.length - 1;
    if (!label || label.kind !== "class") return;
    const order = label.classes.map((_, i) => i);
    const few = label.classes.length <= last;
    if (!few) order.sort((a, b) => label.classes[b].count - label.classes[a].count);
    this.classColours = [];
    order.forEach((index, rank) => {
      this.classColours[index] = this.palette[Math.min(rank, last)];
    });
  }

  colourOf(row) {
    const { label } = this.result;
    if (!label) return this.palette[0];
    const value = this.labels[row];
    if (Number.isNaN(value)) return this.palette[this.palette.length - 1];
    if (label.kind === "class") return this.classColours[value];
    return rampColour((value - label.low) / (label.high - label.low || 1));
  }

  #fillLegend() {
    const legend = byId("legend");
    const { label } = this.result;
    if (!label) {
      legend.replaceChildren(element("span", "muted", "No label is chosen: all rows have one colour."));
      return;
    }
    const name = element("span", "legend-name", label.name);
    if (label.kind === "number") {
      legend.replaceChildren(name, this.#makeRamp(label));
      return;
    }
    legend.replaceChildren(name, ...label.classes.map((one, index) => {
      const button = element("button");
      button.type = "button";
      const swatch = element("i");
      swatch.style.background = `rgb(${this.classColours[index].join(" ")})`;
      button.append(swatch, element("span", "name", one.name), element("span", "count", one.count.toLocaleString("en")));
      button.title = `Select all rows with ${one.name}`;
      button.setAttribute("aria-pressed", String(this.pressed.has(index)));
      button.addEventListener("click", () => this.#toggleClass(index));
      return button;
    }));
  }

  #makeRamp(label) {
    const ramp = element("form", "ramp");
    const canvas = element("canvas");
    canvas.width = 180;
    canvas.height = 1;
    const context = canvas.getContext("2d");
    for (let x = 0; x < canvas.width; x += 1) {
      context.fillStyle = `rgb(${rampColour(x / (canvas.width - 1)).join(" ")})`;
      context.fillRect(x, 0, 1, 1);
    }
    const inputs = [["from", label.low], ["to", label.high]].map(([word, value]) => {
      const input = element("input");
      input.type = "number";
      input.step = "any";
      input.value = String(value);
      input.setAttribute("aria-label", `Select rows with ${label.name} ${word}`);
      return input;
    });
    const button = element("button", "button small", "Select");
    button.type = "submit";
    ramp.append(
      element("span", "", formatNumber(label.low)), canvas, element("span", "", formatNumber(label.high)),
      inputs[0], element("span", "", "to"), inputs[1], button,
    );
    ramp.addEventListener("submit", (event) => {
      event.preventDefault();
      const [low, high] = inputs.map((input) => Number(input.value));
      // Labels are stored in 32 bits: the ends count too.
      const edge = 1e-6 * Math.max(Math.abs(low), Math.abs(high));
      this.select(Uint8Array.from(this.labels, (value) => (value >= low - edge && value <= high + edge ? 1 : 0)));
    });
    return ramp;
  }

  // --- selection

  #toggleClass(index) {
    const pressed = new Set(this.pressed);
    if (!pressed.delete(index)) pressed.add(index);
    const rows = pressed.size ? Uint8Array.from(this.labels, (value) => (pressed.has(value) ? 1 : 0)) : null;
    this.select(rows, pressed);
  }

  #brush({ rows, adds, ended }) {
    if (adds && this.kept === undefined) this.kept = this.selected;
    if (adds && this.kept) for (let i = 0; i < rows.length; i += 1) rows[i] |= this.kept[i];
    if (ended) this.kept = undefined;
    this.select(rows.includes(1) ? rows : ended ? null : rows, new Set(), { quiet: !ended });
  }

  #pick({ row, adds }) {
    const rows = adds && this.selected ? this.selected.slice() : new Uint8Array(this.count);
    rows[row] = adds && this.selected && this.selected[row] ? 0 : 1;
    this.select(rows.includes(1) ? rows : null);
  }

  // Selects rows in all plots; null for none. Spoken and listed unless it is still being drawn.
  select(rows, pressed = new Set(), { quiet = false } = {}) {
    this.selected = rows;
    this.pressed = pressed;
    for (const { scatter } of Object.values(this.plots)) scatter.setSelected(rows);
    const buttons = byId("legend").querySelectorAll("button[aria-pressed]");
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(pressed.has(index))));
    byId("clear-selection").disabled = !rows;
    if (quiet) return;
    this.#summarise();
    this.#listSelected();
  }

  #countSelected() {
    let number = 0;
    const byClass = new Map();
    for (let row = 0; row < this.count; row += 1) {
      if (!this.selected || !this.selected[row]) continue;
      number += 1;
      if (this.labels) byClass.set(this.labels[row], (byClass.get(this.labels[row]) || 0) + 1);
    }
    return { number, byClass };
  }

  #summarise() {
    const { label } = this.result;
    const total = `${plural(this.count, "row")}${this.result.target.sampled ? " drawn" : ""}`;
    if (!this.selected) {
      byId("summary").textContent = `${total}, none selected. Drag a box in one plot to see the same rows in the others.`;
      return;
    }
    const { number, byClass } = this.#countSelected();
    let text = `${number.toLocaleString("en")} of ${total} selected`;
    if (label && label.kind === "class") {
      const common = [...byClass].sort((a, b) => b[1] - a[1]);
      const parts = common.slice(0, 5).map(([code, found]) => {
        if (Number.isNaN(code)) return `${found} without a label`;
        const { name, count: all } = label.classes[code];
        return `${name} ${found.toLocaleString("en")} of ${all.toLocaleString("en")}`;
      });
      if (common.length > 5) parts.push(`${common.length - 5} more`);
      text += ` (${label.name}: ${parts.join("; ")})`;
    } else if (label && number) {
      const values = [...byClass.keys()].filter((value) => !Number.isNaN(value));
      const low = values.reduce((a, b) => Math.min(a, b), Infinity);
      const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
      text += ` (${label.name}: ${formatNumber(low)} to ${formatNumber(high)})`;
    }
    byId("summary").textContent = `${text}.`;
  }

  nameOf(row) {
    const names = Object.values(this.rows.ids).map((texts) => texts[row]).filter(Boolean);
    return names.length ? names.join(" · ") : `${this.rows.unit} ${this.rows.positions[row]}`;
  }

  labelOf(row) {
    const { label } = this.result;
    if (!label) return "";
    const value = this.labels[row];
    if (Number.isNaN(value)) return "none";
    return label.kind === "class" ? label.classes[value].name : formatNumber(value);
  }

  #labelCell(row) {
    const value = this.labels[row];
    if (Number.isNaN(value)) return "";
    // As many digits as 32 bits hold.
    return this.result.label.kind === "class" ? this.labelOf(row) : Number(value.toPrecision(7));
  }

  #listSelected() {
    const items = [];
    let more = 0;
    for (let row = 0; this.selected && row < this.count; row += 1) {
      if (!this.selected[row]) continue;
      if (items.length >= LISTED_ROWS) {
        more += 1;
        continue;
      }
      const item = element("li");
      const swatch = element("i");
      swatch.style.background = `rgb(${[...this.colourOf(row)].join(" ")})`;
      item.append(swatch, element("span", "", this.nameOf(row)));
      const at = `${this.rows.unit} ${this.rows.positions[row]}`;
      const where = [this.labelOf(row), at].filter((text) => text && text !== this.nameOf(row));
      item.append(element("span", "where", where.join(" · ")));
      items.push(item);
    }
    if (more) items.push(element("li", "muted", `and ${more.toLocaleString("en")} more; “Points as shown” has all of them`));
    byId("selected-list").replaceChildren(...items);
    byId("selected-hint").hidden = items.length > 0;
  }

  // --- hovering

  #hover(method, { row, spoken = false }) {
    for (const [name, { scatter, tip }] of Object.entries(this.plots)) {
      scatter.setHovered(row);
      tip.hidden = row < 0 || name !== method;
    }
    if (row < 0) return;
    const { scatter, tip } = this.plots[method];
    this.#fillTip(tip, method, row);
    const [x, y] = scatter.place(row);
    const { clientWidth: width, clientHeight: height } = scatter.root;
    const left = Math.min(Math.max(4, x + 14), width - tip.offsetWidth - 4);
    const top = y > height / 2 ? y - tip.offsetHeight - 12 : y + 14;
    tip.style.transform = `translate(${Math.round(Math.max(4, left))}px, ${Math.round(top)}px)`;
    if (spoken) byId("live").textContent = tip.innerText.replace(/\s+/g, " ");
  }

  #fillTip(tip, method, row) {
    const { result, alpha } = this;
    const tops = method === "cpca" ? result.methods.cpca.top_features[alpha] : result.methods[method].top_features;
    const lines = [[this.rows.unit, this.rows.positions[row]]];
    if (result.label) lines.push([result.label.name, this.labelOf(row)]);
    const points = this.plots[method].scatter.target;
    lines.push(["component 1", formatNumber(points[2 * row])], ["component 2", formatNumber(points[2 * row + 1])]);
    const shown = new Set(tops.flatMap((top) => top.slice(0, 3).map(({ feature }) => feature)));
    result.values.forEach((feature, column) => {
      const at = row * result.values.length + column;
      if (shown.has(feature)) lines.push([feature, formatNumber(this.values[at])]);
    });
    const table = element("table");
    for (const [name, value] of lines) {
      const line = table.insertRow();
      line.insertCell().textContent = String(name);
      line.insertCell().textContent = String(value);
    }
    tip.replaceChildren(element("strong", "", this.nameOf(row)), table);
  }

  #showBackground(shown) {
    for (const { scatter } of Object.values(this.plots)) scatter.setShowBackground(shown);
  }

  // --- features and numbers

  #fillFeatures(method, tops) {
    const largest = Math.max(...tops.flat().map(({ weight }) => Math.abs(weight)), 1e-12);
    const lists = tops.map((top, component) => {
      const part = element("div");
      const list = element("ol");
      for (const { feature, weight } of top.slice(0, SHOWN_FEATURES)) {
        const row = element("li", "bar-row");
        const name = element("span", "name", feature);
        name.title = feature;
        const bar = element("span", "bar");
        const filled = element("i", weight < 0 ? "minus" : "plus");
        filled.style.width = `${(50 * Math.abs(weight)) / largest}%`;
        bar.append(filled);
        row.append(name, bar, element("span", "weight", `${weight < 0 ? "" : "+"}${formatNumber(weight)}`));
        list.append(row);
      }
      part.append(element("h4", "", `Component ${component + 1}: top features`), list);
      return part;
    });
    const hint = "By how much a component changes when a feature changes by one standard deviation of the target.";
    this.plots[method].card.querySelector(".features").replaceChildren(...lists, element("p", "muted", hint));
  }

  #fillPowers() {
    const { methods, held_out: heldOut, n_significant: significant, significance_test: test } = this.result;
    const put = (method, text) => {
      this.plots[method].card.querySelector(".power").textContent = text;
    };
    const shares = methods.pca.variance_shares.map((share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);
    put("pca", `The components have ${shares.join(" and ")} of the variance.`);
    const values = methods.cpca.eigenvalues[this.alpha];
    const turned = this.alpha === methods.cpca.automatic ? "" : " The axes are turned within the plane, so that points do not jump.";
    put("cpca", values ? `Eigenvalues ${values.map(formatNumber).join(" and ")}.${turned}` : "");
    const times = methods["cpca++"].contrasts.map(formatNumber);
    const verdict = significant === null ? "" : ` ${plural(significant, "component")} ${significant === 1 ? "is" : "are"} significant (${test}).`;
    const spans = (heldOut ?? []).map(({ contrast, interval }) => `${formatNumber(contrast)} (${interval.map(formatNumber).join(" to ")})`);
    const others = spans.length ? ` In rows that were held out ${spans.join(" and ")}, with 95 % intervals.` : "";
    put("cpca++", `${times.join(" and ")} times the variance of the background.${others}${verdict}`);
  }

  #fillRows() {
    const { target, background, left_out: leftOut, n_features: features, notes } = this.result;
    const texts = [];
    for (const [role, one] of [["Target", target], ["Background", background]]) {
      texts.push(`${role}: ${one.rows_used.toLocaleString("en")} of ${plural(one.rows, "row")} used.`);
      if (one.sampled) texts.push(`${one.drawn.toLocaleString("en")} of them are drawn, chosen at random; components are those of all rows.`);
      texts.push(...one.reasons);
    }
    texts.push(`${plural(features, "column")} compared.`);
    if (leftOut.length) texts.push(`Not used: ${leftOut.map(({ name, reason }) => `${name} (${reason})`).join(", ")}.`);
    byId("row-facts").replaceChildren(...listItems(texts));
    byId("notes").replaceChildren(...notes.map((text) => element("li", "", `${text[0].toUpperCase()}${text.slice(1)}`.replace(/\.?$/, "."))));
    byId("notes-title").hidden = !notes.length;
  }

  // --- downloads

  #fillDownloads() {
    const { downloads, methods } = this.result;
    byId("download-scores").href = downloads.scores;
    byId("download-features").href = downloads.features;
    const alpha = formatNumber(methods.cpca.alphas[methods.cpca.automatic]);
    byId("download-hint").textContent = `The first has cPCA at α = ${alpha}. The last has what is drawn now, with the selection.`;
  }

  #download() {
    const quote = (value) => {
      const text = String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const alpha = this.result.methods.cpca.alphas[this.alpha];
    const ids = Object.entries(this.rows.ids);
    const header = [this.rows.unit, ...ids.map(([name]) => name)];
    if (this.result.label) header.push(this.result.label.name);
    header.push("selected", ...METHODS.flatMap((method) => {
      const name = method === "cpca" ? `cpca_alpha_${alpha}` : method;
      return [`${name}_1`, `${name}_2`];
    }));
    const lines = [header.map(quote).join(",")];
    const points = METHODS.map((method) => this.plots[method].scatter.target);
    for (let row = 0; row < this.count; row += 1) {
      const cells = [this.rows.positions[row], ...ids.map(([, texts]) => texts[row])];
      if (this.result.label) cells.push(this.#labelCell(row));
      cells.push(this.selected && this.selected[row] ? 1 : 0);
      for (const set of points) {
        for (const at of [2 * row, 2 * row + 1]) cells.push(Number(set[at].toPrecision(7)));
      }
      lines.push(cells.map(quote).join(","));
    }
    const address = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
    const link = element("a");
    link.href = address;
    link.download = "points.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
}
