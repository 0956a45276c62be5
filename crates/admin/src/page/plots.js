
// -- plots ------------------------------------------------------------------------

const COLOURS = 6;          // clusters with a colour of their own; the others share grey
const SMALL_PLOTS = 48;     // endpoints that are drawn at first
const TOLD = 5;             // marks of a tooltip
const LEFT = 46, RIGHT = 12, LANE = 22;
// The most important first: of marks that share a place, its line is drawn.
const MARKS = {failover: ["◆", "failover"], error: ["●", "error"], ejection: ["✕", "ejection"], configuration: ["▲", "configuration"], connection: ["❘", "connection"]};
const KINDS = Object.keys(MARKS);
const IN_WORDS = {failover: "failover", error: "error", ejection: "ejection", configuration: "configuration change", connection: "connection event"};
const cards = new Map();    // of each channel; built once, so that the pointer and the choice stay

const niceTop = value => { if (!(value > 0)) return 1; const unit = 10 ** Math.floor(Math.log10(value)); return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(step => step * unit >= value) * unit; };
const tick = value => value >= 10000 ? (value / 1000).toFixed(0) + "k" : value >= 1000 ? (value / 1000).toFixed(1) + "k" : String(+value.toPrecision(3));

// The clusters of a channel, each with its colour, which it keeps: the busiest when it was first drawn have their own.
function lanes(card) {
  const target = card.report.target, clusters = ofChannel(target).filter(one => one.cluster && !one.endpoint);
  const begin = one => one.rate.findIndex(value => value > 0), busy = one => sum(one.rate);
  const waiting = clusters.filter(one => !card.colours.has(one.cluster)).sort((a, b) => busy(b) - busy(a));
  for (const name of [...card.colours.keys()]) if (!clusters.some(one => one.cluster === name)) card.colours.delete(name);
  waiting.slice(0, COLOURS - card.colours.size).sort((a, b) => begin(a) - begin(b)).forEach(one => {
    card.colours.set(one.cluster, Array.from({length: COLOURS}, (_, i) => "c" + i).find(colour => ![...card.colours.values()].includes(colour)));
  });
  const own = clusters.filter(one => card.colours.has(one.cluster)).map(one => ({...one, name: one.cluster, colour: card.colours.get(one.cluster)})).sort((a, b) => a.colour < b.colour ? -1 : 1);
  const rest = clusters.filter(one => !card.colours.has(one.cluster));
  if (!rest.length) return own;
  const add = name => past.times.map((_, i) => rest.every(one => one[name][i] == null) ? null : sum(rest.map(one => one[name][i])));
  const worst = name => past.times.map((_, i) => most(rest.map(one => one[name][i])) || null);
  return [...own, {target, name: plural(rest.length, "other cluster"), colour: "c-rest", rate: add("rate"), errors: add("errors"), p50: worst("p50"), p99: worst("p99")}];
}
// Marks that would overlap share a place; its kind is the most important one.
function places(marks, x, from) {
  const shared = [];
  for (const mark of marks) {
    if (mark.time < from) continue;
    const last = shared[shared.length - 1], at = x(mark.time);
    if (last && at - last.x < 9) last.marks.push(mark);
    else shared.push({x: at, marks: [mark]});
  }
  shared.forEach(place => { place.kinds = KINDS.filter(kind => place.marks.some(mark => mark.kind === kind)); place.kind = place.kinds[0] || "connection"; });
  return shared;
}
function summaryOf(report, clusters, whole, marks) {
  const counts = KINDS.map(kind => [kind, marks.filter(mark => mark.kind === kind).length]).filter(([, count]) => count > 0);
  const failover = marks.filter(mark => mark.kind === "failover").pop();
  const failed = clusters.reduce((total, one) => total + sum(one.errors), 0);
  return [WINDOWS[windowOf(past.times)] + " of " + report.target + ". " + (clusters.length
    ? "RPCs: " + clusters.map(one => one.name + " now " + perSecond(latest(one.rate)) + ", at most " + rate(most(one.rate))).join("; ") + ". "
      + (failed > 0 ? "About " + plural(Math.round(failed), "attempt") + " failed. " : "No attempt failed. ")
      + (whole ? "Latency p99: now " + latency(latest(whole.p99)) + ", at most " + latency(most(whole.p99)) + ". " : "") : "No RPCs. "),
    counts.length ? "Marks: " + counts.map(([kind, count]) => plural(count, IN_WORDS[kind])).join(", ") + ". " : "",
    failover ? "The last failover, at " + time(failover.time) + ": " + failover.text + "." : ""].join("").trim();
}

