// What is written beside a photo.

import { byId, element, fill, listItems } from "/static/page.js";
import { Viewer } from "/static/viewer.js";

const LAYERS = ["evidence", "region", "edges"];

export class ResultPanel {
  constructor(settings) {
    this.viewer = new Viewer(settings);
    for (const name of LAYERS) {
      byId(`layer-${name}`).addEventListener("change", (event) => {
        this.viewer.setLayer(name, event.target.checked);
      });
    }
    byId("opacity").addEventListener("input", () => this.#readSliders());
    byId("threshold").addEventListener("input", () => this.#readSliders());
    byId("swipe").addEventListener("input", () => this.#readSwipe());
    byId("stage").addEventListener("swipe", (event) => {
      byId("swipe").value = String(Math.round(100 * event.detail));
      this.#nameSwipe();
    });
  }

  show(job) {
    const { result } = job;
    this.result = result;
    fill("photo-name", job.name);
    fill("photo-size", `${result.width} × ${result.height} pixels`);
    this.#showVerdict(result);
    this.#showFacts(result);
    this.#showDownloads(job);
    const ready = this.viewer.show({
      width: result.width,
      height: result.height,
      boundaryWhite: result.boundary_white,
      display: result.display,
      previews: result.previews,
      pictures: result.pictures,
      views: result.views,
    });
    this.#setControls(result);
    this.#showTraces(result.views);
    return ready;
  }

  #showVerdict(result) {
    byId("verdict").dataset.code = result.verdict_code;
    fill("sentence", result.sentence.replaceAll(" = ", "\u00a0=\u00a0"));
    byId("warnings").replaceChildren(...listItems(result.facts.warnings));
    fill("meaning", result.meaning);
    byId("limits").replaceChildren(...listItems(result.limits));
    const p = result.p_value;
    byId("odds").hidden = p === null || result.verdict_code === "unknown";
    if (p === null) return;
    const count = Math.round(100 * p);
    const dots = [];
    for (let i = 0; i < 100; i += 1) {
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      dot.setAttribute("cx", String(5 + 10 * (i % 20)));
      dot.setAttribute("cy", String(5 + 10 * Math.floor(i / 20)));
      dot.setAttribute("r", "3.6");
      if (i < count) dot.setAttribute("class", "counts");
      dots.push(dot);
    }
    byId("dots").replaceChildren(...dots);
    const share = count >= 1 ? `About ${count} %` : "Fewer than 1 %";
    fill("odds-text", `Each dot is 1 % of the genuine photos, in the third of their collections where most scored as high. ${share} did: ${result.p_text}.`);
  }

  #showFacts(result) {
    byId("remarks").replaceChildren(...listItems(result.facts.remarks));
    byId("thumbnail").hidden = !result.thumbnail;
    if (result.thumbnail) byId("thumbnail-picture").src = result.thumbnail;
    byId("facts").replaceChildren(
      ...result.fact_rows.map(([label, text]) => {
        const row = element("tr");
        const head = element("th", "", label);
        head.scope = "row";
        row.append(head, element("td", "", text));
        return row;
      }),
    );
  }

  #showDownloads(job) {
    const { result } = job;
    const links = {
      "report-pdf": [result.report.pdf, "report.pdf"],
      "report-html": [result.report.html, "report.html"],
      "overlay-png": [result.pictures.overlay, "overlay.png"],
    };
    const stem = job.name.replace(/\.[^.]*$/, "") || "photo";
    for (const [id, [address, ending]] of Object.entries(links)) {
      const link = byId(id);
      link.hidden = !address;
      if (address) {
        link.href = address;
        link.download = `${stem}.${ending}`;
      }
    }
    const model = result.model || {};
    fill("model-note", `Model ${model.name} ${model.version}, ${Number(result.seconds.toPrecision(2))} s.`);
  }

  // At first the page shows what the verdict says; all of it can be turned up or down.
  #setControls(result) {
    const { display } = result;
    const has = { evidence: true, region: display.has_region, edges: "edges" in result.previews };
    for (const name of LAYERS) {
      const box = byId(`layer-${name}`);
      box.disabled = !has[name];
      box.checked = name === "evidence";
      this.viewer.setLayer(name, box.checked);
    }
    byId("opacity").value = String(Math.round(100 * display.opacity));
    byId("threshold").value = "0";
    byId("swipe").value = "0";
    this.#readSliders();
    this.#readSwipe();
    const hint = display.opacity < 1 ? " Turn up the strength to see more of it." : "";
    const note = ["signs", "weak"].includes(result.verdict_code) ? "" : `${display.text}${hint}`;
    fill("layer-note", note);
  }

  #readSliders() {
    const [opacity, threshold] = ["opacity", "threshold"].map((id) => Number(byId(id).value));
    fill("opacity-value", `${opacity} %`);
    fill("threshold-value", threshold ? `${threshold} %` : "all of it");
    byId("opacity").setAttribute("aria-valuetext", `${opacity} percent`);
    byId("threshold").setAttribute("aria-valuetext", threshold ? `${threshold} percent of the strongest` : "all of it");
    this.viewer.setOpacity(opacity / 100);
    this.viewer.setThreshold(threshold / 100);
  }

  #readSwipe() {
    this.viewer.setSwipe(Number(byId("swipe").value) / 100);
    this.#nameSwipe();
  }

  #nameSwipe() {
    const share = Number(byId("swipe").value);
    fill("swipe-value", share ? `${share} %` : "off");
    byId("swipe").setAttribute("aria-valuetext", share ? `${share} percent of the width show the plain photo` : "off");
  }

  #showTraces(views) {
    byId("traces").hidden = !views.length;
    fill("trace-text", "");
    let before = null; // whether the evidence was shown before a trace was chosen
    const choose = (view) => {
      this.viewer.setTrace(view && view.url ? view.name : null);
      const missing = view && !view.url;
      fill("trace-text", missing ? `Nothing to show. ${view.note}` : view && view.text);
      // A trace is looked at alone; what was shown before comes back with the photo.
      const box = byId("layer-evidence");
      if (view && before === null) before = box.checked;
      box.checked = view ? false : before;
      if (!view) before = null;
      this.viewer.setLayer("evidence", box.checked);
    };
    const chip = (title, view, checked) => {
      const label = element("label", "chip");
      const input = element("input");
      input.type = "radio";
      input.name = "trace";
      input.checked = checked;
      input.addEventListener("change", () => choose(view));
      label.append(input, element("span", view && !view.url ? "nothing" : "", title));
      return label;
    };
    byId("trace-choice").replaceChildren(
      chip("None", null, true),
      ...views.map((view) => chip(view.title, view, false)),
    );
  }
}
