// The console. One query at a time is watched, and what changes is shown as it comes. The address says
// all of what is shown, so that it can be sent to others. Names and payloads are strangers' text:
// they are only ever set as text.

// Elements

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  const { namespaceURI } = byId("drawing");
  return filled(document.createElementNS(namespaceURI, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((it) => it !== null && it !== undefined && it !== "" && it !== false));
  return made;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Children of ``parent`` become those of ``items``, by key: what is there stays, with its focus.
function keyed(parent, items, keyOf, make, update) {
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

const badge = (kind, text) => element("span", { class: `badge ${kind}` }, text);
const link = (href, text) => element("a", { href }, text);

function terms(list, pairs) {
  keyed(list, pairs, ([name]) => name,
    ([name]) => element("div", {}, element("dt", {}, name), element("dd")),
    (box, [, text, kind]) => {
      setAttribute(box, "class", kind || null);
      setText(box.lastElementChild, text);
    });
}

// Values

const whole = new Intl.NumberFormat("en");
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const isKnown = (value) => value !== null && value !== undefined;
const count = (value) => (isKnown(value) ? whole.format(value) : "–");
const decimal = (value) => (value < 10 ? tenths.format(value) : whole.format(Math.round(value)));
const rate = (value) => (isKnown(value) ? `${decimal(value)}/s` : "–");

function bytes(value) {
  if (!isKnown(value)) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? tenths.format(value) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB", "PiB"][unit]}`;
}

const time = (ms) =>
  new Date(ms).toLocaleTimeString("en-GB", { hour12: false }) + "." + String(ms % 1000).padStart(3, "0");
const dateTime = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");

// The address

const VIEWS = ["overview", "streams", "messages", "groups", "transactions", "partitions", "events", "stream", "manage"];
let here = { view: "overview" };

const addressOf = (values) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && isKnown(value) && value !== 0) query.set(name, value);
  }
  return `/?${query}`;
};
const streamAddress = (stream) => addressOf({ view: "stream", stream });
const messagesAddress = (stream, partition) => addressOf({ view: "messages", stream, partition });

function readAddress() {
  const given = Object.fromEntries(new URLSearchParams(location.search));
  here = { ...given, view: VIEWS.includes(given.view) ? given.view : "overview" };
  here.page = Math.max(0, Number.parseInt(given.page ?? "0", 10) || 0);
}

function go(changes, { replace = false } = {}) {
  visit(addressOf({ ...here, page: 0, ...changes }), { replace });
}

function visit(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show({ focus: !replace });
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("a[href^='/?'], a[href='/']");
  const plain = event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!target || !plain) return;
  event.preventDefault();
  visit(target.getAttribute("href"));
});
window.addEventListener("popstate", () => show({ focus: true }));

function show({ focus = false } = {}) {
  readAddress();
  const { view } = here;
  const isList = view in LISTS || view === "stream";
  byId("overview").hidden = view !== "overview";
  byId("lists").hidden = !isList;
  byId("messages").hidden = view !== "messages";
  byId("manage").hidden = view !== "manage";
  byId("stream").hidden = view !== "stream";
  const tab = view === "stream" ? "streams" : view;
  for (const it of byId("tabs").querySelectorAll("a")) {
    setAttribute(it, "aria-current", it.getAttribute("href") === `/?view=${tab}` ? "page" : null);
  }
  if (isList) beginList();
  if (view === "messages") beginMessages();
  else stopFollowing();
  if (view === "manage") void beginManaging();
  const title = byId(`${isList ? "list" : view}-title`);
  document.title = `${title.textContent} · streamlog`;
  if (focus) title.focus({ preventScroll: true });
  listen();
}

// What is watched

let told = {};
let rows = new Map();
let source = null;
let paused = false;
let lostSince = null;
let traffic = [];
let samples = []; // of what is charted on this view
const SAMPLES_MAX = 300;
const PAUSED = "Paused: what is shown is not kept up to date.";

function watched() {
  const { view } = here;
  if (view === "stream") return { show: "partitions", stream: here.stream ?? "", only: here.only ?? "", page: here.page };
  if (!(view in LISTS)) return { show: "summary" };
  const asked = { show: view, page: here.page };
  for (const name of ["filter", "only", "stream", "sort", "order"]) {
    if (here[name]) asked[name] = here[name];
  }
  return asked;
}

function listen() {
  source?.close();
  source = null;
  told = { cluster: told.cluster };
  rows = new Map();
  samples = [];
  if (paused) return;
  source = new EventSource(`/api/live?${new URLSearchParams(watched())}`);
  source.addEventListener("state", (event) => {
    const change = JSON.parse(event.data);
    byId("lost").hidden = true;
    lostSince = null;
    take(change);
    draw();
    document.body.dataset.ready = "";
  });
  source.onerror = lost;
}

function take(change) {
  for (const [key, row] of Object.entries(change.rows ?? {})) rows.set(key, row);
  if (change.keys) {
    const wanted = new Set(change.keys);
    for (const key of rows.keys()) if (!wanted.has(key)) rows.delete(key);
  }
  if (change.history) traffic = change.history;
  else if (change.traffic) traffic = [...traffic, change.traffic].slice(-SAMPLES_MAX);
  Object.assign(told, change);
}

function lost() {
  lostSince ??= new Date();
  const since = lostSince.toLocaleTimeString("en-GB");
  setText(byId("lost"), `No word from this node since ${since}. What is shown is old; trying again.`);
  byId("lost").hidden = false;
  if (source?.readyState === EventSource.CLOSED) setTimeout(() => paused || listen(), 3000);
}

function draw() {
  drawHealth();
  const it = told.cluster;
  setText(byId("where"), `node ${it.node} of ${it.id}`);
  setText(byId("version"), `streamlog ${it.version}, metadata offset ${count(it.metadata_offset)}, quorum epoch ${count(it.epoch)}`);
  if (here.view === "overview") drawOverview();
  if (here.view === "stream") drawStream();
  if (here.view === "manage" && operations && offered !== offersNow()) void beginManaging();
  drawListActs();
  drawMessageActs();
  if (told.list === watched().show && !byId("lists").hidden) drawList();
}

