"use strict";
// The app: asks the server about a sentence, and shows what it tells while it is found. Text is only ever set as text.
const {el, button} = show;
const $ = name => document.getElementById(name);
const FIELDS = ["text", "model", "other", "norm", "words", "budget"];
const EXAMPLES = ["a thin plot but a wonderful cast", "a dull and lifeless film", "not bad at all"];
const view = {norms: [""], norm: 0, colour: "relative", eps: null, levels: 0};
let panels = [], touched = false, known = {models: []};

view.more = (s, x) => {
  const panel = panels.find(p => p.sentence === s);
  return panel && !panel.running && !s.runs[view.norm].error && Number(x.certified) > 0 ? panel.certificate(x) : null;
};

async function call(method, path, content) {
  const how = {method, headers: {}};
  if (content) { how.headers["Content-Type"] = "application/json"; how.body = JSON.stringify(content); }
  let answer;
  try { answer = await fetch(path, how); } catch { throw new Error("the server does not answer"); }
  const body = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.message || `the server answers ${answer.status}`);
  return body;
}

function say(text, wrong) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", Boolean(wrong));
}

const left = seconds => (seconds < 1.5 ? "about a second" : seconds < 90 ? `about ${Math.round(seconds)} s` : `about ${Math.round(seconds / 60)} min`);
const sentenceCase = text => text.charAt(0).toUpperCase() + text.slice(1);

// Follow what is told of a question, to its end.
function follow(name, take) {
  const stream = new EventSource(`api/questions/${name}/events`);
  stream.addEventListener("message", event => {
    const message = JSON.parse(event.data);
    if (message.kind === "end") stream.close();
    take(message);
  });
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) take({kind: "end", state: "failed", message: "the connection was lost", files: []});
  });
  return stream;
}

function download(name, file, told) {
  const link = el("a", "", told);
  link.href = `api/questions/${name}/${encodeURIComponent(file)}`;
  link.download = `certiformer-${file}`;
  return link;
}

// What one model says of the sentence.
class Panel {
  constructor(model, asked) {
    this.model = model;
    this.asked = asked;
    this.running = true;
    this.proofs = {};
    this.told = el("span", "small soft", "waiting");
    this.bar = el("progress");
    this.bar.max = 1;
    this.bar.setAttribute("aria-label", `Progress of ${model}`);
    this.says = el("span", "soft");
    this.meter = el("div", "meter", this.bar, this.told);
    this.place = el("div");
    this.files = el("p", "small files");
    this.node = el("section", "", el("div", "head", el("h2", "", model, el("span", "soft small", about(model))), this.says), this.meter, this.place, this.files);
    this.node.setAttribute("aria-label", `Model ${model}`);
  }

  async start() {
    try {
      const {name} = await call("POST", "api/questions", this.asked);
      this.name = name;
      if (!this.running) { await this.stop(); return; }
      this.stream = follow(name, message => this.take(message));
    } catch (error) {
      this.end({state: "failed", message: error.message, files: []});
    }
  }

  take(message) {
    if (message.kind === "waiting") this.told.textContent = message.ahead ? `waiting: ${message.ahead} before this one` : "starting";
    if (message.kind === "sentence") this.draw(message);
    if (message.kind === "progress") {
      this.bar.value = message.done;
      this.told.textContent = message.left === null ? "working" : `${left(message.left)} left`;
    }
    if (message.kind === "end") this.end(message);
  }

  draw(message) {
    const first = !this.sentence;
    this.sentence = message.sentence;
    this.bar.value = message.done / message.sets;
    view.norms = [message.norm];
    this.says.textContent = `says ${this.sentence.label} (margin ${this.sentence.margin})`;
    if (first) say(`${this.model} says ${this.sentence.label}. Certifying ${message.sets} ${message.sets === 1 ? "word" : this.asked.words > 1 ? "sets of words" : "words"}.`);
    this.redraw();
    controls();
  }

  // Draw again what is there, with the word that was chosen, and the keyboard where it was.
  redraw() {
    if (!this.sentence) return;
    const position = this.body && this.body.position, open = Boolean(this.place.querySelector("details[open]"));
    const held = this.place.contains(document.activeElement) && document.activeElement.dataset.position;
    this.body = show.body(this.sentence, view, position);
    this.place.replaceChildren(this.body.node);
    for (const d of this.place.querySelectorAll("details")) d.open = open;
    if (held && this.body.heat) this.body.heat.pick(held, true);
  }

