// The photo with what was found in it: zoom, pan, swipe, and layers that are coloured here.
//
// Maps come as grey pictures. What is visible of a map is drawn once, at the size of the screen,
// and its grey levels are turned into colours through a table of 256 entries. So a slider costs
// the same for a photo of any size.

import { byId } from "/static/page.js";

const MAX_SCALE = 16; // screen pixels for one of the photo
const MAX_PIXELS = 2_500_000; // of the canvas, also on screens with many more

function loadImage(address) {
  return new Promise((resolve, reject) => {
    const image = new Image();
    image.decoding = "async";
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error(address));
    image.src = address;
  });
}

// A picture that comes in two sizes: one for the screen, and all of it once somebody looks closely.
class Picture {
  constructor(preview, full, onLoad) {
    this.addresses = preview === full ? [full] : [preview, full];
    this.images = [];
    this.asked = [];
    this.failed = [];
    this.onLoad = onLoad;
  }

  // The best that is there for a width on the screen, and whether a better one is on its way.
  best(width) {
    const wanted = this.images[0] && this.images[0].naturalWidth < 0.95 * width ? this.addresses.length - 1 : 0;
    this.load(wanted);
    return [this.images[wanted] || this.images[0] || null, !this.images[wanted] && !this.failed[wanted]];
  }

  load(which) {
    if (!this.asked[which]) {
      this.asked[which] = loadImage(this.addresses[which]).then(
        (image) => {
          this.images[which] = image;
          this.onLoad();
        },
        () => {
          this.failed[which] = true;
          this.onLoad();
        },
      );
    }
    return this.asked[which];
  }
}

export class Viewer {
  constructor(settings) {
    this.settings = settings;
    this.stage = byId("stage");
    this.plain = byId("plain").getContext("2d");
    this.under = byId("under").getContext("2d");
    this.top = byId("layers").getContext("2d");
    this.after = byId("after");
    this.divider = byId("divider");
    this.scratch = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    this.paint = document.createElement("canvas").getContext("2d");
    this.levels = new Map();
    this.shown = null;
    this.pointers = new Map();
    this.frame = 0;
    this.#listen();
    new ResizeObserver(() => this.#resize()).observe(this.stage);
  }

  // photo: {width, height, boundaryWhite, display, previews, pictures, views}
  show(photo) {
    const redraw = () => this.redraw(true);
    this.shown = photo;
    this.stage.setAttribute("aria-busy", "true");
    this.pictures = {};
    for (const name of Object.keys(photo.previews)) {
      this.pictures[name] = new Picture(photo.previews[name], photo.pictures[name], redraw);
    }
    for (const view of photo.views) {
      if (view.url) this.pictures[`view-${view.name}`] = new Picture(view.url, view.url, redraw);
    }
    this.layers = { evidence: true, region: false, edges: false };
    this.trace = null;
    this.opacity = 1;
    this.threshold = 0;
    this.stage.classList.toggle("tall", photo.height > photo.width);
    this.setSwipe(0);
    this.#resize();
    this.fit();
    return this.pictures.photo.load(0);
  }

  setLayer(name, on) { this.layers[name] = on; this.redraw(); }
  setTrace(name) { this.trace = name; this.redraw(true); }
  setOpacity(value) { this.opacity = value; this.redraw(); }
  setThreshold(value) { this.threshold = value; this.redraw(); }

  setSwipe(share) {
    this.swipe = Math.min(1, Math.max(0, share));
    const percent = `${100 * this.swipe}%`;
    this.after.style.clipPath = `inset(0 0 0 ${percent})`;
    this.divider.style.left = percent;
    this.stage.classList.toggle("compared", this.swipe > 0);
  }

  // --- where the photo is on the screen

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.stage;
    if (!width || !height || !this.shown) return;
    const most = Math.sqrt(MAX_PIXELS / (width * height));
    this.ratio = Math.min(window.devicePixelRatio || 1, 2, most);
    const wasFit = this.scale === undefined || this.isFit;
    this.size = [width, height];
    for (const context of [this.plain, this.under, this.top, this.scratch, this.paint]) {
      context.canvas.width = Math.round(width * this.ratio);
      context.canvas.height = Math.round(height * this.ratio);
    }
    if (wasFit) this.fit();
    else this.#place(this.scale, this.x, this.y);
  }