// Health and overview

// What stands between backquotes is something to type.
const withCode = (text) => text.split("`").map((part, place) =>
  (place % 2 ? element("code", {}, part) : part));

const SEVERITIES = { critical: ["bad", "Critical"], warning: ["warn", "Warning"], note: ["note", "Note"] };

function drawHealth() {
  const { findings, findings_total: total } = told;
  const bad = findings.filter((it) => it.severity !== "note").length;
  const verdict = bad === 0 ? "All is well: every node is alive, every replica in sync."
    : `${count(total)} ${total === 1 ? "thing is" : "things are"} wrong: ${findings[0].what}.`;
  setText(byId("verdict"), verdict);
  setAttribute(byId("verdict"), "class", `verdict ${bad ? SEVERITIES[findings[0].severity][0] : "good"}`);
  keyed(byId("findings"), here.view === "overview" ? findings : [], (it) => it.what + it.remedy, (it) => {
    const [kind, name] = SEVERITIES[it.severity];
    return element("li", { class: kind },
      element("p", { class: "what" }, badge(kind, name), " ", it.what),
      element("p", { class: "remedy" }, ...withCode(it.remedy)),
      element("details", { class: "code" }, element("summary", { "aria-label": `What ${it.code} means` }, element("code", {}, it.code)),
        element("p", {}, ...withCode(it.meaning), " ", element("code", {}, `streamlog explain ${it.code}`))));
  });
}

function drawOverview() {
  const it = told.cluster;
  terms(byId("figures"), [
    ["Streams", count(it.streams)],
    ["Partitions", count(it.partitions)],
    ["Without a leader", count(it.leaderless), it.leaderless && "bad"],
    ["Below min_isr", count(it.under_min_isr), it.under_min_isr && "bad"],
    ["Not in sync everywhere", count(it.under_replicated), it.under_replicated && "warn"],
    ["Groups", count(it.groups) + (it.groups_hidden ? ` (${count(it.groups_hidden)} not shown)` : "")],
    ["Controller", it.controller === null ? "nobody" : `node ${it.controller}`],
  ]);
  chart(byId("records-chart"), "Records a second, of partitions on this node", traffic.map(([at, records]) => [at, records]), decimal);
  chart(byId("bytes-chart"), "Bytes a second, of partitions on this node", traffic.map(([at, , size]) => [at, size]), bytes);
  keyed(byId("nodes"), told.nodes, (node) => String(node.node),
    () => element("li", {}, element("p", { class: "name" }), element("p", { class: "about" })),
    (box, node) => {
      const marks = [node.this && "this node", node.controller && "controller", !node.voter && "observer"];
      setAttribute(box, "class", node.alive ? (node.states[0] === "alive" ? "good" : "warn") : "bad");
      setText(box.firstElementChild, `Node ${node.node}: ${node.states.join(", ")}`);
      const about = [`${node.host}:${node.port}`, node.rack && `rack ${node.rack}`, ...marks,
        `leads ${count(node.leaders)} of ${count(node.replicas)} kept`];
      setText(box.lastElementChild, about.filter(Boolean).join(" · "));
    });
}

// A line over time, with its largest and its latest value in words.

const WIDTH = 600;
const HEIGHT = 90;

function chart(figure, title, points, format) {
  if (!figure.firstElementChild) {
    figure.append(
      element("figcaption", {}, element("span"), element("strong")),
      drawing("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
        drawing("path", { class: "area" }), drawing("path", { class: "line" })),
      element("p", { class: "axis" }, element("span"), element("span")));
  }
  const [caption, svg, axis] = figure.children;
  const latest = points.at(-1)?.[1];
  setText(caption.firstElementChild, title);
  setText(caption.lastElementChild, isKnown(latest) ? format(latest) : "–");
  const most = Math.max(1, ...points.map(([, value]) => value));
  const seconds = points.length ? Math.round((points.at(-1)[0] - points[0][0]) / 1000) : 0;
  setText(axis.firstElementChild, seconds ? `last ${seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`}` : "since this page was opened");
  setText(axis.lastElementChild, `most ${format(Math.max(0, ...points.map(([, value]) => value)))}`);
  setAttribute(svg, "aria-label", title);
  const begin = points[0]?.[0] ?? 0;
  const span = Math.max(1, (points.at(-1)?.[0] ?? 0) - begin);
  const places = points.map(([at, value]) =>
    `${(((at - begin) / span) * WIDTH).toFixed(1)},${(HEIGHT - 2 - (value / most) * (HEIGHT - 6)).toFixed(1)}`);
  const line = places.length > 1 ? `M${places.join("L")}` : "";
  setAttribute(svg.lastElementChild, "d", line);
  setAttribute(svg.firstElementChild, "d", line && `${line}L${WIDTH},${HEIGHT}L0,${HEIGHT}Z`);
}

function sampled(value) {
  const now = Date.now();
  if (isKnown(value) && !(samples.length && now - samples.at(-1)[0] < 900)) samples.push([now, value]);
  samples = samples.slice(-SAMPLES_MAX);
  return samples;
}

// Lists

const WANTS = {
  leaderless: ["bad", "no leader"],
  under_min_isr: ["bad", "below min_isr"],
  under_replicated: ["warn", "not in sync"],
  moving: ["note", "moving"],
};

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
  return found.flatMap((it, place) => [place ? ", " : "",
    link(addressOf({ view: "messages", stream: it.stream, partition: String(it.partition), from: String(it.offset) }), `${it.stream}/${it.partition}`),
    `: ${count(it.lag)}`]).filter(Boolean);
}

function heldUp(row) {
  const found = row.furthest.slice(0, 3);
  const rest = row.partitions - found.length;
  return [...found.flatMap((it, place) => [place ? ", " : "", link(streamAddress(it.stream), `${it.stream}/${it.partition}`), `: ${count(it.held_up)}`]),
    rest ? `${found.length ? " and " : ""}${count(rest)} more` : ""].filter(Boolean);
}

const howLong = (seconds) =>
  (seconds < 120 ? `${seconds} s` : seconds < 7200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h`);

