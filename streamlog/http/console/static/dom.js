// Elements from values. Names and payloads are strangers' text: they are only ever set as text.

export const byId = (id) => document.getElementById(id);

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((it) => it !== null && it !== undefined && it !== ""));
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Children of ``parent`` become those of ``items``, by key: what is there stays, with its focus.
export function keyed(parent, items, keyOf, make, update) {
  const known = new Map([...parent.children].map((it) => [it.dataset.key, it]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    known.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
    update?.(child, item);
  }
  for (const gone of known.values()) gone.remove();
}

const whole = new Intl.NumberFormat("en");
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return `${value < 10 ? tenths.format(value) : whole.format(Math.round(value))}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? tenths.format(value) : value} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

export const time = (ms) =>
  new Date(ms).toLocaleTimeString("en-GB", { hour12: false }) + "." + String(ms % 1000).padStart(3, "0");
