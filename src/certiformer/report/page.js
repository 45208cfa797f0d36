"use strict";
// The report: shows the results of the page's data, as many sentences as fit on a screen.
const {el, button, number} = show;
const data = JSON.parse(document.getElementById("data").textContent);
const all = data.sentences.map((s, i) => i);
const PAGE = 50, FEW = 10;
const state = {sort: "order", find: "", page: 0};
const view = {norms: data.norms, norm: Math.max(0, data.norms.indexOf("l2")), colour: "relative", eps: null,
  levels: data.levels, most: data.most};
const opened = new Set(all.length <= FEW ? all : []);
const drawn = new Set(); // what follows the slider

function card(i) {
  const s = data.sentences[i], out = el("details", "card");
  const worst = ["error", "refuted", "unknown", "certified"].find(x => (s.verdicts || []).some(v => v[0] === x));
  const least = show.weakest(s, view), line = show.words(s, view);
  drawn.add(line);
  const head = el("span", "line");
  head.append(...line.node.childNodes);
  out.append(el("summary", "", el("span", "count soft", `${i + 1}`), head,
    el("span", "soft small end", `${s.label} (margin ${s.margin})`,
      worst ? el("span", `badge ${worst}`, worst) : null, least && ` ${data.norms[view.norm]} ${least}`)));
  const fill = () => {
    if (!out.open || out.querySelector(".body")) return;
    const made = show.body(s, view);
    drawn.add(made);
    out.append(made.node);
  };
  out.addEventListener("toggle", () => {
    fill();
    if (out.open) opened.add(i); else opened.delete(i);
  });
  out.open = opened.has(i);
  fill();
  return out;
}

function chosen() {
  const find = state.find.toLowerCase(), least = i => number(show.weakest(data.sentences[i], view) || "–");
  const found = find ? all.filter(i => data.sentences[i].text.toLowerCase().includes(find)) : [...all];
  if (state.sort === "weakest") found.sort((a, b) => least(a) - least(b));
  return found;
}

const controls = el("div", "controls"), list = el("div"), foot = el("div", "controls");
const search = el("input");
search.type = "search";
search.placeholder = "find in the sentences";
search.setAttribute("aria-label", "find in the sentences");
search.addEventListener("input", () => { state.find = search.value; state.page = 0; fill(); });

function fill() {
  const found = chosen(), pages = Math.max(1, Math.ceil(found.length / PAGE));
  state.page = Math.min(state.page, pages - 1);
  drawn.clear();
  list.replaceChildren(...found.slice(state.page * PAGE, (state.page + 1) * PAGE).map(card));
  foot.replaceChildren();
  if (pages > 1) {
    const go = (told, by) => {
      const b = button(told, () => { state.page += by; fill(); list.scrollIntoView(); });
      b.disabled = state.page + by < 0 || state.page + by >= pages;
      return b;
    };
    foot.append(go("first", -state.page || -1), go("before", -1), el("span", "soft small",
      `page ${state.page + 1} of ${pages}, ${found.length.toLocaleString("en")} sentences`), go("next", 1));
  }
}

function radius() {
  const farthest = data.sentences.reduce((most, s) => Math.max(most, show.farthest(s, view)), 0);
  const made = show.slider(view, 1.05 * farthest, () => {
    for (const part of drawn) part.refresh();
    tell();
  });
  const tell = () => {
    const total = {};
    for (const s of data.sentences) for (const [k, n] of Object.entries(show.counted(s, view))) total[k] = (total[k] || 0) + n;
    made.tell(show.tally(total));
  };
  tell();
  return made.node;
}

function draw() {
  const change = (key, target) => value => {
    target[key] = value;
    if (key === "norm") view.eps = null;
    state.page = 0;
    const pressed = document.activeElement.textContent;
    draw();
    for (const b of controls.querySelectorAll("button")) if (b.textContent === pressed) b.focus();
  };
  const parts = [];
  if (data.norms.length > 1) parts.push(show.choice("norm", data.norms.map((n, i) => [i, n]), view.norm, change("norm", view)));
  if (data.norms.length) parts.push(show.choice("colour",
    [["relative", "radius over length"], ["absolute", "radius"], ["status", "at a radius"]], view.colour, change("colour", view)));
  if (view.colour === "status") parts.push(radius());
  if (all.length > FEW) {
    parts.push(show.choice("order", [["order", "as given"], ["weakest", "weakest first"]], state.sort, change("sort", state)), search);
  }
  if (data.norms.length || data.sentences.some(s => s.ranks)) parts.push(show.legend(view));
  controls.replaceChildren(...parts);
  fill();
}

document.getElementById("app").append(controls, list, foot);
draw();