// name, what it says, numbers stand to the right, what it is sorted by
const LISTS = {
  streams: {
    title: "Streams",
    sorts: { name: "name", records: "records", size_bytes: "size", rate: "rate" },
    columns: [
      ["Stream", (row) => link(streamAddress(row.name), row.name)],
      ["State", wanted],
      ["Subjects", (row) => (row.internal ? "internal" : row.subjects.join(", "))],
      ["Partitions", (row) => count(row.partitions), "number"],
      ["Replicas", (row) => count(row.replicas), "number"],
      ["Records here", (row) => count(row.records), "number", "records"],
      ["Size here", (row) => bytes(row.size_bytes), "number", "size_bytes"],
      ["Rate", (row) => rate(row.rate), "number", "rate"],
      ["", (row) => link(messagesAddress(row.name), "messages")],
    ],
  },
  partitions: {
    title: "Partitions",
    sorts: {},
    columns: [
      ["Partition", (row) => link(streamAddress(row.stream), `${row.stream}/${row.partition}`)],
      ["State", wants],
      ["Leader", (row) => (row.leader === null ? "none" : String(row.leader)), "number"],
      ["Epoch", (row) => count(row.epoch), "number"],
      ["In sync", (row) => row.isr.join(", ") || "none"],
      ["Replicas", (row) => row.replicas.join(", ")],
      ["High watermark", (row) => count(row.high_watermark), "number"],
      ["Lag", (row) => count(row.lag), "number"],
      ["Rate", (row) => rate(row.rate), "number"],
      ["Size here", (row) => bytes(row.size_bytes), "number"],
      ["Tier lag", (row) => bytes(row.tier_lag_bytes), "number"],
      ["", (row) => [link(messagesAddress(row.stream, String(row.partition)), "messages"), ...partitionActs(row)]],
    ],
  },
  groups: {
    title: "Consumer groups",
    sorts: { group: "name", lag: "lag", members: "members" },
    columns: [
      ["Group", (row) => (operations?.length ? link(addressOf({ view: "manage", ask: "groups.describe", group: row.group }), row.group) : row.group)],
      ["State", (row) => badge(row.lag > 0 && row.members === 0 ? "warn" : "note", row.state)],
      ["Members", (row) => count(row.members), "number", "members"],
      ["Lag", (row) => count(row.lag) + (row.lag_unknown ? " or more" : ""), "number", "lag"],
      ["Furthest behind", furthest],
      ["Partitions", (row) => count(row.partitions), "number"],
      ["Coordinator", (row) => String(row.coordinator), "number"],
      ["", (row) => actsOn("/groups/", { group: row.group, group_id: row.group, name: row.group })],
    ],
  },
  transactions: {
    title: "Transactions",
    sorts: { started: "start", name: "name", partitions: "partitions" },
    columns: [
      ["Transactional id", (row) => link(addressOf({ view: "manage", ask: "transactions.describe", transactional_id: row.transactional_id }), row.transactional_id), undefined, "name"],
      ["State", (row) => [badge(row.overdue ? "bad" : row.open_s === null ? "good" : "note", row.state), ...(row.overdue ? [badge("warn", "longer than its time-out")] : [])]],
      ["Open for", (row) => (row.open_s === null ? "–" : `${howLong(row.open_s)} of ${howLong(row.timeout_s)}`), "number", "started"],
      ["Records held up", (row) => (row.open_s === null ? "–" : count(row.held_up) + (row.held_up_unknown ? " or more" : "")), "number"],
      ["Partitions", heldUp, undefined, "partitions"],
      ["Producer, epoch", (row) => `${row.producer_id}, ${row.producer_epoch}`, "number"],
      ["Coordinator", (row) => (row.coordinator === null ? "none" : String(row.coordinator)), "number"],
      ["", (row) => (row.open_s === null ? [] : actsOn("/transactions/", { transactional_id: row.transactional_id }))],
    ],
  },
  events: {
    title: "Recent events",
    sorts: {},
    columns: [
      ["Time", (row) => time(row.time_ms)],
      ["About", (row) => badge("note", row.kind)],
      ["What happened", (row) => row.text],
    ],
  },
};

const listShown = () => LISTS[here.view === "stream" ? "partitions" : here.view];
let headOf = "";

function beginList() {
  const list = listShown();
  const isStream = here.view === "stream";
  const title = isStream ? `Stream ${here.stream ?? ""}` : list.title;
  setText(byId("list-title"), title);
  setText(byId("caption"), isStream ? `Partitions of ${here.stream ?? ""}` : title);
  drawHead(list);
  byId("rows").replaceChildren();
  byId("none").hidden = true;
  setText(byId("range"), "");
  byId("filter-label").hidden = isStream;
  if (document.activeElement !== byId("filter")) byId("filter").value = here.filter ?? "";
  byId("only").value = here.only ?? "";
  byId("only-label").hidden = !["streams", "partitions", "stream"].includes(here.view);
  byId("only").querySelector("[value=led_here]").hidden = here.view === "streams";
  byId("lag-chart").hidden = here.view !== "groups";
  for (const id of ["lag-chart", "stream-chart"]) byId(id).replaceChildren();
  const sorts = Object.entries(list.sorts);
  byId("sort-label").hidden = !sorts.length;
  byId("sort").replaceChildren(...sorts.flatMap(([value, name]) => [
    element("option", { value: `${value} asc` }, `${name}, ascending`),
    element("option", { value: `${value} desc` }, `${name}, descending`)]));
  if (sorts.length) byId("sort").value = `${here.sort || sorts[0][0]} ${here.order || "asc"}`;
}

