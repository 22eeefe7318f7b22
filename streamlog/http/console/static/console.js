// The status page: asks for one list at a time, and shows what comes as it comes.

import { byId, count, element, keyed, rate, setText } from "./dom.js";
import { LISTS, fillRow, makeRow } from "./lists.js";
import { startTail, stopTail } from "./tail.js";

const SIZE = 50;
const PAUSED = "Paused: what is shown is not kept up to date.";

const wanted = { show: "streams", filter: "", stream: "", only: "", page: 0 };
let told = {};
let source = null;
let paused = false;
let lostSince = null;

// The address says what is shown, so that it can be sent to somebody.

function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const show = path === "tail" || path in LISTS ? path : "streams";
  const page = Math.max(0, Number.parseInt(given.get("page") ?? "0", 10) || 0);
  Object.assign(wanted, {
    show, page,
    filter: given.get("filter") ?? "",
    stream: given.get("stream") ?? "",
    only: given.get("only") ?? "",
  });
  const isTail = show === "tail";
  byId("lists").hidden = isTail;
  byId("tail").hidden = !isTail;
  for (const link of byId("tabs").querySelectorAll("a")) {
    const here = link.getAttribute("href") === `#/${show}`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${isTail ? "Tail" : LISTS[show].title} · streamlog`;
  if (isTail) {
    byId("tail-stream").value = wanted.stream;
    byId("tail-partition").value = given.get("partition") ?? "0";
    if (wanted.stream) startTail(wanted.stream, byId("tail-partition").value);
  } else {
    stopTail();
    beginList();
  }
  listen();
}

function go(changes) {
  const next = { ...wanted, page: 0, ...changes };
  const query = new URLSearchParams();
  for (const name of ["filter", "stream", "only", "page"]) {
    if (next[name]) query.set(name, next[name]);
  }
  const text = query.toString();
  location.hash = `#/${next.show}${text ? "?" + text : ""}`;
}

function beginList() {
  const list = LISTS[wanted.show];
  setText(byId("list-title"), list.title);
  setText(byId("caption"), list.title);
  byId("head").replaceChildren(element("tr", { role: "row" }, ...list.columns.map(([name, , kind]) =>
    name ? element("th", { scope: "col", role: "columnheader", class: kind }, name)
      : element("th", { scope: "col", role: "columnheader" }, element("span", { class: "unseen" }, "More")))));
  byId("rows").replaceChildren();
  byId("none").hidden = true;
  setText(byId("range"), "");
  if (document.activeElement !== byId("filter")) byId("filter").value = wanted.filter;
  byId("only").value = wanted.only;
  byId("only-label").hidden = !["streams", "partitions"].includes(wanted.show);
  byId("only").querySelector("[value=led_here]").hidden = wanted.show !== "partitions";
  byId("stream-only").hidden = !wanted.stream;
  setText(byId("stream-only").querySelector("span"), `of ${wanted.stream}`);
}

// Live values

function listen() {
  source?.close();
  source = null;
  told = {};
  if (paused) return;
  const asked = { ...wanted, size: SIZE };
  if (asked.show === "tail") Object.assign(asked, { show: "events", filter: "", stream: "", only: "" });
  source = new EventSource(`/api/live?${new URLSearchParams(asked)}`);
  source.addEventListener("state", (event) => {
    found();
    Object.assign(told, JSON.parse(event.data));
    draw();
  });
  source.onerror = lost;
}

function lost() {
  lostSince ??= new Date();
  const lostBox = byId("lost");
  const since = lostSince.toLocaleTimeString("en-GB");
  setText(lostBox, `No word from this node since ${since}. What is shown is old; trying again.`);
  lostBox.hidden = false;
  if (source?.readyState === EventSource.CLOSED) setTimeout(() => paused || listen(), 3000);
}

function found() {
  lostSince = null;
  byId("lost").hidden = true;
}

function draw() {
  drawHealth();
  drawFigures();
  drawNodes();
  if (wanted.show !== "tail" && told.list === wanted.show) drawList();
}

// What stands between backquotes is something to type.
const withCode = (text) => text.split("`").map((part, place) =>
  (place % 2 ? element("code", {}, part) : part));

const AGAINST = { critical: ["bad", "Critical"], warning: ["warn", "Warning"], note: ["note", "Note"] };

