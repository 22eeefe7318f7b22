// The lists: which columns each has, and what a cell says.

import { bytes, count, element, rate, time } from "./dom.js";

const WANTS = {
  leaderless: ["bad", "no leader"],
  under_min_isr: ["bad", "below min_isr"],
  under_replicated: ["warn", "not in sync"],
  moving: ["note", "moving"],
};

const badge = (kind, text) => element("span", { class: `badge ${kind}` }, text);
const link = (hash, text) => element("a", { href: hash }, text);
const of = (list, value) => `#/${list}?` + new URLSearchParams(value);

function wanted(row) {
  const found = Object.entries(WANTS)
    .filter(([name]) => row[name])
    .map(([name, [kind, text]]) => badge(kind, `${count(row[name])} ${text}`));
  return found.length ? found : [badge("good", "well")];
}

function wants(row) {
  const found = row.wants.map((name) => badge(...(WANTS[name] ?? ["note", name])));
  return found.length ? found : [badge("good", "in sync")];
}

function furthest(row) {
  const found = row.furthest.filter((it) => it.lag > 0).slice(0, 3);
  return found.map((it) => `${it.stream}/${it.partition}: ${count(it.lag)}`).join(", ") || "–";
}

// name, what it says, numbers stand to the right
export const LISTS = {
  streams: {
    title: "Streams",
    key: (row) => row.name,
    columns: [
      ["Stream", (row) => link(of("partitions", { stream: row.name }), row.name)],
      ["State", wanted],
      ["Subjects", (row) => (row.internal ? "internal" : row.subjects.join(", "))],
      ["Partitions", (row) => count(row.partitions), "number"],
      ["Replicas", (row) => count(row.replicas), "number"],
      ["Records here", (row) => count(row.records), "number"],
      ["Size here", (row) => bytes(row.size_bytes), "number"],
      ["Rate", (row) => rate(row.rate), "number"],
      ["", (row) => link(of("tail", { stream: row.name, partition: 0 }), "tail")],
    ],
  },
  partitions: {
    title: "Partitions",
    key: (row) => `${row.stream}/${row.partition}`,
    columns: [
      ["Partition", (row) => `${row.stream}/${row.partition}`],
      ["State", wants],
      ["Leader", (row) => (row.leader === null ? "none" : String(row.leader)), "number"],
      ["Epoch", (row) => count(row.epoch), "number"],
      ["In sync", (row) => row.isr.join(", ") || "none"],
      ["Replicas", (row) => row.replicas.join(", ")],
      ["High watermark", (row) => count(row.high_watermark), "number"],
      ["Lag", (row) => count(row.lag), "number"],
      ["Rate", (row) => rate(row.rate), "number"],
      ["Size here", (row) => bytes(row.size_bytes), "number"],
      ["", (row) => link(of("tail", { stream: row.stream, partition: row.partition }), "tail")],
    ],
  },
  groups: {
    title: "Consumer groups",
    key: (row) => row.group,
    columns: [
      ["Group", (row) => row.group],
      ["State", (row) => badge(row.lag > 0 && row.members === 0 ? "warn" : "note", row.state)],
      ["Members", (row) => count(row.members), "number"],
      ["Lag", (row) => count(row.lag) + (row.lag_unknown ? " or more" : ""), "number"],
      ["Furthest behind", furthest],
      ["Partitions", (row) => count(row.partitions), "number"],
      ["Coordinator", (row) => String(row.coordinator), "number"],
    ],
  },
  events: {
    title: "Recent events",
    key: (row) => String(row.number),
    columns: [
      ["Time", (row) => time(row.time_ms)],
      ["About", (row) => badge("note", row.kind)],
      ["What happened", (row) => row.text],
    ],
  },
};

const asText = (said) => (Array.isArray(said) ? said : [said]);

export function makeRow(list) {
  // The roles are said, for a narrow screen lays cells out as blocks, which would take them away.
  return element("tr", { role: "row" }, ...list.columns.map(([name, , kind], place) =>
    element(place ? "td" : "th", {
      class: kind, scope: place ? undefined : "row", role: place ? "cell" : "rowheader", "data-name": name,
    })));
}

// Only cells that say something else are touched: a link keeps its focus.
export function fillRow(list, tr, row) {
  list.columns.forEach(([, say], place) => {
    const cell = tr.children[place];
    const parts = asText(say(row));
    const said = JSON.stringify(parts.map((it) => it.textContent ?? it));
    if (cell.dataset.said === said) return;
    const moved = cell.dataset.said !== undefined;
    cell.dataset.said = said;
    cell.replaceChildren(...parts.flatMap((it, index) => (index ? [" ", it] : [it])));
    if (moved) {
      cell.classList.remove("moved");
      void cell.offsetWidth; // begins the fading anew
      cell.classList.add("moved");
    }
  });
}