function drawHead(list) {
  const key = `${here.view} ${here.sort} ${here.order}`;
  if (key === headOf) return;
  headOf = key;
  byId("head").replaceChildren(element("tr", { role: "row" }, ...list.columns.map(([name, , kind, sort]) => {
    const sorted = sort && here.sort === sort && (here.order === "desc" ? "descending" : "ascending");
    const attributes = { scope: "col", role: "columnheader", class: kind, "aria-sort": sorted };
    if (!name) return element("th", attributes, element("span", { class: "unseen" }, "More"));
    if (!sort) return element("th", attributes, name);
    const order = sorted === "descending" ? "asc" : "desc";
    const mark = sorted ? (sorted === "descending" ? " ▼" : " ▲") : "";
    return element("th", attributes, link(addressOf({ ...here, page: 0, sort, order }), name), mark && element("span", { "aria-hidden": "true" }, mark));
  })));
}

function makeRow(list) {
  // The roles are said, for a narrow screen lays cells out as blocks, which would take them away.
  return element("tr", { role: "row" }, ...list.columns.map(([name, , kind], place) =>
    element(place ? "td" : "th", {
      class: kind, scope: place ? undefined : "row", role: place ? "cell" : "rowheader", "data-name": name,
    })));
}

// Only cells that say something else are touched: a link keeps its focus.
function fillRow(list, tr, row) {
  list.columns.forEach(([, say], place) => {
    const cell = tr.children[place];
    const parts = [say(row)].flat();
    const said = JSON.stringify(parts.map((it) => it.textContent ?? it));
    if (cell.dataset.said === said) return;
    const moved = cell.dataset.said !== undefined;
    cell.dataset.said = said;
    cell.replaceChildren(...parts.flatMap((it, index) => (index && it instanceof Element && !it.matches("a") ? [" ", it] : [it])));
    if (moved) {
      cell.classList.remove("moved");
      void cell.offsetWidth; // begins the fading again
      cell.classList.add("moved");
    }
  });
}

function drawList() {
  const list = listShown();
  const shown = told.keys.map((key) => [key, rows.get(key)]).filter(([, row]) => row);
  keyed(byId("rows"), shown, ([key]) => key, () => makeRow(list), (tr, [, row]) => {
    if (tr.row === row) return;
    tr.row = row;
    fillRow(list, tr, row);
  });
  byId("none").hidden = shown.length > 0;
  const first = told.page * told.size;
  setText(byId("range"), shown.length
    ? `${count(first + 1)} to ${count(first + shown.length)} of ${count(told.total)}`
    : `none of ${count(told.total)}`);
  byId("before").disabled = told.page === 0;
  byId("after").disabled = first + told.size >= told.total;
  if (here.view === "groups") {
    const lag = shown.reduce((sum, [, row]) => sum + row.lag, 0);
    chart(byId("lag-chart"), "Consumer lag of the groups shown", sampled(lag), whole.format);
  }
}

// One stream

function drawStream() {
  const it = told.stream;
  if (!it) {
    setText(byId("stream-links"), `There is no stream ${here.stream ?? ""}.`);
    for (const id of ["stream-figures", "stream-config", "stream-chart"]) byId(id).replaceChildren();
    return;
  }
  keyed(byId("stream-links"), [it], (row) => row.name, (row) => link(messagesAddress(row.name), "Messages of this stream"));
  drawStreamActs(it);
  terms(byId("stream-figures"), [
    ["Subjects", it.internal ? "internal" : it.subjects.join(", ") || "none"],
    ["Partitions", count(it.partitions)],
    ["Replicas", count(it.replicas)],
    ["Records here", count(it.records)],
    ["Size here", bytes(it.size_bytes)],
    ["Rate", rate(it.rate)],
  ]);
  chart(byId("stream-chart"), "Records a second, of partitions on this node", sampled(it.rate), decimal);
  terms(byId("stream-config"), [["created", dateTime(it.created_ms)], ...Object.entries(it.config).map(([name, value]) =>
    [name, typeof value === "string" ? value : JSON.stringify(value)])]);
}

// Messages

const FOLLOWED_MAX = 200;
const CONDITIONS = ["stream", "partition", "from", "text", "key", "subject", "header", "path", "decode", "schema", "count"];
const WHY = {
  count: "", end: "That is all there is.", records: "Stopped at the most messages of one search.",
  bytes: "Stopped at the most bytes of one search.", time: "Stopped at the longest time of one search.",
};
let asking = null;
let following = null;
let schemas = null;

const conditions = () => Object.fromEntries(CONDITIONS.filter((name) => here[name]).map((name) => [name, here[name]]));
const stateOf = (text) => setText(byId("messages-state"), text);

function beginMessages() {
  stopFollowing();
  const form = byId("messages-form");
  for (const name of CONDITIONS) {
    if (name !== "schema" && document.activeElement !== form.elements[name]) form.elements[name].value = here[name] ?? "";
  }
  const isMore = ["key", "subject", "header", "path", "decode", "count"].some((name) => here[name]);
  if (isMore) byId("more").open = true;
  void knowSchemas();
  setText(byId("messages-title"), here.stream ? `Messages of ${here.stream}` : "Messages");
  byId("records").replaceChildren();
  byId("go-on").hidden = true;
  if (!here.stream) stateOf("Name a stream.");
  else if (here.follow) follow();
  else void search();
}

async function knowSchemas() {
  schemas ??= await answered("/api/schemas").catch(() => ({ avro: [], protobuf: [] }));
  const form = byId("messages-form");
  const names = schemas[form.elements.decode.value] ?? [];
  byId("schema-label").hidden = !["avro", "protobuf"].includes(form.elements.decode.value);
  byId("m-schema").replaceChildren(
    element("option", { value: "" }, names.length ? "choose one" : "none: see http.schemas_dir"),
    ...names.map((name) => element("option", { value: name }, name)));
  byId("m-schema").value = here.schema ?? "";
}

// What the node answers; its words are what the error says.
async function answered(address, options = {}) {
  const answer = await fetch(address, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `${answer.status}`);
  return answer.json();
}

