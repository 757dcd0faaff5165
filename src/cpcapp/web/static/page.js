// What both pages use to write into themselves. All text goes in as text, never as HTML.

export const byId = (id) => document.getElementById(id);

export const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

export function element(tag, className = "", text = "") {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function fill(id, text) {
  byId(id).textContent = text || "";
}

export const listItems = (texts) => texts.map((text) => element("li", "", text));