function drawHealth() {
  const { findings, findings_total: total } = told;
  const bad = findings.filter((it) => it.severity !== "note").length;
  const verdict = bad === 0 ? "All is well: every node is alive, every replica in sync."
    : `${count(total)} ${total === 1 ? "thing is" : "things are"} wrong: ${findings[0].what}.`;
  setText(byId("verdict"), verdict);
  byId("verdict").className = `verdict ${bad ? AGAINST[findings[0].severity][0] : "good"}`;
  keyed(byId("findings"), findings, (it) => it.what + it.remedy, (it) => {
    const [kind, name] = AGAINST[it.severity];
    return element("li", { class: kind },
      element("p", { class: "what" }, element("span", { class: `badge ${kind}` }, name), " ", it.what),
      element("p", { class: "remedy" }, ...withCode(it.remedy)));
  });
}

function drawFigures() {
  const it = told.cluster;
  const controller = it.controller === null ? "nobody" : `node ${it.controller}`;
  const figures = [
    ["Records a second", rate(it.rate).replace("/s", "")],
    ["Streams", count(it.streams)],
    ["Partitions", count(it.partitions)],
    ["Without a leader", count(it.leaderless), it.leaderless && "bad"],
    ["Below min_isr", count(it.under_min_isr), it.under_min_isr && "bad"],
    ["Not in sync everywhere", count(it.under_replicated), it.under_replicated && "warn"],
    ["Groups", count(it.groups) + (it.groups_hidden ? ` (${count(it.groups_hidden)} not shown)` : "")],
    ["Controller", controller],
  ];
  keyed(byId("figures"), figures, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd", {})),
    (box, [, text, kind]) => {
      box.className = kind || "";
      setText(box.lastElementChild, text);
    });
  setText(byId("where"), `node ${it.node} of ${it.id}`);
  setText(byId("version"), `streamlog ${it.version}, metadata offset ${count(it.metadata_offset)}, quorum epoch ${count(it.epoch)}`);
}

function drawNodes() {
  keyed(byId("nodes"), told.nodes, (it) => String(it.node),
    () => element("li", {}, element("p", { class: "name" }), element("p", { class: "about" })),
    (box, it) => {
      const marks = [it.this && "this node", it.controller && "controller", !it.voter && "observer"];
      box.className = it.alive ? (it.states[0] === "alive" ? "good" : "warn") : "bad";
      const title = `Node ${it.node}: ${it.states.join(", ")}`;
      setText(box.firstElementChild, title);
      const about = [`${it.host}:${it.port}`, it.rack && `rack ${it.rack}`, ...marks,
        `leads ${count(it.leaders)} of ${count(it.replicas)} kept`];
      setText(box.lastElementChild, about.filter(Boolean).join(" · "));
    });
}

function drawList() {
  const list = LISTS[wanted.show];
  keyed(byId("rows"), told.rows, list.key, () => makeRow(list), (tr, row) => fillRow(list, tr, row));
  byId("none").hidden = told.rows.length > 0;
  const first = told.page * told.size;
  const range = told.rows.length
    ? `${count(first + 1)} to ${count(first + told.rows.length)} of ${count(told.total)}`
    : `none of ${count(told.total)}`;
  setText(byId("range"), range);
  byId("before").disabled = told.page === 0;
  byId("after").disabled = first + told.size >= told.total;
}

// What a person does

let typing = null;
byId("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ filter: byId("filter").value }), 250);
});
byId("only").addEventListener("change", () => go({ only: byId("only").value }));
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("any-stream").addEventListener("click", () => go({ stream: "" }));
byId("before").addEventListener("click", () => go({ page: Math.max(0, wanted.page - 1) }));
byId("after").addEventListener("click", () => go({ page: wanted.page + 1 }));
byId("pause").addEventListener("click", () => {
  paused = !paused;
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(paused));
  setText(button, paused ? "Go on" : "Pause");
  if (paused) {
    source?.close();
    setText(byId("verdict"), PAUSED);
  } else listen();
});
byId("tail-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = new URLSearchParams({
    stream: byId("tail-stream").value, partition: byId("tail-partition").value,
  });
  const hash = `#/tail?${query}`;
  if (location.hash === hash) startTail(byId("tail-stream").value, byId("tail-partition").value);
  else location.hash = hash;
});
byId("tail-stop").addEventListener("click", () => stopTail("Stopped."));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is ours
  byId("main").focus();
});
window.addEventListener("hashchange", readAddress);
window.addEventListener("pagehide", () => source?.close());

readAddress();