async function search() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  stateOf("Searching …");
  byId("records").setAttribute("aria-busy", "true");
  try {
    const query = new URLSearchParams(conditions());
    if (here.at) query.set("at", here.at);
    const found = await answered(`/api/messages?${query}`, { signal });
    byId("news").setAttribute("aria-live", "off");
    byId("records").replaceChildren(...found.records.map((it) => shownMessage(here.stream, it)));
    const newest = !here.from || here.from === "end";
    const order = found.records.length > 1 ? (newest ? ", the newest first" : ", the oldest first") : "";
    stateOf([`${count(found.records.length)} ${found.records.length === 1 ? "message" : "messages"}${order}.`,
      `Looked at ${count(found.scanned)} (${bytes(found.scanned_bytes)}).`, WHY[found.why]].filter(Boolean).join(" "));
    byId("go-on").hidden = !found.next;
    if (found.next) {
      setText(byId("go-on"), newest ? "Older messages" : "Newer messages");
      byId("go-on").setAttribute("href", addressOf({ ...here, at: found.next }));
    }
  } catch (error) {
    if (!signal.aborted) stateOf(`${error.message}`);
  } finally {
    if (!signal.aborted) byId("records").removeAttribute("aria-busy");
  }
}

function shownMessage(stream, it) {
  const place = { view: "messages", stream, partition: String(it.partition), from: String(it.offset), count: 1, decode: here.decode, schema: here.schema };
  const subject = it.headers.find(([name]) => name === "subject")?.[1];
  const headers = it.headers.filter(([name]) => name !== "subject").map(([name, value]) => `${name}: ${said(value)}`);
  if (it.headers_more) headers.push(`and ${count(it.headers_more)} more`);
  const name = `${it.partition}/${it.offset}`;
  const body = element("pre", { tabindex: "0", "aria-label": `Value of ${name}` }, said(it.value));
  const expand = element("button", { type: "button", class: "expand", "aria-expanded": "false", "aria-label": `Expand ${name}` }, "Expand");
  expand.addEventListener("click", () => void expanded(stream, it, body, expand));
  const shown = element("li", {},
    element("p", { class: "place" }, expand,
      link(addressOf(place), `${it.partition}/${count(it.offset)}`), " · ", element("time", { datetime: new Date(it.timestamp_ms).toISOString() }, dateTime(it.timestamp_ms)),
      subject ? ` · ${said(subject)}` : "", it.key ? ` · key ${said(it.key)}` : "",
      it.value ? ` · ${bytes(it.value.size_bytes)} ${it.value.form ?? ""}` : ""),
    it.value?.problem ? element("p", { class: "problem" }, it.value.problem) : null,
    body,
    headers.length ? element("p", { class: "headers" }, headers.join(" · ")) : null);
  if (here.count === "1") void expanded(stream, it, body, expand);
  return shown;
}

// The whole value, laid out; or a few lines of it again.
async function expanded(stream, it, body, expand) {
  const isOpen = expand.getAttribute("aria-expanded") === "true";
  try {
    const value = it.value?.cut && !isOpen ? await wholeValue(stream, it) : it.value;
    setText(body, isOpen ? said(it.value) : pretty(value));
    setText(expand, isOpen ? "Expand" : "Fold");
    expand.setAttribute("aria-expanded", String(!isOpen));
    body.classList.toggle("whole", !isOpen);
  } catch (error) {
    stateOf(error.message);
  }
}

async function wholeValue(stream, it) {
  const query = new URLSearchParams({ stream, partition: it.partition, offset: it.offset });
  for (const name of ["decode", "schema"]) if (here[name]) query.set(name, here[name]);
  const found = await answered(`/api/message?${query}`);
  return found.records.length ? found.records[0].value : it.value;
}

function said(data) {
  if (data === null) return "null";
  const text = data.text ?? data.hex;
  return data.cut ? `${text} … (${bytes(data.size_bytes)} in all)` : text;
}

function pretty(data) {
  if (data && !data.cut && ["json", "msgpack", "avro", "protobuf"].includes(data.form)) {
    try {
      return JSON.stringify(JSON.parse(data.text), null, 2);
    } catch {
      return said(data); // a number that is none in JSON
    }
  }
  return said(data);
}

// Following the end of one partition

function stopFollowing(text) {
  asking?.abort();
  following?.close();
  following = null;
  setAttribute(byId("follow"), "aria-pressed", "false");
  setText(byId("follow"), "Follow");
  if (text) stateOf(text);
}

function follow() {
  const { stream } = here;
  const partition = here.partition || "0";
  const place = `${stream}/${partition}`;
  stateOf(`Asking for ${place} …`);
  setAttribute(byId("follow"), "aria-pressed", "true");
  setText(byId("follow"), "Stop");
  const query = new URLSearchParams({ stream, partition });
  for (const name of ["decode", "schema"]) if (here[name]) query.set(name, here[name]);
  following = new EventSource(`/api/tail?${query}`);
  let passed = 0;
  following.addEventListener("records", (event) => {
    const found = JSON.parse(event.data);
    passed += found.skipped;
    const left = passed ? `; ${count(passed)} passed over, they came too fast to be read` : "";
    stateOf(`Following ${place} up to ${count(found.high_watermark)}${left}`);
    const list = byId("records");
    byId("news").setAttribute("aria-live", byId("tail-speak").checked ? "polite" : "off");
    for (const it of found.records) list.prepend(shownMessage(stream, { ...it, partition }));
    while (list.children.length > FOLLOWED_MAX) list.lastElementChild.remove();
  });
  following.addEventListener("problem", (event) => stateOf(`${place}: ${JSON.parse(event.data).text}`));
  following.onerror = () => {
    if (following?.readyState === EventSource.CLOSED) void explain(query, place);
    else stateOf(`${place}: no connection; trying again`);
  };
}

// An EventSource does not say why it was refused; the answer to the same question does.
async function explain(query, place) {
  stopFollowing();
  const stopping = new AbortController();
  try {
    const answer = await fetch(`/api/tail?${query}`, { signal: stopping.signal });
    stateOf(`${place}: ${answer.ok ? "the connection was lost" : (await answer.text()).trim()}`);
  } catch {
    stateOf(`${place}: no connection`);
  } finally {
    stopping.abort();
  }
}

// What can be changed. The JSON API describes its operations itself: each has a form made of its schema,
// so that a new one is here at once. The node decides who may do what, and says why not.

