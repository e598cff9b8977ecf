// SPDX-License-Identifier: GPL-2.0-only
"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const N = D.time.length, LANES = D.hosts.length;
const safe = text => String(text).replace(/[&<>"]/g, c => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})[c]);
const colour = tone => `var(--${tone})`;
const narrow = () => innerWidth < 640;

// Times and sizes in words
function stamp(ns) {
  const size = Math.abs(ns);
  if (size < 1e6) return `${(ns / 1e3).toFixed(3)} µs`;
  return size < 1e9 ? `${(ns / 1e6).toFixed(6)} ms` : `${(ns / 1e9).toFixed(9)} s`;
}
function short(ns, step) {
  const [unit, name] = step >= 1e9 ? [1e9, "s"] : step >= 1e6 ? [1e6, "ms"] : step >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  return `${+(ns / unit).toPrecision(6)} ${name}`;
}
function nice(span, most) {
  const raw = span / most, base = 10 ** Math.floor(Math.log10(raw || 1));
  return [1, 2, 5, 10].map(k => k * base).find(step => step >= raw);
}

// What is shown: rows that the filter, the tones and the chosen time leave
const tones = new Set(D.tones.map((_, at) => at));
let shown = [], range = null, picked = -1, found = [], at = -1, zoom = 1, hits = new Set();
const runs = new Map();
const haystack = Array.from({length: N}, (_, i) =>
  `${D.text[i]} ${D.hosts[D.src[i]]} ${D.hosts[D.dst[i]]} ${D.whys[D.why[i]]} #${D.number[i]}`.toLowerCase());

function test(term) {
  const not = term.startsWith("-") && term.length > 1, word = (not ? term.slice(1) : term).toLowerCase();
  const span = word.match(/^#(\d+)(?:-#?(\d+))?$/), [key, value] = word.split(/:(.*)/s);
  let ok;
  if (span) { const last = +(span[2] ?? span[1]); ok = i => D.number[i] >= +span[1] && D.number[i] <= last; }
  else if (key === "tone" && value) ok = i => D.tones[D.tone[i]].startsWith(value);
  else if (key === "host" && value) ok = i => D.hosts[D.src[i]].includes(value) || D.hosts[D.dst[i]].includes(value);
  else if (key === "flow" && value) ok = i => D.flow[i] === +value;
  else ok = i => haystack[i].includes(word);
  return not ? i => !ok(i) : ok;
}
function refresh() {
  const tests = $("filter").value.split(/\s+/).filter(Boolean).map(test), flow = +$("flow").value;
  shown = [];
  for (let i = 0; i < N; i++) {
    if (!tones.has(D.tone[i]) || (flow >= 0 && D.flow[i] !== flow)) continue;
    if (range && (D.time[i] < range[0] || D.time[i] > range[1])) continue;
    if (tests.every(ok => ok(i))) shown.push(i);
  }
  const rows = shown.length;
  fold();
  $("rows").style.height = `${shown.length * height()}px`;
  $("count").textContent = `${rows.toLocaleString("en")} of ${N.toLocaleString("en")} rows`;
  $("all").hidden = !range;
  search(false);
  draw();
  plot();
}
function fold() {
  runs.clear();
  if ($("fold").getAttribute("aria-pressed") !== "true") return;
  const like = (i, j) => D.src[i] === D.src[j] && D.dst[i] === D.dst[j] && D.tone[i] === D.tone[j] && D.flow[i] === D.flow[j];
  const kept = [];
  for (let from = 0, to; from < shown.length; from = to) {
    for (to = from + 1; to < shown.length && like(shown[from], shown[to]);) to++;
    if (to - from < 3) kept.push(...shown.slice(from, to));
    else { kept.push(shown[from]); runs.set(shown[from], [to - from, shown[to - 1]]); }
  }
  shown = kept;
}
function words(i) {
  const run = runs.get(i);
  return run ? `${run[0]} × ${D.text[i]} … #${D.number[run[1]]}` : D.text[i];
}
function search(jump) {
  const word = $("search").value.toLowerCase();
  found = word ? shown.map((i, place) => haystack[i].includes(word) ? place : -1).filter(place => place >= 0) : [];
  hits = new Set(found.map(place => shown[place]));
  at = found.length ? 0 : -1;
  if (jump && found.length) go(0); else told();
  draw();
}
function told() {
  const none = $("search").value && !found.length;
  $("found").textContent = found.length ? `${at + 1} of ${found.length.toLocaleString("en")}` : none ? "nothing" : "";
  $("next").disabled = $("before").disabled = !found.length;
}
function go(step) {
  at = (at + step + found.length) % found.length;
  pick(shown[found[at]]);
  show(found[at]);
  told();
}
function show(place) {
  const box = $("ladder"), y = place * height();
  if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - 4 * height()) box.scrollTop = y - box.clientHeight / 3;
  draw();
}

// The ladder: only rows in sight are in the document
const height = () => Math.round(24 * zoom), gap = () => Math.round((narrow() ? 76 : LANES > 5 ? 72 : LANES > 2 ? 96 : 220) * zoom);
const left = () => narrow() ? 160 : 188, wide = () => gap() * LANES;
function arrow(i) {
  const h = height(), y = h / 2, g = gap(), x = lane => g / 2 + g * lane, kind = D.tones[D.tone[i]], c = colour(kind);
  let body = "";
  for (let lane = 0; lane < LANES; lane++) body += `<line class="life" x1="${x(lane)}" y1="0" x2="${x(lane)}" y2="${h}"/>`;
  const a = x(D.src[i]), way = D.dst[i] >= D.src[i] ? 1 : -1;
  let b = x(D.dst[i]);
  if (D.src[i] === D.dst[i]) return body + `<circle cx="${a}" cy="${y}" r="4" fill="${c}"/>`;
  if (kind === "lost") b -= (b - a) * .15;
  const dash = kind === "retx" ? ' stroke-dasharray="5 3"' : kind === "trimmed" ? ' stroke-dasharray="1 3"' : "";
  body += `<line x1="${a}" y1="${y}" x2="${b - 8 * way}" y2="${y}" stroke="${c}" stroke-width="1.6"${dash}/>`;
  body += kind === "lost" || kind === "bad"
    ? `<path d="M${b - 10 * way} ${y - 5}l${10 * way} 10m0 -10l${-10 * way} 10" stroke="${c}" stroke-width="1.6" fill="none"/>`
    : `<path d="M${b - 1 * way} ${y}L${b - 9 * way} ${y - 4}V${y + 4}Z" fill="${c}"/>`;
  for (const [lane] of D.via[i] ?? []) body += `<circle cx="${x(lane)}" cy="${y}" r="3.5" fill="${c}"/>`;
  return body;
}
function draw() {
  const box = $("ladder"), h = height(), first = Math.max(0, Math.floor(box.scrollTop / h) - 8);
  const last = Math.min(shown.length, first + Math.ceil(box.clientHeight / h) + 16), w = wide();
  let html = "";
  for (let place = first; place < last; place++) {
    const i = shown[place], kind = D.tones[D.tone[i]];
    const mark = `${i === picked ? " picked" : ""}${hits.has(i) ? " found" : ""}`;
    html += `<div class="row${mark}" data-i="${i}" style="top:${place * h}px;height:${h}px"><span class="time">`
      + `${stamp(D.time[i])}</span><span class="number">#${D.number[i]}</span><svg width="${w}" height="${h}">${arrow(i)}</svg>`
      + `<span class="text" style="color:${colour(kind)}">${safe(words(i))}</span></div>`;
  }
  $("rows").innerHTML = html;
  sight(first, last);
}
function heads() {
  const g = gap();
  $("heads").innerHTML = '<span class="left" style="left:.5rem">time</span>' + D.hosts.map((name, lane) =>
    `<span style="left:${left() + g / 2 + g * lane}px" title="${safe(name)}">${safe(name.length * 8.5 > g ? "…" + name.slice(1 - Math.floor(g / 8.5)) : name)}</span>`).join("");
  document.querySelectorAll("#rows, #heads").forEach(one => { one.style.width = `${left() + wide() + 900}px`; });
}
function scale(factor) {
  const box = $("ladder"), place = box.scrollTop / height();
  zoom = Math.min(3, Math.max(.5, zoom * factor));
  heads();
  $("rows").style.height = `${shown.length * height()}px`;
  box.scrollTop = place * height();
  draw();
}

// A packet: its fields, from the tables of the headers, and its bytes
const bytesOf = i => Uint8Array.from(atob(D.bytes[i]), c => c.charCodeAt(0));
function bits(data, start, size) {
  let value = 0n;
  for (let bit = start; bit < start + size; bit++) value = value << 1n | BigInt(data[bit >> 3] >> 7 - (bit & 7) & 1);
  return value;
}
function said(form, name, size, value, codes) {
  const number = Number(value);
  if (/^(ipv4)$/.test(form) && /^(src|dst)$/.test(name)) return [24, 16, 8, 0].map(k => number / 2 ** k & 255).join(".");
  if (form === "ethernet" && /^(src|dst)$/.test(name)) return value.toString(16).padStart(12, "0").match(/../g).join(":");
  if (size > 32) return "0x" + value.toString(16);
  const named = codes && codes[value];
  return named ? `${value} ${named}` : String(value);
}
const TINTS = ["#7ab0ff55", "#5fd38d55", "#fbbf4a55", "#ee8bfb55", "#4fd0e655", "#ff858555"];
function detail(i) {
  if (i < 0) return;
  const data = bytesOf(i), layers = D.shapes[D.shape[i]], tint = new Array(data.length).fill("");
  let html = `<h3>#${D.number[i]} · ${stamp(D.time[i])}</h3><p>${safe(D.hosts[D.src[i]])} → ${safe(D.hosts[D.dst[i]])}</p>`;
  html += `<p style="color:${colour(D.tones[D.tone[i]])}">${safe(D.text[i])}</p>`;
  if (D.whys[D.why[i]]) html += `<p>${safe(D.whys[D.why[i]])}</p>`;
  const values = Object.entries(D.columns[i] ?? {}).map(([name, text]) => `${name} ${text}`);
  if (values.length) html += `<p>${safe(values.join(" · "))}</p>`;
  for (const [place, ns, number] of D.seen[i] ?? []) html += `<p>${safe(D.places[place])} ${stamp(ns)} #${number}</p>`;
  layers.forEach(([form, offset], layer) => {
    let rows = "", bit = 8 * offset;
    for (const [size, name, signed, codes] of D.forms[form] ?? []) {
      const end = bit + size;
      if (end > 8 * data.length) break;
      let value = bits(data, bit, size);
      if (signed && value >> BigInt(size - 1)) value -= 1n << BigInt(size);
      for (let at = bit >> 3; at < end + 7 >> 3; at++) tint[at] = TINTS[layer % TINTS.length];
      if (!name.startsWith("rsvd") || value) rows += `<tr data-from="${bit >> 3}" data-to="${end + 7 >> 3}"><td>${name}</td><td>${safe(said(form, name, size, value, codes))}</td></tr>`;
      bit = end;
    }
    html += `<h3>${safe(form)}</h3><table>${rows}</table>`;
  });
  const hex = Array.from(data, (b, at) => `<i style="background:${tint[at]}">${b.toString(16).padStart(2, "0")}</i>${at % 16 === 15 ? "\n" : " "}`);
  html += `<h3>First bytes</h3><div id="bytes">${hex.join("")}${D.size[i] > data.length ? "…" : ""}</div><p>${D.size[i]} bytes</p>`;
  $("detail").innerHTML = html;
}
function pick(i) { picked = i; detail(i); draw(); plot(); }
function lit(row) {
  document.querySelectorAll("#bytes i").forEach((one, at) => one.classList.toggle("lit", !!row && at >= row.dataset.from && at < row.dataset.to));
}

// Plots: both have the time that is chosen
const whole = N ? [D.time[0], Math.max(D.time[N - 1], D.time[0] + 1)] : [0, 1];
let visible = null, drag = null;
function sight(first, last) { visible = shown.length ? [D.time[shown[first]] ?? 0, D.time[shown[last - 1]] ?? 0] : null; marks(); }
function plot() { psns(); queues(); marks(); }
function surface(canvas) {
  const ratio = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight, g = canvas.getContext("2d");
  if (canvas.width !== Math.round(w * ratio)) { canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio); }
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, w, h);
  g.font = "12px ui-monospace, monospace";
  return [g, w, h];
}
const LEFT = 64, BOTTOM = 18, css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function axes(g, w, h, low, high, unit) {
  const [t0, t1] = range ?? whole, x = t => LEFT + (t - t0) / (t1 - t0) * (w - LEFT - 8);
  const y = v => h - BOTTOM - (v - low) / (high - low || 1) * (h - BOTTOM - 8);
  g.strokeStyle = css("--line"); g.fillStyle = css("--dim"); g.lineWidth = 1; g.beginPath();
  const step = nice(t1 - t0, Math.max(2, w / 130)), rise = unit === "PSN" ? Math.max(1, nice(high - low, 4)) : 2 ** Math.ceil(Math.log2(Math.max(high, 4) / 4));
  g.textAlign = "center";
  for (let t = Math.ceil(t0 / step) * step; t <= t1; t += step) {
    g.moveTo(x(t), 4); g.lineTo(x(t), h - BOTTOM); g.fillText(short(t, step), Math.min(x(t), w - 30), h - 4);
  }
  g.textAlign = "right";
  for (let v = Math.ceil(low / rise) * rise; v <= high; v += rise) {
    g.moveTo(LEFT, y(v)); g.lineTo(w - 8, y(v)); g.fillText(unit === "PSN" ? v : amount(v), LEFT - 4, y(v) + 4);
  }
  g.stroke();
  return [x, y];
}
const amount = v => v >= 2 ** 20 ? `${+(v / 2 ** 20).toPrecision(3)} MiB` : v >= 1024 ? `${+(v / 1024).toPrecision(3)} KiB` : `${v} B`;
function psns() {
  const canvas = $("psns");
  if (!canvas.clientWidth) return;
  const [g, w, h] = surface(canvas), flow = +$("flow").value, [t0, t1] = range ?? whole;
  const places = [];
  let low = Infinity, high = -Infinity;
  for (let i = 0; i < N; i++) {
    if (D.psn[i] === null || D.time[i] < t0 || D.time[i] > t1 || !tones.has(D.tone[i]) || (flow >= 0 && D.flow[i] !== flow)) continue;
    places.push(i); low = Math.min(low, D.psn[i]); high = Math.max(high, D.psn[i]);
  }
  if (!places.length) [low, high] = [0, 1];
  const [x, y] = axes(g, w, h, low, high + 1, "PSN"), colours = D.tones.map(kind => css(`--${kind}`));
  for (const i of places) {
    g.fillStyle = colours[D.tone[i]];
    const size = i === picked ? 7 : places.length > 4000 ? 1.5 : places.length > 400 ? 2.5 : 4;
    g.fillRect(x(D.time[i]) - size / 2, y(D.psn[i]) - size / 2, size, size);
  }
}
function queues() {
  const canvas = $("queues"), one = D.series[+$("series").value];
  if (!canvas.clientWidth || !one) return;
  const [g, w, h] = surface(canvas), [t0, t1] = range ?? whole;
  let high = 1;
  for (let k = 0; k < one.time.length; k++) if (one.time[k] >= t0 && one.time[k] <= t1) high = Math.max(high, one.value[k]);
  const [x, y] = axes(g, w, h, 0, high, "B");
  g.strokeStyle = css("--data"); g.lineWidth = 1.5; g.beginPath();
  let before = 0, begun = false;
  for (let k = 0; k < one.time.length; k++) {
    const t = one.time[k];
    if (t < t0) { before = one.value[k]; continue; }
    if (t > t1) break;
    if (!begun) { g.moveTo(x(t0), y(before)); begun = true; }
    g.lineTo(x(t), y(before)); g.lineTo(x(t), y(one.value[k])); before = one.value[k];
  }
  g.stroke();
}
function marks() {
  const [t0, t1] = range ?? whole, part = t => Math.min(1, Math.max(0, (t - t0) / (t1 - t0)));
  for (const one of document.querySelectorAll(".sight")) {
    const w = one.parentElement.clientWidth - LEFT - 8;
    one.hidden = !visible;
    if (!visible) continue;
    one.style.left = `${LEFT + part(visible[0]) * w}px`;
    one.style.width = `${Math.max(2, (part(visible[1]) - part(visible[0])) * w)}px`;
  }
}
for (const canvas of document.querySelectorAll("canvas")) {
  const time = event => {
    const box = canvas.getBoundingClientRect(), [t0, t1] = range ?? whole;
    return t0 + Math.min(1, Math.max(0, (event.clientX - box.left - LEFT) / (box.width - LEFT - 8))) * (t1 - t0);
  };
  canvas.addEventListener("pointerdown", event => { drag = [time(event), event.clientX]; });
  canvas.addEventListener("pointerup", event => {
    if (!drag) return;
    const [from, x] = drag, to = time(event);
    drag = null;
    if (Math.abs(event.clientX - x) > 6) { range = [Math.min(from, to), Math.max(from, to)]; refresh(); }
    else { const place = shown.findIndex(i => D.time[i] >= to); if (place >= 0) { pick(shown[place]); show(place); } }
  });
  canvas.addEventListener("dblclick", () => { range = null; refresh(); });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const [t0, t1] = range ?? whole, middle = time(event), factor = event.deltaY < 0 ? .7 : 1 / .7;
    const next = [Math.max(whole[0], middle - (middle - t0) * factor), Math.min(whole[1], middle + (t1 - middle) * factor)];
    range = next[1] - next[0] >= whole[1] - whole[0] ? null : next[1] > next[0] ? next : range;
    refresh();
  }, {passive: false});
}

