"use strict";
// Shows the results of the page's data. Text is only ever set as text.
const data = JSON.parse(document.getElementById("data").textContent);
const all = data.sentences.map((s, i) => i);
const PAGE = 50, FEW = 10, MOST = 60;
const state = {norm: Math.max(0, data.norms.indexOf("l2")), colour: "relative", sort: "order", find: "", page: 0};
const opened = new Set(all.length <= FEW ? all : []);

function el(tag, cls, ...kids) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  for (const k of kids) if (k !== null && k !== undefined && k !== "") e.append(k);
  return e;
}
const column = (run, name) => (run && run[name] ? run[name].split(" ") : []);
const number = v => (v === undefined || v === "–" ? Infinity : Number(v));
const percent = (c, a) => (c === undefined || a === undefined || a === "–" ? "–" : `${Math.floor(100 * c / a - 1e-9)}%`);
const runOf = s => (s.runs || {})[state.norm];

function weakest(s) {
  const run = runOf(s);
  const values = column(run, "certified").length ? column(run, "certified") : column(run, "attacked");
  return values.length ? values.reduce((a, b) => (number(b) < number(a) ? b : a)) : "";
}

function tokens(s) {
  const cuts = column(s, "cuts").map(Number), run = runOf(s), ranked = {};
  let end = 0;
  for (const r of s.ranks || []) ranked[r[7]] = r[6];
  return column(s, "at").map((position, k) => {
    const start = end + cuts[2 * k], before = s.text.slice(end, start);
    end = start + cuts[2 * k + 1];
    const level = run ? (run[state.colour] || "")[k] : ranked[position];
    return {position, before, word: s.text.slice(start, end), level: level === "-" ? undefined : level, end};
  });
}

function sets(s) {
  const run = runOf(s), names = {}, together = [...(run.names || [])];
  for (const t of tokens(s)) names[t.position] = t.word;
  const c = column(run, "certified"), n = column(run, "normalized"), a = column(run, "attacked");
  return (run.sets ? column(run, "sets") : column(s, "at")).map((where, k) => ({
    where, name: where.includes("+") ? together.shift() : names[where] || where,
    certified: c[k], normalized: n[k], attacked: a[k], by: typeof run.by === "string" ? run.by : (run.by || [])[k]}));
}

function tip(s, position) {
  const norm = data.norms[state.norm];
  if (!runOf(s)) {
    const r = s.ranks.find(r => r[7] === position);
    return r ? `${r[0]}: rank ${r[1]}, certified radius over length ${r[2]}.` : "";
  }
  const mine = sets(s).filter(x => x.where.split("+").includes(position));
  if (!mine.length) return "";
  const x = mine.reduce((a, b) => (number(b.certified || b.attacked) < number(a.certified || a.attacked) ? b : a));
  const parts = [];
  if (x.certified !== undefined) parts.push(`certified ${x.certified} in ${norm}`);
  if (x.normalized !== undefined) parts.push(`${x.normalized} of the embedding's length`);
  if (x.attacked !== undefined) parts.push(x.attacked === "–" ? "no attack found" : `attacked ${x.attacked} in ${norm}`);
  return `${x.name}: ${parts.join(", ")}.`;
}

function words(s, tips) {
  const out = el("span");
  const hint = tips ? el("p", "tip small soft", "Point at a word, tap it or tab to it to read its radii.") : null;
  let end = 0;
  for (const t of tokens(s)) {
    out.append(t.before);
    end = t.end;
    if (t.level === undefined) { out.append(t.word); continue; }
    const e = el("span", `w h${t.level}`, t.word);
    if (tips) {
      e.tabIndex = 0;
      const tell = () => { hint.textContent = tip(s, t.position); };
      e.addEventListener("mouseenter", tell);
      e.addEventListener("focus", tell);
    }
    out.append(e);
  }
  out.append(s.text.slice(end));
  if (!tips) return out;
  hint.setAttribute("aria-live", "polite");
  return el("div", "", el("p", "heat", out), hint);
}

function bars(s) {
  const rows = sets(s), run = runOf(s);
  const size = x => number(x.certified !== undefined ? x.certified : x.attacked);
  const shown = rows.length <= MOST ? rows : [...rows].sort((a, b) => size(a) - size(b)).slice(0, MOST);
  const most = Math.max(...rows.flatMap(x => [number(x.certified), number(x.attacked)]).filter(Number.isFinite), 0);
  const list = el("ul", "bars");
  const part = (tag, v) => {
    const e = el(tag);
    e.style.width = `${most > 0 ? 100 * Number(v) / most : 0}%`;
    return e;
  };
  for (const x of shown) {
    const track = el("span", "track");
    if (Number.isFinite(number(x.attacked))) track.append(part("i", x.attacked));
    if (Number.isFinite(number(x.certified))) track.append(part("b", x.certified));
    const values = [x.certified, x.attacked].filter(v => v !== undefined).map(v => (v === "–" ? "none" : v));
    list.append(el("li", "", el("span", "name", x.name), track, el("span", "num soft", values.join(" / "))));
  }
  const more = rows.length - shown.length;
  return el("div", "", keys(run), list,
    more ? el("p", "small soft", `and ${more.toLocaleString("en")} more sets with larger radii`) : null, table(shown));
}

function keys(run) {
  const norm = data.norms[state.norm], out = el("p", "legend");
  if (run.certified) out.append(el("span", "", el("i", "key proved"), `certified (proved), ${norm}`));
  if (run.attacked) out.append(el("span", "", el("i", "key reached"), `attacked (counterexample), ${norm}`));
  return out;
}