const API = "/api/v1";
const FIRST = new Set(["name", "subjects", "partitions", "replicas", "retention_ms", "retention_bytes", "description"]);
let operations = null;
let schemasOfApi = {};
let operationsAsked = null;
let offered = null; // whether changes are, on what is shown; null until the node has said so

function knowOperations() {
  operationsAsked ??= askOperations();
  return operationsAsked;
}

async function askOperations() {
  try {
    const found = await answered(`${API}/openapi.json`);
    schemasOfApi = found.components.schemas;
    operations = Object.entries(found.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, it]) => ({ ...it, path, method: method.toUpperCase(), tags: it.tags ?? [] })));
    operations.tags = found.tags ?? [];
  } catch {
    operations = [];
  }
  byId("manage-tab").hidden = !operations.length;
  if (told.cluster && told.findings) draw(); // the first state may have come before
  return operations;
}

// What a button says; of any other operation the beginning of its description.
const BRIEFLY = {
  "streams.create": "Create a stream", "streams.replace": "Change settings", "streams.delete": "Delete", "streams.purge": "Purge",
  "placement.move": "Move", "placement.cancel_move": "Cancel the move", "placement.elect": "Elect a leader",
  "placement.replace_node": "Replace a node", "messages.delete": "Delete", "messages.publish": "Publish a message",
  "transactions.abort": "Abort",
  "groups.reset": "Reset offsets", "groups.delete": "Delete", "groups.delete_offsets": "Forget offsets",
};
const briefly = (operation) => BRIEFLY[operation.operationId] ?? operation.summary.replace(/[.:;,].*/, "");

const isAct = (operation) => operation.method !== "GET";
const mayChange = () => Boolean(told.cluster?.console_writes);
// The first state and the operations come in either order, so "not yet known" is an answer of its own.
const offersNow = () => (told.cluster ? mayChange() : null);

function actButton(operation, given, text = operation.summary.replace(/[.:;,].*/, "")) {
  const button = element("button", { type: "button" }, text);
  button.addEventListener("click", () => openAct(operation, given()));
  return button;
}

function actsOn(prefix, given) {
  if (!operations || !mayChange()) return [];
  return operations.filter((it) => isAct(it) && it.path.startsWith(`${prefix}{`)).map((it) => actButton(it, () => given, briefly(it)));
}

const isOfPartition = (operation) =>
  (resolved(operation.requestBody?.content["application/json"].schema ?? {}).required ?? []).includes("partition");
const ofStreams = () => (operations && mayChange()
  ? operations.filter((it) => isAct(it) && it.path.startsWith("/streams/{") && !it.path.endsWith("/message")) : []);

function partitionActs(row) {
  if (here.view !== "stream" || told.stream?.internal) return [];
  const now = () => rows.get(`${row.stream}/${row.partition}`) ?? row;
  return ofStreams().filter(isOfPartition).filter((it) => row.wants.includes("moving") === (it.operationId === "placement.cancel_move") || it.operationId === "placement.elect")
    .map((it) => actButton(it, () => now(), briefly(it)));
}

function drawStreamActs(stream) {
  const wanted = stream.internal ? [] : ofStreams().filter((it) => !isOfPartition(it) && it.operationId !== "streams.alter");
  byId("stream-acts").hidden = !wanted.length;
  keyed(byId("stream-acts"), wanted, (it) => it.operationId, (it) => actButton(it, () =>
    ({ name: here.stream, stream: here.stream, config: told.stream?.config }), briefly(it)));
}

function drawListActs() {
  const wanted = here.view === "streams" && operations && mayChange() ? operations.filter((it) => it.operationId === "streams.create") : [];
  byId("list-acts").hidden = !wanted.length;
  keyed(byId("list-acts"), wanted, (it) => it.operationId, (it) => actButton(it, () => ({}), briefly(it)));
}

function drawMessageActs() {
  const wanted = here.view === "messages" && here.stream && operations && mayChange()
    ? operations.filter((it) => it.operationId === "messages.publish") : [];
  byId("messages-acts").hidden = !wanted.length;
  keyed(byId("messages-acts"), wanted, (it) => it.operationId, (it) => actButton(it, () =>
    ({ stream: here.stream, partition: here.partition }), briefly(it)));
}

async function beginManaging() {
  const found = await knowOperations();
  if (here.view !== "manage") return;
  const { ask } = here;
  const state = byId("manage-state");
  offered = offersNow();
  if (!found.length) setText(state, "This node has no JSON API, or you may not use it.");
  else setText(state, mayChange() || !told.cluster ? "" : "Read-only: http.console_writes is off on this node.");
  if (byId("operations").dataset.offered !== String(offered)) drawOperations(found);
  byId("answer").replaceChildren();
  const asked = found.find((it) => it.operationId === ask && !isAct(it));
  if (!asked) return;
  const given = Object.fromEntries((asked.parameters ?? []).filter((it) => here[it.name]).map((it) => [it.name, here[it.name]]));
  try {
    const answer = await call(asked, given, {});
    if (here.view !== "manage" || here.ask !== ask) return; // another was asked meanwhile
    byId("answer").replaceChildren(element("h3", {}, ...described(asked.summary)), shownValue(answer));
  } catch (error) {
    if (here.view === "manage" && here.ask === ask) setText(state, error.message);
  }
}

function drawOperations(found) {
  byId("operations").dataset.offered = String(offered);
  const groups = Map.groupBy ? Map.groupBy(found, (it) => it.tags[0] ?? "") : grouped(found);
  byId("operations").replaceChildren(...[...groups].map(([tag, of]) => element("section", {},
    element("h3", {}, tag[0]?.toUpperCase() + tag.slice(1)),
    element("p", { class: "help" }, ...described(found.tags.find((it) => it.name === tag)?.description ?? "")),
    element("ul", { class: "acts" }, ...of.filter((it) => !isAct(it) || mayChange()).map((it) =>
      element("li", {}, isAct(it) || needsInput(it) ? actButton(it, () => ({}))
        : link(addressOf({ view: "manage", ask: it.operationId }), it.summary.replace(/[.:;,].*/, ""))))))));
}

