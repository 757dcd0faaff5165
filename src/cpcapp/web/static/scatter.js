// A scatter plot of many thousand points, drawn pixel by pixel: no library and no graphics card.

// The pixels of a disc: where they are from its centre, and how much of each it covers.
function makeDisc(radius, width, opacity) {
  const reach = Math.ceil(radius);
  const offsets = [];
  const shares = [];
  for (let y = -reach; y <= reach; y += 1) {
    for (let x = -reach; x <= reach; x += 1) {
      const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(x, y)));
      const share = Math.round(256 * cover * opacity);
      if (share > 0) {
        offsets.push(y * width + x);
        shares.push(share);
      }
    }
  }
  return { reach, offsets: Int32Array.from(offsets), shares: Int32Array.from(shares) };
}

const pack = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;

// Blends a disc at each point into an image of packed pixels. This is where the time goes, so it is
// one flat loop over signed integers: red and blue are mixed in one multiplication, green in another.
function splat(image, points, view, disc, order, colours, flags, wanted) {
  const { pixels, width, height } = image;
  const { scaleX, scaleY, shiftX, shiftY } = view;
  const { reach, offsets, shares } = disc;
  const size = offsets.length;
  for (let k = 0; k < order.length; k += 1) {
    const i = order[k];
    if (flags !== null && flags[i] !== wanted) continue;
    const x = (points[2 * i] * scaleX + shiftX + 0.5) | 0;
    const y = (points[2 * i + 1] * scaleY + shiftY + 0.5) | 0;
    if (!(x >= reach && y >= reach && x < width - reach && y < height - reach)) continue;
    const centre = y * width + x;
    const colour = colours[i];
    const redBlue = colour & 0xff00ff;
    const green = (colour >>> 8) & 0xff;
    for (let j = 0; j < size; j += 1) {
      const at = centre + offsets[j];
      const share = shares[j];
      const rest = 256 - share;
      const below = pixels[at];
      const mixed = (Math.imul(redBlue, share) + Math.imul(below & 0xff00ff, rest)) >>> 8;
      const mixedGreen = Math.imul(green, share) + Math.imul((below >>> 8) & 0xff, rest);
      pixels[at] = 0xff000000 | (mixed & 0xff00ff) | (mixedGreen & 0xff00);
    }
  }
}

// Few points are large, many are small.
function chooseRadius(count, ratio) {
  const radius = count > 20000 ? 1.1 : count > 5000 ? 1.8 : count > 1000 ? 2.4 : 3.2;
  return radius * ratio;
}

function chooseTicks(low, high, most) {
  const span = high - low;
  if (!(span > 0)) return [];
  const raw = span / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
  return ticks;
}

// Short, as the room beside an axis is small: 5e5, not 5.0e+5.
function formatTick(value) {
  return formatNumber(value).replace(/\.0(?=e)/, "").replace("e+", "e");
}

export { pack };

export function formatNumber(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const long = size !== 0 && (size < 0.001 || size >= 100000);
  return (long ? value.toExponential(1) : String(Number(value.toPrecision(3)))).replace(/-/g, "−");
}