  get fitScale() {
    return Math.min(this.size[0] / this.shown.width, this.size[1] / this.shown.height, 4);
  }

  get isFit() { return this.scale <= this.fitScale * 1.001; }

  fit() {
    const scale = this.fitScale;
    this.#place(scale, 0, 0);
  }

  // x, y: where the corner of the photo is, in pixels of the stage.
  #place(scale, x, y) {
    this.scale = this.#bound(scale);
    [this.x, this.y] = [[x, 0, this.shown.width], [y, 1, this.shown.height]].map(([at, axis, length]) => {
      const room = this.size[axis] - length * this.scale;
      return room >= 0 ? room / 2 : Math.min(0, Math.max(room, at));
    });
    this.stage.classList.toggle("zoomed", !this.isFit);
    this.redraw(true);
  }

  // A photo that is smaller than the stage can be shown as large as it is, too.
  #bound(scale) {
    return Math.min(Math.max(scale, Math.min(this.fitScale, 1)), MAX_SCALE);
  }

  zoom(factor, x = this.size[0] / 2, y = this.size[1] / 2) {
    const scale = this.#bound(this.scale * factor);
    const change = scale / this.scale;
    this.#place(scale, x - (x - this.x) * change, y - (y - this.y) * change);
  }

  zoomTo(scale) { this.zoom(scale / this.scale); }
  pan(dx, dy) { this.#place(this.scale, this.x + dx, this.y + dy); }

  // --- drawing

  redraw(moved = false) {
    if (moved) this.levels.clear();
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        if (this.shown && this.size) this.#draw();
      });
    }
  }

  #rect() {
    return [this.x, this.y, this.shown.width * this.scale, this.shown.height * this.scale].map((v) => v * this.ratio);
  }

  #drawPicture(context, name) {
    const { width, height } = context.canvas;
    context.clearRect(0, 0, width, height);
    const rect = this.#rect();
    const [image, pending] = this.pictures[name]?.best(rect[2]) || [null, false];
    this.pending ||= pending;
    if (!image) return false;
    // Above twice its size the pixels themselves are what one wants to see.
    context.imageSmoothingEnabled = rect[2] < 2 * image.naturalWidth;
    context.imageSmoothingQuality = "high";
    context.drawImage(image, ...rect);
    return !pending;
  }

  #draw() {
    this.pending = false;
    this.#drawPicture(this.plain, "photo");
    this.#drawPicture(this.under, this.trace ? `view-${this.trace}` : "photo");
    const dim = this.layers.evidence && !this.trace ? this.opacity : 0;
    const grey = this.shown.display.colours ? 0.35 : 0;
    this.under.canvas.style.filter = dim ? `saturate(${1 - (1 - grey) * dim}) brightness(${1 - 0.3 * dim})` : "none";
    this.top.clearRect(0, 0, this.top.canvas.width, this.top.canvas.height);
    if (this.layers.edges) this.#drawLayer("edges", this.#flatTable([210, 235, 255], 0.9));
    if (this.layers.region) this.#drawLayer("region", this.#flatTable(this.settings.part, 0.5));
    if (this.layers.evidence) this.#drawLayer("boundary", this.#evidenceTable());
    this.stage.setAttribute("aria-busy", String(this.pending));
  }

  // What is visible of a map, as grey levels; kept until the view changes.
  #levelsOf(name) {
    if (!this.levels.has(name)) {
      const complete = this.#drawPicture(this.scratch, name);
      const { width, height } = this.scratch.canvas;
      const { data } = this.scratch.getImageData(0, 0, width, height);
      const levels = new Uint8Array(width * height);
      // Outside the photo the canvas is transparent, and black.
      for (let i = 0, j = 0; i < levels.length; i += 1, j += 4) levels[i] = data[j];
      if (!complete) return levels;
      this.levels.set(name, levels);
    }
    return this.levels.get(name);
  }

  #drawLayer(name, table) {
    const levels = this.#levelsOf(name);
    const { width, height } = this.paint.canvas;
    const image = this.paint.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    for (let i = 0; i < pixels.length; i += 1) pixels[i] = table[levels[i]];
    this.paint.putImageData(image, 0, 0);
    this.top.drawImage(this.paint.canvas, 0, 0);
  }

  // The colours of draw_overlay: lighter where the evidence is stronger, and covering more.
  #evidenceTable() {
    const { ramp } = this.settings;
    const { display, boundaryWhite } = this.shown;
    return this.#table((level) => {
      const value = (level / 255) * boundaryWhite;
      const share = Math.min(1, value / display.white);
      if (level === 0 || share < this.threshold) return null;
      const colour = display.colours ? ramp[Math.round(255 * share)] : [255, 255, 255];
      return [...colour, 255 * this.opacity * share ** 0.7];
    });
  }

  #flatTable(colour, opacity) {
    return this.#table((level) => [...colour, level * opacity]);
  }

  #table(colourOf) {
    const bytes = new Uint8ClampedArray(1024);
    for (let level = 0; level < 256; level += 1) {
      const colour = colourOf(level);
      if (colour) bytes.set(colour, 4 * level);
    }
    return new Uint32Array(bytes.buffer);
  }

  // --- hands

  #listen() {
    const { stage } = this;
    stage.addEventListener("wheel", (event) => {
      if (!this.shown || event.target.closest(".zoom")) return;
      // The whole photo is shown: now the wheel scrolls the page.
      if (event.deltaY > 0 && this.isFit) return;
      event.preventDefault();
      const { left, top } = stage.getBoundingClientRect();
      const step = event.deltaY * (event.deltaMode === 1 ? 20 : 1) * (event.ctrlKey ? 4 : 1);
      this.zoom(Math.exp(-step / 300), event.clientX - left, event.clientY - top);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => this.#press(event));
    stage.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) {
      stage.addEventListener(name, (event) => this.#release(event));
    }
    stage.addEventListener("dblclick", (event) => {
      if (event.target.closest(".zoom")) return;
      const { left, top } = stage.getBoundingClientRect();
      if (this.isFit) this.zoom(Math.max(1, 2 * this.fitScale) / this.scale, event.clientX - left, event.clientY - top);
      else this.fit();
    });
    stage.addEventListener("keydown", (event) => this.#key(event));
    byId("zoom-in").addEventListener("click", () => this.zoom(1.5));
    byId("zoom-out").addEventListener("click", () => this.zoom(1 / 1.5));
    byId("zoom-fit").addEventListener("click", () => this.fit());
    byId("zoom-full").addEventListener("click", () => this.zoomTo(1));
  }

  #press(event) {
    if (!this.shown || event.target.closest(".zoom") || event.button > 0) return;
    this.swiping = Boolean(event.target.closest(".divider"));
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    this.stage.setPointerCapture(event.pointerId);
    this.stage.classList.add("dragging");
  }

  #move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY];
    const { left, top, width } = this.stage.getBoundingClientRect();
    if (this.swiping) {
      this.setSwipe((now[0] - left) / width);
      this.stage.dispatchEvent(new CustomEvent("swipe", { detail: this.swipe }));
    } else if (this.pointers.size === 2) {
      const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
      const middle = [(now[0] + other[0]) / 2 - left, (now[1] + other[1]) / 2 - top];
      this.zoom(distance(now, other) / Math.max(1, distance(before, other)), ...middle);
      this.pan((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
    } else {
      this.pan(now[0] - before[0], now[1] - before[1]);
    }
    this.pointers.set(event.pointerId, now);
  }

  #release(event) {
    this.pointers.delete(event.pointerId);
    if (!this.pointers.size) {
      this.swiping = false;
      this.stage.classList.remove("dragging");
    }
  }

  #key(event) {
    if (!this.shown || event.target !== this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60;
    const actions = {
      ArrowLeft: () => this.pan(step, 0),
      ArrowRight: () => this.pan(-step, 0),
      ArrowUp: () => this.pan(0, step),
      ArrowDown: () => this.pan(0, -step),
      "+": () => this.zoom(1.5),
      "=": () => this.zoom(1.5),
      "-": () => this.zoom(1 / 1.5),
      0: () => this.fit(),
      1: () => this.zoomTo(1),
    };
    const action = actions[event.key];
    // At the whole photo there is nothing to move: then arrows scroll the page.
    if (!action || (event.key.startsWith("Arrow") && this.isFit)) return;
    event.preventDefault();
    action();
  }
}