function grouped(found) {
  const groups = new Map();
  for (const it of found) groups.set(it.tags[0], [...(groups.get(it.tags[0]) ?? []), it]);
  return groups;
}

const described = (text) => withCode(text.replaceAll("``", "`"));
const needsInput = (operation) => (operation.parameters ?? []).some((it) => it.required);

async function call(operation, parameters, body) {
  let path = API + operation.path;
  const query = new URLSearchParams();
  for (const it of operation.parameters ?? []) {
    const value = parameters[it.name];
    if (it.in === "path") path = path.replace(`{${it.name}}`, encodeURIComponent(value ?? ""));
    else if (isKnown(value) && value !== "") query.set(it.name, value);
  }
  const options = { method: operation.method };
  if (operation.requestBody) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  const answer = await fetch(query.size ? `${path}?${query}` : path, options);
  const text = await answer.text();
  let found = null;
  try {
    found = text ? JSON.parse(text) : null;
  } catch { /* a proxy's own words */ }
  if (!answer.ok) throw new Error(found?.error?.message ?? (text.trim() || `${answer.status}`));
  return found;
}

// Forms out of schemas. A field is its element, and ``read``: what was typed, undefined for nothing.

const resolved = (schema) => (schema.$ref ? schemasOfApi[schema.$ref.split("/").pop()] : schema);

function fieldOf(name, given, { required, value }) {
  let schema = resolved(given);
  const branches = (schema.anyOf ?? []).map(resolved).filter((it) => it.type !== "null");
  if (branches.length === 1) schema = { ...schema, ...branches[0] };
  const label = name.replaceAll("_", " ");
  if (schema.properties) return objectField(label, schema, value);
  const items = schema.type === "array" ? resolved(schema.items ?? {}) : null;
  if (items?.properties) return listField(label, schema, items);
  let input;
  let read;
  const text = isKnown(value) ? value : schema.default;
  if (schema.enum) {
    const none = required && !isKnown(schema.default) ? [] : [element("option", { value: "" }, "")];
    input = element("select", {}, ...none, ...schema.enum.map((it) => element("option", { value: it }, String(it))));
    input.value = isKnown(text) ? text : none.length ? "" : schema.enum[0];
    read = () => (input.value === "" ? undefined : input.value);
  } else if (schema.type === "boolean") {
    input = element("input", { type: "checkbox" });
    input.checked = Boolean(text);
    read = () => input.checked;
  } else if (schema.type === "array" && ["string", "integer", "number"].includes(items?.type)) {
    input = element("input", { type: "text", spellcheck: "false", autocomplete: "off", placeholder: "separated by commas" });
    input.value = Array.isArray(text) ? text.join(", ") : "";
    const isNumber = items.type !== "string";
    read = () => {
      const parts = input.value.split(",").map((it) => it.trim()).filter(Boolean);
      return parts.length ? parts.map((it) => (isNumber ? Number(it) : it)) : undefined;
    };
  } else if (["integer", "number"].includes(schema.type)) {
    input = element("input", { type: "text", inputmode: "numeric", autocomplete: "off" });
    input.value = isKnown(text) ? text : "";
    read = () => (input.value.trim() === "" ? undefined : Number(input.value));
  } else if (name === "payload") {
    input = element("textarea", { rows: "4", spellcheck: "false" });
    input.value = isKnown(text) ? text : "";
    read = () => input.value;
  } else if (schema.type === "string") {
    const secret = name === "password";
    input = element("input", { type: secret ? "password" : "text", spellcheck: "false", autocomplete: secret ? "new-password" : "off" });
    input.value = isKnown(text) ? text : "";
    read = () => (input.value === "" && !required && !isKnown(text) ? undefined : input.value);
  } else {
    input = element("textarea", { rows: "3", spellcheck: "false", placeholder: "JSON" });
    input.value = isKnown(text) ? JSON.stringify(text) : "";
    read = () => (input.value.trim() === "" ? undefined : JSON.parse(input.value));
  }
  if (required) input.setAttribute("required", "");
  return { node: element("label", { class: schema.type === "boolean" ? "check" : null }, element("span", {}, label, required ? " *" : ""), input), read, input };
}

function objectField(label, schema, value) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, it]) =>
    [name, fieldOf(name, it, { required: required.has(name), value: value?.[name] })]);
  const isFirst = (name) => fields.length < 8 || required.has(name) || FIRST.has(name);
  const more = fields.filter(([name]) => !isFirst(name));
  const node = element("fieldset", {}, element("legend", {}, label),
    ...fields.filter(([name]) => isFirst(name)).map(([, it]) => it.node),
    more.length ? element("details", {}, element("summary", {}, "More settings"), ...more.map(([, it]) => it.node)) : null);
  return { node, read: () => readAll(fields) };
}

function listField(label, schema, items) {
  const parts = [];
  const more = element("button", { type: "button" }, `Add to ${label}`);
  const node = element("div", { class: "list" }, more);
  const add = () => {
    const it = objectField(`${label} ${parts.length + 1}`, items);
    parts.push(it);
    node.insertBefore(it.node, more);
  };
  more.addEventListener("click", add);
  if (!("default" in schema)) add();
  return { node, read: () => (parts.length ? parts.map((it) => it.read()) : undefined) };
}

function readAll(fields) {
  const found = {};
  for (const [name, it] of fields) {
    const value = it.read();
    if (value !== undefined) found[name] = value;
  }
  return found;
}

let acting = null;