// The order of drawing: mixed, so that no class hides another; the same each time.
function mixedOrder(count) {
  const order = Uint32Array.from({ length: count }, (_, i) => i);
  let state = 12345;
  for (let i = count - 1; i > 0; i -= 1) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = state % (i + 1);
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// The same memory for each frame of a movement.
function sized(array, like) {
  return array && array.length === like.length ? array : new Float32Array(like.length);
}

function findRange(sets) {
  const range = [Infinity, -Infinity, Infinity, -Infinity];
  for (const points of sets) {
    for (let i = 0; i < points.length; i += 2) {
      const x = points[i];
      const y = points[i + 1];
      if (x < range[0]) range[0] = x;
      if (x > range[1]) range[1] = x;
      if (y < range[2]) range[2] = y;
      if (y > range[3]) range[3] = y;
    }
  }
  for (const at of [0, 2]) {
    if (!Number.isFinite(range[at])) range[at] = range[at + 1] = 0;
    const pad = 0.05 * (range[at + 1] - range[at]) || 1;
    range[at] -= pad;
    range[at + 1] += pad;
  }
  return range;
}

const TITLE = 14; // pixels for the name of an axis
const MARGIN = { left: 34 + TITLE, right: 8, top: 8, bottom: 22 + TITLE };
const AXES = ["component 1", "component 2"];
const FONT_SIZE = 10.5; // pixels
const NEAR = 12; // pixels from which a point is hovered
const MOVE_SECONDS = 0.22;

// The events of a plot: "hover" (row or -1), "brush" (rows inside a box, and whether to add),
// "pick" (a row chosen by keyboard or a tap), "clear".
export class Scatter extends EventTarget {
  constructor(root) {
    super();
    this.root = root;
    this.canvas = root.querySelector(".points");
    this.marks = root.querySelector(".marks");
    this.context = this.canvas.getContext("2d");
    this.markContext = this.marks.getContext("2d");
    this.target = new Float32Array(0);
    this.from = null;
    this.background = null;
    this.backgroundFrom = null;
    this.showBackground = false;
    this.colours = new Int32Array(0); // of each row, packed
    this.selected = null; // Uint8Array, or null for no selection
    this.hovered = -1;
    this.share = 1;
    this.range = [0, 1, 0, 1];
    this.box = null;
    this.theme = { line: "#ccc", text: "#555", ink: [0, 0, 0], ground: [150, 160, 170], back: [244, 246, 248] };
    this.frame = 0;
    this.lastMilliseconds = 0;
    new ResizeObserver(() => this.resize()).observe(root);
    this.#listen();
  }

  // --- what is shown

  // Shows other points; those that were there move to their new places.
  setPoints(target, background, { animate = true } = {}) {
    const moves = animate && target.length === this.target.length && target.length > 0
      && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (target.length !== this.target.length) this.order = mixedOrder(target.length / 2);
    const now = moves ? this.#between() : null;
    // Copies: the next frame is written over the last one.
    this.from = now && now.target.slice();
    this.backgroundFrom = now && now.background && now.background.slice();
    this.fromRange = moves ? this.#rangeNow() : null;
    this.target = target;
    this.background = background;
    this.#fit();
    this.share = moves ? 0 : 1;
    this.started = performance.now();
    this.draw();
  }

  setColours(colours) {
    this.colours = colours;
    this.draw();
  }

  setSelected(selected) {
    this.selected = selected;
    this.draw();
  }

  setShowBackground(shown) {
    this.showBackground = shown;
    this.#fit();
    this.draw();
  }

  setTheme(theme) {
    this.theme = theme;
    this.draw();
  }

  setHovered(row) {
    if (row === this.hovered) return;
    this.hovered = row;
    this.#drawMarks();
  }

  #fit() {
    const sets = this.showBackground && this.background ? [this.target, this.background] : [this.target];
    this.range = findRange(sets);
  }

  #rangeNow() {
    if (!this.fromRange || this.share >= 1) return this.range;
    return this.range.map((value, i) => this.fromRange[i] + this.share * (value - this.fromRange[i]));
  }

  // The places of all points at this moment of a movement.
  #between() {
    const mix = (from, to) => {
      if (!from || !to || from.length !== to.length || this.share >= 1) return to;
      const mixed = from === this.from ? (this.mixed = sized(this.mixed, to)) : (this.mixedGround = sized(this.mixedGround, to));
      for (let i = 0; i < to.length; i += 1) mixed[i] = from[i] + this.share * (to[i] - from[i]);
      return mixed;
    };
    return { target: mix(this.from, this.target), background: mix(this.backgroundFrom, this.background) };
  }

  // --- drawing

  resize() {
    const box = this.root.getBoundingClientRect();
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.max(1, Math.round(this.root.clientWidth * this.ratio));
    const height = Math.max(1, Math.round(this.root.clientHeight * this.ratio));
    if (!box.width || (this.canvas.width === width && this.canvas.height === height)) return;
    for (const canvas of [this.canvas, this.marks]) {
      canvas.width = width;
      canvas.height = height;
    }
    const data = this.context.createImageData(width, height);
    this.image = { data, width, height, pixels: new Int32Array(data.data.buffer) };
    this.drawNow();
  }

  draw() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.drawNow());
  }

  drawNow() {
    if (this.frame) cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.image) return;
    const begin = performance.now();
    if (this.share < 1) {
      const passed = (begin - this.started) / 1000 / MOVE_SECONDS;
      const eased = Math.min(1, Math.max(0, passed));
      this.share = eased < 1 ? eased * eased * (3 - 2 * eased) : 1;
    }
    const places = this.#between();
    this.places = places.target;
    this.#project();
    this.image.pixels.fill(pack(this.theme.back));
    if (this.showBackground && places.background) this.#splatGround(places.background);
    this.#splatTarget(places.target);
    this.context.putImageData(this.image.data, 0, 0);
    this.#drawMarks();
    this.lastMilliseconds = performance.now() - begin;
    if (this.share < 1) this.draw();
  }

  #project() {
    const [left, right, low, high] = this.#rangeNow();
    const { width, height } = this.canvas;
    const r = this.ratio;
    this.left = this.#leftMargin();
    this.scaleX = (width - (this.left + MARGIN.right) * r) / (right - left);
    this.scaleY = -(height - (MARGIN.top + MARGIN.bottom) * r) / (high - low);
    this.shiftX = this.left * r - left * this.scaleX;
    this.shiftY = MARGIN.top * r - high * this.scaleY;
  }

  // Room for the numbers at the second axis; of the last range, so that a movement has one margin.
  #leftMargin() {
    this.markContext.font = `${FONT_SIZE}px system-ui, sans-serif`;
    const widths = chooseTicks(this.range[2], this.range[3], 5).map(
      (tick) => this.markContext.measureText(formatTick(tick)).width,
    );
    return Math.ceil(Math.max(MARGIN.left, ...widths.map((width) => width + 9 + TITLE)));
  }

  #splatGround(points) {
    const count = points.length / 2;
    if (!this.groundOrder || this.groundOrder.length !== count) {
      this.groundOrder = Uint32Array.from({ length: count }, (_, i) => i);
      this.groundColours = new Int32Array(count);
    }
    this.groundColours.fill(pack(this.theme.ground));
    const disc = makeDisc(0.85 * chooseRadius(count, this.ratio), this.image.width, 0.45);
    splat(this.image, points, this, disc, this.groundOrder, this.groundColours, null, 0);
  }

  #splatTarget(points) {
    const { image, order, selected, colours } = this;
    const count = points.length / 2;
    const radius = chooseRadius(count, this.ratio);
    if (!selected) {
      const disc = makeDisc(radius, image.width, count > 20000 ? 0.68 : count > 2000 ? 0.78 : 0.88);
      splat(image, points, this, disc, order, colours, null, 0);
      return;
    }
    // Rows that are not selected are pale, but still there.
    splat(image, points, this, makeDisc(radius, image.width, 0.2), order, colours, selected, 0);
    splat(image, points, this, makeDisc(1.2 * radius, image.width, 0.96), order, colours, selected, 1);
  }

  #drawMarks() {
    if (!this.image || this.scaleX === undefined) return;
    const { markContext: context, ratio: r } = this;
    const { width, height } = this.marks;
    context.clearRect(0, 0, width, height);
    context.lineWidth = r;
    context.font = `${FONT_SIZE * r}px system-ui, sans-serif`;
    context.fillStyle = this.theme.text;
    const [left, right, low, high] = this.#rangeNow();
    const bottom = height - MARGIN.bottom * r;
    context.strokeStyle = this.theme.line;
    context.globalAlpha = 0.55;
    context.beginPath();
    if (left < 0 && right > 0) this.#line(context, this.shiftX, MARGIN.top * r, this.shiftX, bottom);
    if (low < 0 && high > 0) this.#line(context, this.left * r, this.shiftY, width - MARGIN.right * r, this.shiftY);
    context.stroke();
    context.globalAlpha = 1;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const tick of chooseTicks(left, right, 5)) {
      context.fillText(formatTick(tick), tick * this.scaleX + this.shiftX, bottom + 5 * r);
    }
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of chooseTicks(low, high, 5)) {
      context.fillText(formatTick(tick), (this.left - 5) * r, tick * this.scaleY + this.shiftY);
    }
    this.#nameAxes(context, bottom);
    if (this.hovered >= 0 && this.places && 2 * this.hovered < this.places.length) {
      const [x, y] = this.place(this.hovered);
      context.lineWidth = 2 * r;
      context.strokeStyle = this.theme.text;
      context.beginPath();
      context.arc(x * r, y * r, 6.5 * r, 0, 2 * Math.PI);
      context.stroke();
    }
    if (this.box) {
      const { x0, y0, x1, y1 } = this.box;
      const sides = [Math.min(x0, x1) * r, Math.min(y0, y1) * r, Math.abs(x1 - x0) * r, Math.abs(y1 - y0) * r];
      context.fillStyle = this.theme.accent;
      context.globalAlpha = 0.12;
      context.fillRect(...sides);
      context.globalAlpha = 1;
      context.strokeStyle = this.theme.accent;
      context.lineWidth = 1.5 * r;
      context.strokeRect(...sides);
    }
  }

  #nameAxes(context, bottom) {
    const { ratio: r } = this;
    const { width, height } = this.marks;
    context.textAlign = "center";
    context.textBaseline = "bottom";
    context.fillText(AXES[0], (this.left * r + width - MARGIN.right * r) / 2, height - 3 * r);
    context.save();
    context.translate(3 * r, (MARGIN.top * r + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.textBaseline = "top";
    context.fillText(AXES[1], 0, 0);
    context.restore();
  }

  #line(context, x0, y0, x1, y1) {
    context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
    context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
  }

  // Where a row is, in pixels of the page from the corner of the plot.
  place(row) {
    const points = this.places;
    return [
      (points[2 * row] * this.scaleX + this.shiftX) / this.ratio,
      (points[2 * row + 1] * this.scaleY + this.shiftY) / this.ratio,
    ];
  }

  // --- mouse, touch and keyboard

  #listen() {
    const { root } = this;
    root.addEventListener("pointerdown", (event) => this.#down(event));
    root.addEventListener("pointermove", (event) => this.#move(event));
    root.addEventListener("pointerup", (event) => this.#up(event));
    root.addEventListener("pointercancel", () => this.#cancel());
    root.addEventListener("pointerleave", () => {
      if (!this.box) this.#tell("hover", { row: -1 });
    });
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("blur", () => this.#tell("hover", { row: -1 }));
  }

  #tell(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #down(event) {
    if (event.button !== 0) return;
    const [x, y] = this.#at(event);
    this.start = { x, y, adds: event.shiftKey || event.ctrlKey || event.metaKey };
    this.root.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const [x, y] = this.#at(event);
    if (!this.start) {
      this.#tell("hover", { row: this.nearest(x, y) });
      return;
    }
    // A hand is never quite still.
    if (!this.box && Math.hypot(x - this.start.x, y - this.start.y) < 5) return;
    this.box = { x0: this.start.x, y0: this.start.y, x1: x, y1: y };
    this.#tell("hover", { row: -1 });
    this.#tell("brush", { rows: this.inside(this.box), adds: this.start.adds, ended: false });
    this.#drawMarks();
  }

  #up(event) {
    const { start, box } = this;
    this.start = null;
    this.box = null;
    if (!start) return;
    if (box) {
      this.#tell("brush", { rows: this.inside(box), adds: start.adds, ended: true });
    } else {
      const row = this.nearest(...this.#at(event));
      if (row < 0) this.#tell("clear");
      else if (event.pointerType === "touch") this.#tell("hover", { row });
      else this.#tell("pick", { row, adds: start.adds });
    }
    this.#drawMarks();
  }

  #cancel() {
    this.start = null;
    if (this.box) this.#tell("clear");
    this.box = null;
    this.#drawMarks();
  }

  #key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.#tell("hover", { row: this.#neighbour(steps[event.key]), spoken: true });
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (this.hovered >= 0) this.#tell("pick", { row: this.hovered, adds: true });
    } else if (event.key === "Escape") {
      this.#tell("clear");
    }
  }

  // The next row along the first component.
  #neighbour(step) {
    const { target } = this;
    const count = target.length / 2;
    if (this.sortedOf !== target) {
      this.sorted = Uint32Array.from({ length: count }, (_, i) => i).sort((a, b) => target[2 * a] - target[2 * b]);
      this.sortedOf = target;
    }
    const now = this.hovered < 0 ? (step > 0 ? -1 : count) : this.sorted.indexOf(this.hovered);
    return this.sorted[Math.min(count - 1, Math.max(0, now + step))];
  }

  nearest(x, y) {
    const points = this.places;
    if (!points) return -1;
    const px = x * this.ratio - this.shiftX;
    const py = y * this.ratio - this.shiftY;
    let best = (NEAR * this.ratio) ** 2;
    let found = -1;
    for (let i = 0; i < points.length; i += 2) {
      const dx = points[i] * this.scaleX - px;
      const dy = points[i + 1] * this.scaleY - py;
      const distance = dx * dx + dy * dy;
      if (distance < best) {
        best = distance;
        found = i / 2;
      }
    }
    return found;
  }

  // A flag for each row: whether it is inside a box.
  inside(box) {
    const points = this.places;
    const r = this.ratio;
    const left = (Math.min(box.x0, box.x1) * r - this.shiftX) / this.scaleX;
    const right = (Math.max(box.x0, box.x1) * r - this.shiftX) / this.scaleX;
    // The second axis points upwards.
    const high = (Math.min(box.y0, box.y1) * r - this.shiftY) / this.scaleY;
    const low = (Math.max(box.y0, box.y1) * r - this.shiftY) / this.scaleY;
    const rows = new Uint8Array(points.length / 2);
    for (let i = 0; i < rows.length; i += 1) {
      const x = points[2 * i];
      const y = points[2 * i + 1];
      rows[i] = x >= left && x <= right && y >= low && y <= high ? 1 : 0;
    }
    return rows;
  }
}