  end(message) {
    if (!this.running) return;
    this.running = false;
    this.meter.remove();
    if (this.sentence) for (const run of Object.values(this.sentence.runs || {})) delete run.left;
    this.redraw();
    if (message.state === "failed") this.place.append(el("p", "bad", sentenceCase(message.message)));
    if (message.state === "stopped") this.place.append(el("p", "note", `${sentenceCase(message.message || "stopped")}: this is what was found by then.`));
    if (message.files.length) this.files.append(download(this.name, "report.html", "Download the report"),
      download(this.name, "report.json", "Download the JSON"));
    finished();
  }

  // The proof of one set of words as a file that another program checks.
  certificate(x) {
    if (this.proofs[x.where]) return el("p", "proof", "Certificate: ", this.proofs[x.where]);
    const told = el("span", "soft small"), out = el("p", "proof");
    told.setAttribute("role", "status");
    const make = button(`Make a certificate of ${x.certified}`, async () => {
      make.disabled = true;
      told.textContent = "working";
      const failed = text => { make.disabled = false; told.textContent = sentenceCase(text); };
      try {
        const {name} = await call("POST", "api/questions", {...this.asked, positions: x.where, radius: x.certified});
        follow(name, message => {
          if (message.kind !== "end") return;
          if (!message.files.length) { failed(message.message || "stopped"); return; }
          const link = this.proofs[x.where] = download(name, message.files[0], message.files[0]);
          const held = document.activeElement === make || document.activeElement === document.body;
          out.replaceChildren("Certificate: ", link);
          if (held) link.focus();
        });
      } catch (error) { failed(error.message); }
    });
    out.append(make, " ", told);
    return out;
  }

  async stop() {
    if (this.name) await call("DELETE", `api/questions/${this.name}`).catch(() => {});
    else this.end({state: "stopped", message: "stopped", files: []});
  }

  // Nobody looks at it any longer.
  drop() {
    if (this.running && this.stream) this.stream.close();
    if (this.running && this.name) call("DELETE", `api/questions/${this.name}`).catch(() => {});
    this.running = false;
  }
}

function finished() {
  controls();
  if (panels.some(p => p.running)) return;
  $("go").disabled = false;
  $("stop").hidden = true;
  const failed = panels.every(p => !p.sentence);
  const least = panels.map(p => p.sentence && p.body && p.body.least).filter(Boolean);
  say(failed ? "Nothing was found." : `Done. ${least.length ? `May move least: ${least.join(", ")}.` : ""}`, failed);
  $("share").hidden = failed;
}

// In a line: how many words are certified, open and refuted at the radius of the slider.
function summary() {
  if (view.eps === null) return "";
  const parts = panels.filter(p => p.sentence).map(p => {
    const told = show.tally(show.counted(p.sentence, view));
    return panels.length > 1 ? `${p.model}: ${told}` : told;
  });
  return `At ${view.eps} in ${view.norms[0]}: ${parts.join("; ")}.`;
}

// The colours, the slider, the legend. While somebody holds the slider it stays as it is.
function controls() {
  const farthest = Math.max(0, ...panels.filter(p => p.sentence).map(p => show.farthest(p.sentence, view)));
  $("controls").hidden = !(farthest > 0);
  if (!(farthest > 0) || $("controls").querySelector(".slider:focus-within")) { refresh(); return; }
  if (!touched) view.eps = null;
  const made = show.slider(view, 1.05 * farthest, () => {
    touched = true;
    const before = view.colour;
    view.colour = "status";
    if (before !== "status") repaint();
    refresh();
    remember();
  });
  const paint = value => { view.colour = value; repaint(); refresh(); remember(); };
  const pick = el("span"), legend = el("span");
  const repaint = () => {
    const held = pick.contains(document.activeElement);
    pick.replaceChildren(show.choice("colour", [["relative", "how far it may move"], ["status", "at a radius"]], view.colour, paint));
    legend.replaceChildren(show.legend(view));
    if (held) pick.querySelector("[aria-pressed=true]").focus();
  };
  repaint();
  const note = panels.length > 1 ? el("p", "small soft wide-note", "A radius is in units of a model’s own embeddings. To compare the two, look at "
    + "the colours, which are relative to the length of each embedding.") : "";
  $("controls").replaceChildren(pick, made.node, legend, note);
  controls.tell = made.tell;
  refresh();
}