function openAct(operation, given) {
  const parameters = (operation.parameters ?? []).map((it) => {
    const field = fieldOf(it.name, it.schema, { required: it.required, value: given[it.name] });
    if (isKnown(given[it.name])) field.input?.setAttribute("readonly", "");
    return [it.name, field];
  });
  const schema = resolved(operation.requestBody?.content["application/json"].schema ?? {});
  const required = new Set(schema.required ?? []);
  const body = Object.entries(schema.properties ?? {}).map(([name, it]) =>
    [name, fieldOf(name, it, { required: required.has(name), value: given[name] })]);
  const about = parameters.find(([name]) => ["name", "stream", "node", "group"].includes(name))?.[1];
  const isFinal = operation.method === "DELETE" || /\/(purge|delete)$/.test(operation.path);
  const confirm = isFinal && about ? element("input", { type: "text", autocomplete: "off", spellcheck: "false" }) : null;
  acting = { operation, parameters, body, about, confirm };
  const [title, ...rest] = operation.description.split("\n");
  byId("act-title").replaceChildren(...described(title));
  byId("act-about").replaceChildren(...described(rest.join(" ").trim()));
  byId("act-fields").replaceChildren(...[...parameters, ...body].map(([, it]) => it.node),
    ...(confirm ? [element("label", {}, element("span", {}, "Type the name again to confirm"), confirm)] : []));
  setText(byId("act-state"), "");
  byId("act-answer").replaceChildren();
  byId("act-go").disabled = false;
  setText(byId("act-go"), isAct(operation) ? title.split(" ")[0] : "Show");
  setAttribute(byId("act-go"), "class", isFinal ? "danger" : null);
  byId("act").showModal();
}

byId("act-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { operation, parameters, body, about, confirm } = acting;
  const state = byId("act-state");
  const missing = byId("act-fields").querySelector("[required]:placeholder-shown, [required]:invalid");
  if (missing && !missing.value) {
    setText(state, "Fill in what is marked with *.");
    missing.focus();
    return;
  }
  if (confirm && confirm.value !== String(about.read())) {
    setText(state, "The name that was typed to confirm is another one.");
    confirm.focus();
    return;
  }
  byId("act-go").disabled = true;
  setText(state, "Asking the node …");
  try {
    const found = await call(operation, readAll(parameters), readAll(body));
    setText(state, "Done.");
    byId("act-answer").replaceChildren(...(isKnown(found) ? [shownValue(found)] : []),
      ...(operation.operationId === "messages.publish" ? [element("p", {}, placeOf(found))] : []));
  } catch (error) {
    setText(state, error.message);
  } finally {
    byId("act-go").disabled = false;
  }
});
// The message that was published, as the node has it.
function placeOf({ stream, partition, offset }) {
  const place = link(addressOf({ view: "messages", stream, partition: String(partition), from: String(offset), count: 1 }), `Show message ${partition}/${offset}`);
  place.addEventListener("click", () => byId("act").close());
  return place;
}

byId("act-close").addEventListener("click", () => byId("act").close());
byId("act").addEventListener("close", () => {
  byId("act-fields").replaceChildren(); // no password stays
  if (here.view === "manage") void beginManaging();
});

const isFlat = (value) => value === null || typeof value !== "object";
const shortly = (value) => (value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value));

function shownValue(value) {
  if (isFlat(value)) return element("p", {}, shortly(value));
  if (Array.isArray(value)) {
    if (!value.length) return element("p", { class: "none" }, "None.");
    if (value.every((it) => !isFlat(it) && !Array.isArray(it))) {
      const names = [...new Set(value.flatMap((it) => Object.keys(it)))];
      return element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Answer" }, element("table", {},
        element("thead", {}, element("tr", {}, ...names.map((it) => element("th", { scope: "col" }, it.replaceAll("_", " "))))),
        element("tbody", {}, ...value.map((it) => element("tr", {}, ...names.map((name) =>
          element("td", { "data-name": name.replaceAll("_", " ") }, shortly(it[name] ?? null))))))));
    }
    return element("ul", { class: "values" }, ...value.map((it) => element("li", {}, shortly(it))));
  }
  return element("dl", { class: "config" }, ...Object.entries(value).map(([name, it]) =>
    element("div", { class: isFlat(it) ? null : "wide" }, element("dt", {}, name.replaceAll("_", " ")), element("dd", {}, isFlat(it) ? shortly(it) : shownValue(it)))));
}

// What a person does

let typing = null;
const later = (call) => {
  clearTimeout(typing);
  typing = setTimeout(call, 250);
};
byId("filter").addEventListener("input", () => later(() => go({ filter: byId("filter").value }, { replace: true })));
byId("only").addEventListener("change", () => go({ only: byId("only").value }, { replace: true }));
byId("sort").addEventListener("change", () => {
  const [sort, order] = byId("sort").value.split(" ");
  go({ sort, order }, { replace: true });
});
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("before").addEventListener("click", () => go({ page: Math.max(0, here.page - 1) }, { replace: false }));
byId("after").addEventListener("click", () => go({ page: here.page + 1 }));
byId("pause").addEventListener("click", () => {
  paused = !paused;
  setAttribute(byId("pause"), "aria-pressed", String(paused));
  setText(byId("pause"), paused ? "Go on" : "Pause");
  if (paused) {
    source?.close();
    setText(byId("verdict"), PAUSED);
  } else listen();
});
byId("messages-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = Object.fromEntries(new FormData(byId("messages-form")));
  const address = addressOf({ view: "messages", ...given });
  visit(address, { replace: address === location.pathname + location.search });
});
byId("follow").addEventListener("click", () => {
  const given = Object.fromEntries(new FormData(byId("messages-form")));
  if (following) visit(addressOf({ view: "messages", ...given }), { replace: true });
  else if (byId("messages-form").reportValidity()) visit(addressOf({ view: "messages", ...given, follow: 1 }), { replace: true });
});
byId("messages-form").elements.decode.addEventListener("change", () => void knowSchemas());
byId("m-stream").addEventListener("input", () => later(async () => {
  const query = new URLSearchParams({ filter: byId("m-stream").value, size: 20 });
  const found = await answered(`/api/streams?${query}`).catch(() => ({ rows: [] }));
  byId("stream-names").replaceChildren(...found.rows.map((row) => element("option", { value: row.name })));
}));
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, select, textarea, [contenteditable]");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const box = here.view === "messages" ? byId("m-text") : byId("filter");
  if (byId(here.view === "messages" ? "messages" : "lists").hidden || box.closest("[hidden]")) return;
  event.preventDefault();
  box.focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is ours
  byId("main").focus();
});
window.addEventListener("pagehide", () => source?.close());

void knowOperations();
show();
