"use strict";
// What the report and the app share: the words of a sentence in their colours, what is known of each, bars, a table,
// the radius to ask about. A sentence `s` is made by `certiformer.report.page`; a view says how it is looked at:
// {norms, norm, colour: "relative" | "absolute" | "status", eps, levels, most, more}. Text is only ever set as text.
const show = (() => {
  const NONE = "–", MOST = 60, STEPS = 200;
  const SIGNS = {certified: "✓", open: "?", refuted: "✗", error: "!"};

  function el(tag, cls, ...kids) {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    for (const k of kids) if (k !== null && k !== undefined && k !== "") e.append(k);
    return e;
  }
  function button(told, press, cls) {
    const b = el("button", cls || "", told);
    b.type = "button";
    b.addEventListener("click", press);
    return b;
  }
  const column = (run, name) => (run && run[name] ? run[name].split(" ") : []);
  const number = v => (v === undefined || v === NONE ? Infinity : Number(v));
  const percent = (c, a) => (c === undefined || a === undefined || a === NONE ? NONE : `${Math.floor(100 * c / a - 1e-9)}%`);
  const size = x => number(x.certified !== undefined ? x.certified : x.attacked);
  const runOf = (s, view) => (s.runs || {})[view.norm];
  const normOf = view => view.norms[view.norm];

  // the smallest radius of a sentence, certified where there is one
  function weakest(s, view) {
    const run = runOf(s, view), proved = column(run, "certified");
    const values = proved.length ? proved : column(run, "attacked");
    return values.length ? values.reduce((a, b) => (number(b) < number(a) ? b : a)) : "";
  }

  // the largest radius of a sentence, certified or attacked
  function farthest(s, view) {
    const run = runOf(s, view), values = [...column(run, "certified"), ...column(run, "attacked")].map(number);
    return Math.max(0, ...values.filter(Number.isFinite));
  }

  // the text cut into words, each with its position, what stands before it, and its colour
  function tokens(s, view) {
    const cuts = column(s, "cuts").map(Number), run = runOf(s, view), ranked = {};
    const colours = run ? run[view.colour === "absolute" ? "absolute" : "relative"] || "" : "";
    let end = 0;
    for (const r of s.ranks || []) ranked[r[7]] = r[6];
    return column(s, "at").map((position, k) => {
      const start = end + cuts[2 * k], before = s.text.slice(end, start);
      end = start + cuts[2 * k + 1];
      const level = run ? colours[k] : ranked[position];
      return {position, before, word: s.text.slice(start, end), level: level === "-" ? undefined : level, end};
    });
  }

  // what was found about each set of words
  function sets(s, view) {
    const run = runOf(s, view);
    if (!run) return [];
    const names = {}, together = [...(run.names || [])];
    for (const t of tokens(s, view)) names[t.position] = t.word;
    const c = column(run, "certified"), n = column(run, "normalized"), a = column(run, "attacked");
    return (run.sets ? column(run, "sets") : column(s, "at")).map((where, k) => ({
      where, name: where.includes("+") ? together.shift() : names[where] || where,
      certified: c[k], normalized: n[k], attacked: a[k], word: (run.words || [])[k],
      by: typeof run.by === "string" ? run.by : (run.by || [])[k]}));
  }

  // Certified radii are written rounded down and attacked ones rounded up, so what is read off them holds.
  function status(x, eps, run) {
    if (run.error) return "error";
    if (Math.min(number(x.attacked), x.word ? number(x.word[1]) : Infinity) <= eps) return "refuted";
    const proved = x.certified === undefined ? 0 : number(x.certified);
    return proved > 0 && eps <= proved ? "certified" : "open";
  }

  // the status of a word: that of the worst set it is in; not certified before all of its sets are known
  function statuses(s, view) {
    const run = runOf(s, view), found = {};
    const order = ["certified", "open", "refuted", "error"];
    for (const x of sets(s, view)) {
      const own = status(x, view.eps, run), held = run.left && x.where.includes("+") && own === "certified" ? "open" : own;
      for (const p of x.where.split("+")) if (order.indexOf(held) >= order.indexOf(found[p])) found[p] = held;
    }
    return found;
  }

  function counted(s, view) {
    const run = runOf(s, view), counts = {};
    for (const x of sets(s, view)) {
      const own = status(x, view.eps, run);
      counts[own] = (counts[own] || 0) + 1;
    }
    return counts;
  }

  // the set of words in which a word is weakest
  function setOf(s, view, position) {
    const mine = sets(s, view).filter(x => x.where.split("+").includes(position));
    return mine.length ? mine.reduce((a, b) => (size(b) < size(a) ? b : a)) : null;
  }

  function spoken(s, view, t, own) {
    const x = setOf(s, view, t.position), norm = normOf(view);
    if (!x) return t.word;
    const parts = [t.word];
    if (x.certified !== undefined) parts.push(`certified ${x.certified} in ${norm}`);
    if (x.attacked !== undefined) parts.push(x.attacked === NONE ? "no attack found" : `attacked ${x.attacked}`);
    if (own) parts.push(`${own} at ${view.eps}`);
    return parts.join(", ");
  }

  // The words as buttons. One of them takes part in the order of tabs; arrow keys go from word to word.
  function words(s, view, choose) {
    const out = el("p", "heat"), marks = [];
    let end = 0;
    for (const t of tokens(s, view)) {
      out.append(t.before);
      end = t.end;
      const e = el("span", "w", t.word);
      e.dataset.position = t.position;
      marks.push(e);
      out.append(e);
    }
    out.append(s.text.slice(end));
    const refresh = () => {
      const found = view.colour === "status" ? statuses(s, view) : {};
      tokens(s, view).forEach((t, k) => {
        const own = found[t.position], coloured = own ? `s-${own}` : t.level === undefined ? "" : `h${t.level}`;
        const known = coloured !== "" || !runOf(s, view);
        marks[k].className = `w ${known ? coloured : runOf(s, view).left ? "wait" : ""} ${choose && known ? "can" : ""}`;
        if (choose && coloured) marks[k].setAttribute("aria-label", spoken(s, view, t, own));
      });
    };
    refresh();
    if (choose) interactive(out, marks, choose);
    return {node: out, refresh, marks};
  }

  function interactive(out, marks, choose) {
    out.setAttribute("role", "group");
    out.setAttribute("aria-label", "Words of the sentence. Arrow keys go from word to word.");
    const pick = (e, focus) => {
      for (const m of marks) {
        m.tabIndex = m === e ? 0 : -1;
        m.setAttribute("aria-pressed", String(m === e));
      }
      if (focus) e.focus();
      choose(e.dataset.position);
    };
    marks.forEach((e, k) => {
      e.setAttribute("role", "button");
      e.setAttribute("aria-pressed", "false");
      e.tabIndex = k ? -1 : 0;
      e.addEventListener("click", () => pick(e, true));
      e.addEventListener("keydown", event => {
        const to = {ArrowRight: k + 1, ArrowLeft: k - 1, Home: 0, End: marks.length - 1, Enter: k, " ": k}[event.key];
        if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        if (marks[to]) pick(marks[to], true);
      });
    });
    out.pick = (position, focus) => {
      const e = marks.find(m => m.dataset.position === position);
      if (e) pick(e, focus);
    };
  }

  // what is proved of a word, and the closest attacks, in words and numbers
  function detail(s, view, position) {
    if (!runOf(s, view)) {
      const r = (s.ranks || []).find(r => r[7] === position);
      return r ? el("p", "", `${r[0]}: rank ${r[1]}, certified radius over length ${r[2]}.`) : "";
    }
    const x = setOf(s, view, position), norm = normOf(view), run = runOf(s, view);
    if (!x) return el("p", "soft", run.left ? "Not certified yet." : "This word was not moved.");
    const list = el("dl", "facts");
    const row = (name, told) => list.append(el("dt", "", name), el("dd", "", told));
    const each = x.where.includes("+") ? "each of them" : "its embedding";
    const share = x.normalized && x.normalized !== NONE ? ` That is ${x.normalized} of the embedding’s length.` : "";
    if (run.error) {
      row("Error", "A proof and an attack contradict each other: nothing is proved here. Please report it.");
    } else if (x.certified !== undefined) {
      row("Proved", Number(x.certified) > 0
        ? `No change of ${each} by less than ${x.certified} in ${norm} changes the answer ‘${s.label}’.${share}`
        : `Nothing could be proved in ${norm}.`);
    }
    if (x.attacked !== undefined) {
      row("Closest attack", x.attacked === NONE ? "None was found, which proves nothing."
        : `A change of ${x.attacked} in ${norm} gives ‘${x.by}’. It was run and checked.`);
    }
    if (run.words) {
      row("Closest word", !x.word ? "No single word of the vocabulary in its place changes the answer."
        : `‘${x.word[0]}’ in its place, ${x.word[1]} away in ${norm}, gives ‘${x.word[2]}’.`);
    }
    if (view.colour === "status") {
      const own = status(x, view.eps, run);
      const told = {certified: "certified: proved up to there.", open: "open: neither proved nor refuted.",
        refuted: "refuted: an attack gets there.", error: "error: a proof and an attack contradict each other."};
      row(`At ${view.eps}`, el("span", own, `${SIGNS[own]} ${told[own]}`));
    }
    const more = view.more ? view.more(s, x) : null; // what the app can do with it
    const least = size(x) === number(weakest(s, view)) ? ", may move least" : "";
    const where = el("span", "soft small", ` at ${x.where.split("+").join(" and ")}${least}`);
    return el("div", "", el("h4", "", `‘${x.name}’`, where), list, more);
  }

  function bars(s, view) {
    const rows = sets(s, view), run = runOf(s, view);
    const shown = rows.length <= MOST ? rows : [...rows].sort((a, b) => size(a) - size(b)).slice(0, MOST);
    const most = Math.max(...rows.flatMap(x => [number(x.certified), number(x.attacked)]).filter(Number.isFinite), 0);
    const list = el("ul", "bars"), marks = [];
    const part = (tag, v) => {
      const e = el(tag);
      e.style.width = `${most > 0 ? 100 * Number(v) / most : 0}%`;
      return e;
    };
    for (const x of shown) {
      const track = el("span", "track"), line = el("s");
      if (Number.isFinite(number(x.attacked))) track.append(part("i", x.attacked));
      if (Number.isFinite(number(x.certified))) track.append(part("b", x.certified));
      track.append(line);
      const values = [x.certified, x.attacked].filter(v => v !== undefined).map(v => (v === NONE ? "none" : v));
      const sign = el("span", "sign");
      marks.push({x, line, sign});
      list.append(el("li", "", el("span", "name", x.name), track, el("span", "num soft", values.join(" / "), sign)));
    }
    const refresh = () => {
      for (const {x, line, sign} of marks) {
        const on = view.colour === "status", own = on ? status(x, view.eps, run) : "";
        line.hidden = !on || !(most > 0) || view.eps > most;
        line.style.left = `${line.hidden ? 0 : 100 * view.eps / most}%`;
        sign.className = `sign ${own}`;
        sign.textContent = on ? SIGNS[own] : "";
      }
    };
    refresh();
    const more = rows.length - shown.length;
    return {refresh, node: el("div", "", keys(run, view), list,
      more ? el("p", "small soft", `and ${more.toLocaleString("en")} more sets with larger radii`) : null, table(shown, view))};
  }

  function keys(run, view) {
    const norm = normOf(view), out = el("p", "legend");
    if (run.certified) out.append(el("span", "", el("i", "key proved"), `certified (proved), ${norm}`));
    if (run.attacked) out.append(el("span", "", el("i", "key reached"), `attacked (counterexample), ${norm}`));
    return out;
  }

  function cells(tag, values, wide) {
    return el("tr", "", ...values.map((v, k) => {
      const e = el(tag, wide[k] ? "num wide" : "num", String(v));
      if (tag === "th") e.scope = "col";
      return e;
    }));
  }

  function table(rows, view) {
    const norm = normOf(view), near = rows.some(x => x.word), wide = [0, 1, 0, 0, 1, 1, 0, 1];
    const names = ["word", "position", `certified ${norm}`, `attacked ${norm}`, "proved share", "certified / length", "becomes"];
    const body = el("tbody");
    for (const x of rows) body.append(cells("td", [x.name, x.where, x.certified || NONE, x.attacked || NONE,
      percent(x.certified, x.attacked), x.normalized || NONE, x.by || NONE,
      ...(near ? [x.word ? `${x.word[0]} (${x.word[1]})` : NONE] : [])], wide));
    const scroll = el("div", "scroll", el("table", "", el("thead", "", cells("th", [...names, ...(near ? ["closest word"] : [])], wide)), body));
    return el("details", "", el("summary", "", `Table in ${norm}`), scroll);
  }

  function ranks(s) {
    const wide = [0, 0, 1, 0, 0], body = el("tbody");
    for (const r of s.ranks) body.append(cells("td", [r[0], r[1], r[2], r[3], r[5] ? `${r[4]} (${r[5]})` : r[4]], wide));
    return el("table", "", el("caption", "soft small", "Rank 1 is the most important word"),
      el("thead", "", cells("th", ["word", "by certified radius", "radius / length", "by gradient", "by closest word"], wide)), body);
  }

  // All about a sentence. `refresh` follows a change of colour or radius in the view.
  function body(s, view, position) {
    const run = runOf(s, view), out = el("div", "body", s.note ? el("p", "note small", `Note: ${s.note}.`) : null);
    for (const [own, told] of s.verdicts || []) out.append(el("p", "", el("span", `badge ${own}`, own), " ", told));
    if (!run && !s.ranks) {
      out.append(words(s, view).node);
      return {node: out, refresh() {}};
    }
    const hint = el("p", "soft", "Choose a word to read what is proved of it.");
    const told = el("div", "tip small", hint);
    told.setAttribute("aria-live", "polite");
    const made = {node: out, position, refresh() {}};
    const heat = words(s, view, p => { made.position = p; told.replaceChildren(detail(s, view, p)); });
    made.heat = heat.node;
    out.append(heat.node, told);
    const first = run && !run.left ? sets(s, view).reduce((a, b) => (a && size(a) <= size(b) ? a : b), null) : null;
    if (first) made.least = first.name;
    const chosen = position === undefined && first ? first.where.split("+")[0] : position;
    if (chosen !== undefined) heat.node.pick(chosen, false);
    if (run) {
      if (run.error) out.append(el("div", "bad", el("pre", "", run.error)));
      const chart = bars(s, view);
      out.append(chart.node, el("p", "small soft", run.costs || ""));
      made.refresh = () => {
        heat.refresh();
        chart.refresh();
        if (made.position !== undefined) told.replaceChildren(detail(s, view, made.position));
      };
    }
    if (s.ranks) out.append(ranks(s));
    return made;
  }

  function choice(name, options, value, choose) {
    const out = el("span", "choice", el("span", "soft small", name));
    out.setAttribute("role", "group");
    out.setAttribute("aria-label", name);
    for (const [own, told] of options) {
      const b = button(told, () => choose(own));
      b.setAttribute("aria-pressed", String(value === own));
      out.append(b);
    }
    return out;
  }

  function legend(view) {
    if (view.colour === "status") {
      const told = {certified: "certified: proved", open: "open: neither", refuted: "refuted: an attack gets there"};
      return el("p", "legend", ...Object.keys(told).map(k => el("span", "", el("span", `w s-${k}`, "word"), told[k])));
    }
    const ramp = el("span", "ramp");
    for (let i = 0; i < view.levels; i++) ramp.append(el("i", `h${i}`));
    const first = view.colour === "absolute" && view.most ? `half of ${view.most[view.norm]} or more` : "as long as the embedding or longer";
    return el("p", "legend", el("span", "", ramp, `radius ${first}, then half as much for each step`));
  }

  // The radius to ask about: a slider, and a field for a number of one's own.
  function slider(view, most, changed) {
    const range = el("input"), field = el("input"), told = el("span", "soft small");
    const top = most > 0 ? most : 1, written = v => String(Number(Number(v).toPrecision(3)));
    Object.assign(range, {type: "range", min: 0, max: STEPS, step: 1});
    Object.assign(field, {type: "text", inputMode: "decimal", size: 7});
    range.setAttribute("aria-label", `Radius in ${normOf(view)}`);
    field.setAttribute("aria-label", `Radius in ${normOf(view)}, as a number`);
    const set = (value, from) => {
      view.eps = value;
      if (from !== field) field.value = String(value);
      if (from !== range) range.value = String(Math.round(STEPS * value / top));
      range.setAttribute("aria-valuetext", `${value} in ${normOf(view)}`);
    };
    range.addEventListener("input", () => { set(Number(written(top * range.value / STEPS)), range); changed(); });
    field.addEventListener("change", () => {
      const value = Number(field.value);
      if (field.value.trim() !== "" && Number.isFinite(value) && value >= 0) { set(value, null); changed(); }
      else field.value = String(view.eps);
    });
    set(view.eps === null || view.eps === undefined ? Number(written(0.6 * top)) : view.eps, null);
    return {node: el("span", "slider", el("span", "soft small", `at radius, ${normOf(view)}`), range, field, told),
      tell(text) {
        told.textContent = text;
        if (text) range.setAttribute("aria-valuetext", `${view.eps} in ${normOf(view)}: ${text}`);
      }};
  }

  const tally = counts => Object.keys(SIGNS).filter(k => counts[k]).map(k => `${counts[k].toLocaleString("en")} ${k}`).join(", ");

  return {el, button, number, weakest, farthest, words, counted, tally, body, choice, legend, slider};
})();