// One picture of all panels, which share the time axis.
function picture(card) {
  const {report, width} = card, times = past.times, clusters = lanes(card), seconds = windowOf(times);
  const whole = past.series.get(seriesKey(report.target)), marks = past.marks.filter(mark => mark.channel === report.id);
  const now = times[times.length - 1], from = now - seconds;
  const x = at => LEFT + Math.max(0, at - from) / seconds * (width - LEFT - RIGHT);
  const first = Math.max(0, times.findIndex(at => at >= from)), cut = values => values.slice(first), xi = i => x(times[first + i]);
  const parts = [], narrow = width < 560;
  let top = LANE;
  const panel = (title, height, ticks, y, content) => {
    parts.push(s("g", {class: "panel"},
      ticks.map(([value, text]) => [s("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value)}), s("text", {class: "tick", x: LEFT - 5, y: y(value) + 4, "text-anchor": "end"}, text)]),
      content, s("text", {class: "title", x: LEFT + 5, y: top + 12}, title)));
    top += height + 16;
  };
  const linear = (height, max, base) => value => base + height - value / max * height;
  // Stacked, so that the outline is the sum.
  const stack = (name, y) => {
    const floor = times.slice(first).map(() => 0);
    return clusters.map(one => {
      const lower = [...floor], values = cut(one[name]);
      values.forEach((value, i) => { floor[i] += value || 0; });
      if (!values.some(value => value > 0)) return null;
      // A cluster without values beside one that has them had no RPCs.
      const there = values.map((_, i) => clusters.some(other => other[name][first + i] != null) ? i : null), runs = [];
      there.forEach((i, at) => { if (i == null) return; if (at > 0 && there[at - 1] != null) runs[runs.length - 1].push(i); else runs.push([i]); });
      const d = runs.map(run => "M" + run.map(i => point(xi(i), y(floor[i]))).join("L") + "L" + [...run].reverse().map(i => point(xi(i), y(lower[i]))).join("L") + "Z").join("");
      return s("path", {class: "area " + one.colour, d});
    });
  };
  const totals = name => times.slice(first).map((_, i) => sum(clusters.map(one => one[name][first + i])));
  const flow = niceTop(most(totals("rate"))), height = narrow ? 84 : 104, rates = linear(height, flow, top);
  panel("RPCs per second, by cluster", height, [[0, "0"], [flow / 2, tick(flow / 2)], [flow, tick(flow)]], rates, stack("rate", rates));
  const failures = niceTop(Math.max(most(totals("errors")), whole ? most(cut(whole.errors)) : 0)), low = 46, errors = linear(low, failures, top);
  panel("errors per second" + (narrow ? "" : ": failed attempts by cluster, failed RPCs as a line"), low, [[0, "0"], [failures, tick(failures)]], errors,
    [stack("errors", errors), whole && most(cut(whole.errors)) > 0 && s("path", {class: "failed", d: line(cut(whole.errors), xi, errors)})]);
  const all = clusters.flatMap(one => [...cut(one.p50), ...cut(one.p99)]).filter(value => value > 0);
  const least = all.length ? Math.floor(Math.log10(Math.min(...all))) : -3, greatest = Math.max(least + 1, all.length ? Math.ceil(Math.log10(Math.max(...all))) : -2);
  const logs = (base => value => base + height - (Math.log10(Math.max(value, 10 ** least)) - least) / (greatest - least) * height)(top);
  const decades = Array.from({length: greatest - least + 1}, (_, i) => 10 ** (least + i));
  panel("latency" + (narrow ? ": p99, and p50 dashed" : " of attempts, logarithmic: p99, and p50 dashed"), height, decades.map(value => [value, latency(value).replace(".0", "")]), logs,
    clusters.map(one => [s("path", {class: "median " + one.colour, d: line(cut(one.p50), xi, logs)}), s("path", {class: "tail " + one.colour, d: line(cut(one.p99), xi, logs)})]));
  const bottom = top - 16, step = {30: 5, 60: 10, 120: 20, 300: 60}[seconds] * (narrow ? 2 : 1);
  const axis = [];
  for (let at = Math.ceil(from / step) * step; at <= now; at += step) axis.push(s("line", {class: "grid", x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4}),
    s("text", {class: "tick", x: Math.min(x(at), width - 24), y: bottom + 16, "text-anchor": "middle"}, new Date(at * 1000).toLocaleTimeString([], {hour12: false})));
  card.places = places(marks, x, from);
  const lines = card.places.map(place => s("g", {class: "mark " + place.kind},
    s("line", {x1: place.x, x2: place.x, y1: place.kind === "connection" ? LANE - 8 : LANE - 5, y2: place.kind === "connection" ? LANE - 2 : bottom}),
    place.kind !== "connection" && s("text", {x: place.x, y: LANE - 8, "text-anchor": "middle"}, place.kinds.filter(kind => kind !== "connection").map(kind => s("tspan", {class: "mark " + kind}, MARKS[kind][0]))),
    s("title", {}, place.marks.slice(0, TOLD).map(mark => time(mark.time) + " " + mark.text).join("\n"))));
  card.scale = {times, from, seconds, bottom, clusters, whole, at: px => from + (px - LEFT) / (width - LEFT - RIGHT) * seconds, x};
  card.cross = s("line", {class: "cross", y1: LANE - 4, y2: bottom, visibility: "hidden"});
  const label = summaryOf(report, clusters, whole, marks.filter(mark => mark.time >= from));
  card.svg.setAttribute("viewBox", "0 0 " + width + " " + (bottom + 20));
  card.svg.setAttribute("width", width);
  card.svg.setAttribute("height", bottom + 20);
  card.svg.setAttribute("aria-label", label);
  card.svg.replaceChildren(...present([parts, axis, lines, card.cross]));
  card.legend.replaceChildren(...clusters.map(one => h("span", {}, h("i", {class: "swatch " + one.colour}), h("span", {class: "mono"}, one.name), " ", h("span", {class: "dim"}, nowOf(one)))));
  const kinds = KINDS.filter(kind => card.places.some(place => place.marks.some(mark => mark.kind === kind)));
  card.kinds.replaceChildren(...kinds.map(kind => h("span", {class: "mark " + kind}, MARKS[kind][0] + " ", h("span", {class: "dim"}, MARKS[kind][1]))));
}

// The values at the pointer, or at the second that the arrow keys chose.
function tell(card) {
  const scale = card.scale, at = card.pointed;
  if (at == null || !scale || !scale.times.length) { card.tip.hidden = true; if (card.cross) card.cross.setAttribute("visibility", "hidden"); return; }
  let i = 0;
  scale.times.forEach((value, j) => { if (Math.abs(value - at) < Math.abs(scale.times[i] - at)) i = j; });
  const px = Math.max(LEFT, scale.x(scale.times[i]));
  card.cross.setAttribute("x1", px);
  card.cross.setAttribute("x2", px);
  card.cross.setAttribute("visibility", "visible");
  const there = scale.clusters.filter(one => one.rate[i] != null);
  const near = card.places.filter(place => Math.abs(place.x - px) < 6).flatMap(place => place.marks).sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
  card.tip.replaceChildren(...present([h("b", {class: "mono"}, time(scale.times[i])),
    there.map(one => h("div", {}, h("i", {class: "swatch " + one.colour}), h("span", {class: "mono"}, one.name), " " + perSecond(one.rate[i]),
      one.errors[i] > 0 && h("span", {class: "error"}, " " + rate(one.errors[i]) + " failed"), one.p99[i] != null && h("span", {class: "dim"}, " p50 " + latency(one.p50[i]) + ", p99 " + latency(one.p99[i])))),
    !there.length && h("div", {class: "dim"}, "no RPCs"),
    near.slice(0, TOLD).map(mark => h("div", {class: "mark " + mark.kind}, MARKS[mark.kind][0] + " ", h("span", {class: "mono dim"}, time(mark.time)), " ", h("span", {class: "told"}, mark.text))),
    near.length > TOLD && h("div", {class: "dim"}, "and " + (near.length - TOLD) + " more")]));
  card.tip.hidden = false;
  const room = card.width, wide = card.tip.offsetWidth;
  card.tip.style.left = Math.max(0, px + 14 + wide > room ? px - wide - 14 : px + 14) + "px";
}
function keys(card, event) {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (event.key === "Escape") card.pointed = null;
  else if (step) { card.pointed = Math.min(past.times[past.times.length - 1], Math.max(past.times[0], (card.pointed == null ? past.times[past.times.length - 1] : card.pointed) + step)); event.preventDefault(); }
  else return;
  tell(card);
}

// Endpoints as small plots with the same scales, the busiest first.
function endpointPlots(card) {
  const of = ofChannel(card.report.target).filter(one => one.endpoint && (card.chosen === "*" || one.cluster === card.chosen)).sort((a, b) => sum(b.rate) - sum(a.rate));
  const max = Math.max(0, ...of.map(one => most(one.rate)));
  const shown = card.all ? of : of.slice(0, SMALL_PLOTS);
  const left = card.chosen === "*" && past.leftOut.endpoints;
  return [h("div", {class: "small"}, shown.map(one => h("div", {}, h("div", {class: "mono"}, one.endpoint, card.chosen === "*" && h("span", {class: "dim"}, " " + one.cluster)), spark(one, max, 180, 40, card.colours.get(one.cluster) || "c-rest"),
    h("div", {class: "dim"}, nowOf(one), most(one.errors) > 0 && h("span", {class: "error"}, ", errors up to " + rate(most(one.errors))))))),
    of.length === 0 && h("div", {class: "dim"}, "no endpoint had RPCs"),
    of.length > 0 && h("div", {class: "dim"}, "all on a scale up to " + rate(max)),
    shown.length < of.length && h("button", {onclick: () => { card.all = true; plot(card); }}, "show all " + of.length),
    left > 0 && h("div", {class: "dim"}, plural(left, "more endpoint") + " without a place in the recording")];
}
function plot(card) {
  card.width = Math.max(280, card.stage.clientWidth);
  const clusters = [...new Set(ofChannel(card.report.target).filter(one => one.endpoint).map(one => one.cluster))].sort();
  if (card.options !== clusters.join("\n")) {
    card.options = clusters.join("\n");
    card.choice.replaceChildren(h("option", {value: ""}, "clusters only"), ...clusters.map(name => h("option", {value: name, selected: card.chosen === name}, "endpoints of " + name)), h("option", {value: "*", selected: card.chosen === "*"}, "all endpoints"));
  }
  card.title.textContent = WINDOWS[windowOf(past.times)];
  const measured = ofChannel(card.report.target).length > 0;
  card.note.textContent = measured || !card.report.calls.started ? "" : "RPCs of this channel are not measured: it was built before the admin services started to collect metrics (proxyless_admin::collect_metrics).";
  card.note.hidden = !card.note.textContent;
  picture(card);
  tell(card);
  card.endpoints.replaceChildren(...present(card.chosen ? endpointPlots(card) : []));
}
function newCard() {
  const card = {title: h("span", {}), target: h("span", {class: "mono dim"}), legend: h("div", {class: "legend"}), kinds: h("div", {class: "legend"}), note: h("p", {class: "dim"}), endpoints: h("div", {}),
    svg: s("svg", {class: "plot", role: "img", tabindex: 0}), tip: h("div", {class: "tip", hidden: true, "aria-live": "polite"}), pointed: null, chosen: "", colours: new Map()};
  card.choice = h("select", {"aria-label": "endpoints to draw", onchange: event => { card.chosen = event.target.value; card.all = false; plot(card); }});
  card.stage = h("div", {class: "stage"}, card.svg, card.tip);
  const move = event => { card.pointed = card.scale.at(Math.max(LEFT, event.clientX - card.svg.getBoundingClientRect().left)); tell(card); };
  const leave = () => { card.pointed = null; tell(card); };
  Object.entries({pointermove: move, pointerdown: move, pointerleave: leave, blur: leave, keydown: event => keys(card, event)}).forEach(([name, handler]) => card.svg.addEventListener(name, handler));
  card.section = h("section", {class: "plots"}, h("h2", {class: "row"}, card.title, card.target, h("span", {class: "right"}, card.choice)), card.legend, card.note, card.stage, card.kinds, card.endpoints);
  return card;
}
function plots(channels) {
  const place = document.getElementById("plots"), drawn = past && past.times.length ? channels.slice(0, 8) : [];
  for (const id of [...cards.keys()]) if (!drawn.some(report => report.id === id)) { cards.get(id).section.remove(); cards.delete(id); }
  for (const report of drawn) {
    if (!cards.has(report.id)) { cards.set(report.id, newCard()); place.append(cards.get(report.id).section); }
    const card = cards.get(report.id);
    card.report = report;
    card.target.textContent = report.target;
    plot(card);
  }
}
window.addEventListener("resize", () => { if (shown) plots(shown.channels); });