function refresh() {
  for (const p of panels) if (p.body) p.body.refresh();
  if (controls.tell) controls.tell(view.colour === "status" ? summary() : "");
}

// The address holds all that is needed to ask the same again. What stands behind # is never sent to a server.
function remember() {
  const held = new URLSearchParams();
  for (const name of FIELDS) if ($(name).value) held.set(name, $(name).value);
  if (touched && view.colour === "status") held.set("radius", view.eps);
  history.replaceState(null, "", `#${held}`);
  $("link").value = location.href;
}

function recall() {
  const held = new URLSearchParams(location.hash.slice(1)), radius = Number(held.get("radius"));
  for (const name of FIELDS) {
    const field = $(name), value = held.get(name);
    if (value !== null && (field.tagName !== "SELECT" || [...field.options].some(o => o.value === value))) field.value = value;
  }
  touched = held.has("radius") && Number.isFinite(radius) && radius >= 0;
  view.eps = touched ? radius : null;
  view.colour = touched ? "status" : "relative";
  return held.has("text");
}

function ask(again) {
  const text = $("text").value.trim();
  if (!text) { say("Type a sentence first.", true); $("text").focus(); return; }
  for (const p of panels) p.drop();
  if (!again) { touched = false; view.eps = null; view.colour = "relative"; }
  const asked = {text, norm: $("norm").value, words: Number($("words").value), budget: $("budget").value};
  const names = [$("model").value, $("other").value].filter((name, k, all) => name && all.indexOf(name) === k);
  panels = names.map(model => new Panel(model, {...asked, model}));
  $("panels").replaceChildren(...panels.map(p => p.node));
  $("controls").hidden = $("share").hidden = true;
  $("go").disabled = true;
  $("stop").hidden = false;
  say("Asking.");
  remember();
  for (const p of panels) p.start();
}

function shareable() {
  const link = el("input");
  link.id = "link";
  link.readOnly = true;
  link.setAttribute("aria-label", "Link to this question");
  link.addEventListener("focus", () => link.select());
  const told = el("span", "soft small");
  told.setAttribute("role", "status");
  const copy = button("Copy link", async () => {
    try { await navigator.clipboard.writeText(location.href); told.textContent = "copied"; }
    catch { link.focus(); link.select(); told.textContent = "select and copy"; }
  });
  $("share").replaceChildren(copy, link, told);
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, told]) => {
    const option = el("option", "", told);
    option.value = value;
    return option;
  }));
}

// What is known of a model, behind its name.
function about(name) {
  const {layers, accuracy} = (known.models.find(m => m.name === name) || {facts: {}}).facts;
  const right = accuracy ? `${(100 * accuracy).toFixed(1)} % right on its test data` : "";
  const told = [layers ? `${layers} layer${layers === 1 ? "" : "s"}` : "", right].filter(Boolean).join(", ");
  return told && ` ${told}`;
}

async function begin() {
  try { known = await call("GET", "api/models"); } catch (error) { say(sentenceCase(error.message), true); return; }
  view.levels = known.levels;
  const models = known.models.map(m => [m.name, m.name]);
  fill($("model"), models);
  fill($("other"), [["", "no other"], ...models]);
  fill($("norm"), known.norms.map(p => [p, `l${p}`]));
  fill($("words"), known.words.map(n => [n, n === 1 ? "one word" : `${n} together`]));
  $("norm").value = "2";
  $("budget").value = "balanced";
  if (known.models.length < 2) $("other").parentElement.hidden = true;
  $("text").maxLength = 40 * known.limits.longest;
  for (const text of EXAMPLES) $("examples").append(button(text, () => { $("text").value = text; ask(false); }));
  shareable();
  $("ask").addEventListener("submit", event => { event.preventDefault(); ask(false); });
  $("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); $("ask").requestSubmit(); }
  });
  $("stop").addEventListener("click", () => { for (const p of panels) if (p.running) p.stop(); });
  addEventListener("hashchange", () => { if (recall()) ask(true); });
  if (recall()) ask(true); else $("text").focus();
}

begin();
