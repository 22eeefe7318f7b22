// The tail: records as they are committed, the newest first.

import { byId, bytes, count, element, setText, time } from "./dom.js";

const SHOWN_MAX = 200;

let source = null;

export function stopTail(said) {
  source?.close();
  source = null;
  byId("tail-stop").disabled = true;
  if (said) setText(byId("tail-state"), said);
}

export function startTail(stream, partition) {
  stopTail();
  byId("records").replaceChildren();
  byId("tail-stop").disabled = false;
  const place = `${stream}/${partition}`;
  setText(byId("tail-state"), `Asking for ${place} …`);
  const query = new URLSearchParams({ stream, partition });
  source = new EventSource(`/api/tail?${query}`);
  let passed = 0;
  source.addEventListener("records", (event) => {
    const told = JSON.parse(event.data);
    passed += told.skipped;
    const left = passed ? `; ${count(passed)} passed over, they came too fast to be read` : "";
    setText(byId("tail-state"), `${place} up to ${count(told.high_watermark)}${left}`);
    show(told.records);
  });
  source.addEventListener("problem", (event) => {
    setText(byId("tail-state"), `${place}: ${JSON.parse(event.data).text}`);
  });
  source.onerror = () => {
    if (source?.readyState === EventSource.CLOSED) void explain(query, place);
    else setText(byId("tail-state"), `${place}: no connection; trying again`);
  };
}

// An EventSource does not say why it was refused; the answer to the same question does.
async function explain(query, place) {
  stopTail();
  const stopping = new AbortController();
  try {
    const answer = await fetch(`/api/tail?${query}`, { signal: stopping.signal });
    const why = answer.ok ? "the connection was lost" : (await answer.text()).trim();
    setText(byId("tail-state"), `${place}: ${why}`);
  } catch {
    setText(byId("tail-state"), `${place}: no connection`);
  } finally {
    stopping.abort();
  }
}

function show(records) {
  const list = byId("records");
  byId("news").setAttribute("aria-live", byId("tail-speak").checked ? "polite" : "off");
  for (const record of records) list.prepend(shown(record));
  while (list.children.length > SHOWN_MAX) list.lastElementChild.remove();
}

function shown(record) {
  const headers = record.headers.map(([name, value]) => `${name}: ${said(value)}`);
  if (record.headers_more) headers.push(`and ${count(record.headers_more)} more`);
  return element("li", {},
    element("p", { class: "place" }, `${count(record.offset)} · ${time(record.timestamp_ms)}`,
      record.key ? ` · key ${said(record.key)}` : ""),
    element("pre", { tabindex: "0" }, said(record.value)),
    headers.length ? element("p", { class: "headers" }, headers.join(" · ")) : null);
}

function said(data) {
  if (data === null) return "null";
  const text = data.text ?? data.hex;
  return data.cut ? `${text} … (${bytes(data.size_bytes)} in all)` : text;
}
