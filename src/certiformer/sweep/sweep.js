"use strict";
// A table of the page's data that is sorted by a click on a column. Text is only ever set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 100;
const state = {column: 0, down: false, find: "", shown: PAGE};
const empty = v => v === null || v === "";

function order(a, b) {
  const x = a[state.column], y = b[state.column];
  if (empty(x) || empty(y)) return empty(x) - empty(y);
  const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  return state.down ? -by : by;
}

function cell(tag, content) {
  const e = document.createElement(tag);
  e.textContent = empty(content) ? "–" : content;
  if (typeof content === "number") e.className = "num";
  return e;
}

function head() {
  const row = document.createElement("tr");
  data.columns.forEach((name, k) => {
    const th = document.createElement("th"), button = document.createElement("button");
    th.scope = "col";
    if (k === state.column) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    button.textContent = name + (k === state.column ? (state.down ? " ↓" : " ↑") : "");
    button.onclick = () => {
      state.down = k === state.column && !state.down;
      state.column = k;
      show();
    };
    th.append(button);
    row.append(th);
  });
  return row;
}

function show() {
  const app = document.getElementById("app"), find = state.find.toLowerCase();
  const rows = data.rows.filter(r => !find || r.some(v => String(v).toLowerCase().includes(find))).sort(order);
  const table = document.createElement("table"), thead = document.createElement("thead"), body = document.createElement("tbody");
  thead.append(head());
  for (const r of rows.slice(0, state.shown)) {
    const tr = document.createElement("tr");
    tr.append(...r.map(v => cell("td", v)));
    body.append(tr);
  }
  table.append(thead, body);
  document.getElementById("count").textContent = `${Math.min(state.shown, rows.length)} of ${rows.length} rows`;
  document.getElementById("more").hidden = rows.length <= state.shown;
  app.replaceChildren(table);
}

document.getElementById("find").oninput = e => { state.find = e.target.value; state.shown = PAGE; show(); };
document.getElementById("more").onclick = () => { state.shown += 10 * PAGE; show(); };
show();