function cells(tag, values, wide) {
  return el("tr", "", ...values.map((v, k) => el(tag, wide[k] ? "num wide" : "num", String(v))));
}

function table(rows) {
  const norm = data.norms[state.norm], wide = [0, 1, 0, 0, 1, 1, 0];
  const names = ["word", "position", `certified ${norm}`, `attacked ${norm}`, "proved share", "certified / length", "becomes"];
  const body = el("tbody");
  for (const x of rows) body.append(cells("td", [x.name, x.where, x.certified || "–", x.attacked || "–", percent(x.certified, x.attacked),
    x.normalized || "–", x.by || "–"], wide));
  return el("details", "", el("summary", "", `Table in ${norm}`),
    el("table", "", el("thead", "", cells("th", names, wide)), body));
}

function ranks(s) {
  const wide = [0, 0, 1, 0, 0];
  const body = el("tbody");
  for (const r of s.ranks) body.append(cells("td", [r[0], r[1], r[2], r[3], r[5] ? `${r[4]} (${r[5]})` : r[4]], wide));
  return el("table", "", el("caption", "soft small", "Rank 1 is the most important word"),
    el("thead", "", cells("th", ["word", "by certified radius", "radius / length", "by gradient", "by closest word"], wide)), body);
}

function body(s) {
  const out = el("div", "body", s.note ? el("p", "note small", `Note: ${s.note}.`) : null);
  for (const [status, told] of s.verdicts || [])
    out.append(el("p", "", el("span", `badge ${status}`, status), " ", told));
  out.append(words(s, Boolean(runOf(s) || s.ranks)));
  const run = runOf(s);
  if (run) {
    if (run.error) out.append(el("div", "bad", el("pre", "", run.error)));
    out.append(el("p", "", run.told), bars(s), el("p", "small soft", run.costs || ""));
  }
  if (s.ranks) out.append(ranks(s));
  return out;
}

function card(i) {
  const s = data.sentences[i], out = el("details", "card");
  const worst = ["error", "refuted", "unknown", "certified"].find(x => (s.verdicts || []).some(v => v[0] === x));
  const least = weakest(s);
  out.append(el("summary", "", el("span", "count soft", `${i + 1}`), el("span", "line", words(s, false)),
    el("span", "soft small end", `${s.label} (margin ${s.margin})`,
      worst ? el("span", `badge ${worst}`, worst) : null, least && ` ${data.norms[state.norm]} ${least}`)));
  const fill = () => {
    if (out.open && !out.querySelector(".body")) out.append(body(s));
    if (out.open) opened.add(i); else opened.delete(i);
  };
  out.addEventListener("toggle", fill);
  if (opened.has(i)) { out.open = true; out.append(body(s)); }
  return out;
}

function chosen() {
  const find = state.find.toLowerCase();
  const found = find ? all.filter(i => data.sentences[i].text.toLowerCase().includes(find)) : [...all];
  if (state.sort === "weakest") found.sort((a, b) => number(weakest(data.sentences[a]) || "–") - number(weakest(data.sentences[b]) || "–"));
  return found;
}

function choice(name, options, key) {
  const out = el("span", "choice", el("span", "soft small", name));
  for (const [value, told] of options) {
    const b = el("button", "", told);
    b.type = "button";
    b.setAttribute("aria-pressed", String(state[key] === value));
    b.addEventListener("click", () => { state[key] = value; state.page = 0; draw(); });
    out.append(b);
  }
  return out;
}

function legend() {
  const ramp = el("span", "ramp");
  for (let i = 0; i < data.levels; i++) ramp.append(el("i", `h${i}`));
  const first = !data.norms.length || state.colour === "relative" ? "as long as the embedding or longer" : `half of ${data.most[state.norm]} or more`;
  return el("p", "legend", el("span", "", ramp, `radius ${first}, then half as much for each step`));
}

const controls = el("div", "controls"), list = el("div"), foot = el("div", "controls");
const search = el("input");
search.type = "search";
search.placeholder = "find in the sentences";
search.setAttribute("aria-label", "find in the sentences");
search.addEventListener("input", () => { state.find = search.value; state.page = 0; show(); });

function show() {
  const found = chosen(), pages = Math.max(1, Math.ceil(found.length / PAGE));
  state.page = Math.min(state.page, pages - 1);
  list.replaceChildren(...found.slice(state.page * PAGE, (state.page + 1) * PAGE).map(card));
  foot.replaceChildren();
  if (pages > 1) {
    const go = (told, by) => {
      const b = el("button", "", told);
      b.type = "button";
      b.disabled = state.page + by < 0 || state.page + by >= pages;
      b.addEventListener("click", () => { state.page += by; show(); list.scrollIntoView(); });
      return b;
    };
    foot.append(go("first", -state.page || -1), go("before", -1), el("span", "soft small",
      `page ${state.page + 1} of ${pages}, ${found.length.toLocaleString("en")} sentences`), go("next", 1));
  }
}

function draw() {
  controls.replaceChildren();
  if (data.norms.length > 1) controls.append(choice("norm", data.norms.map((n, i) => [i, n]), "norm"));
  if (data.norms.length) controls.append(choice("colour", [["relative", "radius over length"], ["absolute", "radius"]], "colour"));
  if (all.length > FEW) {
    controls.append(choice("order", [["order", "as given"], ["weakest", "weakest first"]], "sort"), search);
  }
  if (data.norms.length || data.sentences.some(s => s.ranks)) controls.append(legend());
  show();
}

document.getElementById("app").append(controls, list, foot);
draw();