// Controls
$("tones").innerHTML = D.tones.map((kind, k) => `<button type="button" class="tone" data-k="${k}" aria-pressed="true" style="color:${colour(kind)}">${safe(D.words[k])}</button>`).join("");
$("tones").addEventListener("click", event => {
  const k = event.target.dataset.k;
  if (k === undefined) return;
  tones.has(+k) ? tones.delete(+k) : tones.add(+k);
  event.target.setAttribute("aria-pressed", String(tones.has(+k)));
  refresh();
});
$("flow").innerHTML = '<option value="-1">all flows</option>' + D.flows.map((name, k) => `<option value="${k}">${k} · ${safe(name)}</option>`).join("");
$("series").innerHTML = D.series.map((one, k) => `<option value="${k}">${safe(one.name)}</option>`).join("");
$("flow").addEventListener("change", refresh);
$("series").addEventListener("change", queues);
let later = 0;
$("filter").addEventListener("input", () => { clearTimeout(later); later = setTimeout(refresh, 120); });
$("search").addEventListener("input", () => search(true));
$("search").addEventListener("keydown", event => { if (event.key === "Enter" && found.length) go(event.shiftKey ? -1 : 1); });
$("next").addEventListener("click", () => go(1));
$("before").addEventListener("click", () => go(-1));
$("fold").addEventListener("click", event => {
  event.target.setAttribute("aria-pressed", String(event.target.getAttribute("aria-pressed") !== "true"));
  refresh();
});
$("larger").addEventListener("click", () => scale(1.25));
$("smaller").addEventListener("click", () => scale(.8));
$("all").addEventListener("click", () => { range = null; refresh(); });
let frame = 0;
$("ladder").addEventListener("scroll", () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); });
$("ladder").addEventListener("mousemove", event => {
  const row = event.target.closest(".row");
  if (row && picked < 0) detail(+row.dataset.i);
});
$("ladder").addEventListener("click", event => {
  const row = event.target.closest(".row");
  if (row) pick(+row.dataset.i === picked ? -1 : +row.dataset.i);
});
$("ladder").addEventListener("keydown", event => {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (!step || !shown.length) return;
  event.preventDefault();
  const place = Math.min(shown.length - 1, Math.max(0, shown.indexOf(picked) + step));
  pick(shown[place]);
  show(place);
});
$("detail").addEventListener("mouseover", event => lit(event.target.closest("tr")));
document.addEventListener("click", event => {
  const jump = event.target.closest("a.jump");
  if (!jump) return;
  const i = D.rows[jump.dataset.number];
  if (i === undefined) return;
  if (!shown.includes(i)) { $("filter").value = ""; $("flow").value = "-1"; range = null; D.tones.forEach((_, k) => tones.add(k));
    document.querySelectorAll(".tone").forEach(one => one.setAttribute("aria-pressed", "true")); refresh(); }
  pick(i);
  show(shown.indexOf(i));
  $("ladder").scrollIntoView({block: "nearest"});
});
document.addEventListener("keydown", event => {
  if (event.key === "/" && !/^(INPUT|SELECT)$/.test(document.activeElement.tagName)) { event.preventDefault(); $("search").focus(); }
  if (event.key === "Escape" && picked >= 0) pick(-1);
});
addEventListener("resize", () => { heads(); draw(); plot(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", plot);
heads();
refresh();
if (N) detail(0);
