
// -- the last five minutes ----------------------------------------------------

// What history.json has said so far: times, and values of each channel, cluster and endpoint at these times.
const KEPT = 300, VALUES = ["rate", "errors", "p50", "p99"];
let past = null;
const seriesKey = (target, cluster, endpoint) => [target, cluster || "", endpoint || ""].join("\n");

// Adds what is new. False if it belongs to another recording: the process has started again.
function remember(answer) {
  if (!past) past = {recording: answer.recording, times: [], series: new Map(), marks: [], leftOut: {}};
  if (past.recording !== answer.recording) { past = null; return false; }
  const before = past.times.length, added = answer.times.length;
  const nothing = count => new Array(count).fill(null);
  for (const one of answer.series) {
    const key = seriesKey(one.target, one.cluster, one.endpoint);
    if (!past.series.has(key)) past.series.set(key, {target: one.target, cluster: one.cluster, endpoint: one.endpoint, ...Object.fromEntries(VALUES.map(name => [name, nothing(before)]))});
    VALUES.forEach(name => past.series.get(key)[name].push(...one[name]));
  }
  past.times.push(...answer.times);
  const excess = Math.max(0, past.times.length - KEPT);
  past.times.splice(0, excess);
  for (const [key, one] of past.series) {
    VALUES.forEach(name => { one[name].push(...nothing(before + added - one[name].length)); one[name].splice(0, excess); });
    if (one.rate.every(value => value == null)) past.series.delete(key);
  }
  const oldest = answer.times.length ? answer.times[added - 1] - KEPT : 0;
  past.marks = past.marks.concat(answer.marks).filter(mark => mark.time > oldest).sort((a, b) => a.time - b.time);
  past.last = answer.last_sample;
  past.leftOut = answer.left_out || {};
  return true;
}
async function follow(get) {
  const [answer] = await get("history.json" + (past ? "?since=" + past.last : ""));
  if (!remember(answer)) remember((await get("history.json"))[0]);
}

const ofChannel = target => [...past.series.values()].filter(one => one.target === target);
const latest = values => { for (let i = values.length - 1; i >= 0 && i >= values.length - 5; i--) if (values[i] != null) return values[i]; return null; };
const most = values => values.reduce((max, value) => Math.max(max, value || 0), 0);
const sum = values => values.reduce((total, value) => total + (value || 0), 0);
// 950 µs, 1.2 ms, 340 ms, 2.5 s
function latency(seconds) {
  if (seconds == null) return "–";
  const [value, unit] = seconds < .001 ? [seconds * 1e6, " µs"] : seconds < 1 ? [seconds * 1e3, " ms"] : [seconds, " s"];
  return (value < 9.95 && unit !== " µs" ? value.toFixed(1) : value.toFixed(0)) + unit;
}
// The rate of the last second, and the latency if there were RPCs.
const nowOf = one => perSecond(latest(one.rate)) + (latest(one.rate) > 0 ? ", p50 " + latency(latest(one.p50)) + ", p99 " + latency(latest(one.p99)) : "");
const perSecond = value => value == null ? "–" : rate(value);

// -- sparklines -----------------------------------------------------------------

// The namespace from the browser itself: no address of another site is in this page.
const SVG = (() => { const holder = document.createElement("div"); holder.innerHTML = "<svg></svg>"; return holder.firstChild.namespaceURI; })();
function s(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== false && value != null) element.setAttribute(name, value);
  element.append(...present(children));
  return element;
}
// The seconds that the plots show: as much as there is, in steps.
function windowOf(times) {
  const age = times.length ? times[times.length - 1] - times[0] : 0;
  return age <= 30 ? 30 : age <= 60 ? 60 : age <= 120 ? 120 : 300;
}
const WINDOWS = {30: "The last half minute", 60: "The last minute", 120: "The last two minutes", 300: "The last five minutes"};
const point = (x, y) => x.toFixed(1) + " " + y.toFixed(1);
// The areas of values over time, with a gap where nothing is known.
function area(values, x, y, floor) {
  let path = "", run = [];
  const close = () => {
    if (run.length) path += "M" + point(run[0][0], floor) + run.map(([px, py]) => "L" + point(px, py)).join("") + "L" + point(run[run.length - 1][0], floor) + "Z";
    run = [];
  };
  values.forEach((value, i) => value == null ? close() : run.push([x(i), y(value)]));
  close();
  return path;
}
function line(values, x, y) {
  let path = "", pen = "M";
  values.forEach((value, i) => { if (value == null) pen = "M"; else { path += pen + point(x(i), y(value)); pen = "L"; } });
  return path;
}
// The largest value of every few samples: a small picture has fewer pixels than samples.
function thin(values, count) {
  const step = Math.ceil(values.length / count), thinned = [];
  for (let end = values.length; end > 0; end -= step) {
    const part = values.slice(Math.max(0, end - step), end).filter(value => value != null);
    thinned.unshift(part.length ? Math.max(...part) : null);
  }
  return {values: thinned, step};
}
// The rate of a cluster or endpoint, its errors in red, on the time axis of the plots; max is that of its siblings.
function spark(one, max, width, height, colour) {
  const seconds = windowOf(past.times), top = max > 0 ? max : 1;
  const draw = (values, klass) => {
    const small = thin(values.slice(-seconds), width / 2), n = small.values.length;
    return s("path", {class: klass, d: area(small.values, i => width - (n - 1 - i) * small.step * width / seconds, v => height - 1 - v / top * (height - 2), height - 1)});
  };
  const failed = most(one.errors);
  return s("svg", {class: "spark " + colour, viewBox: "0 0 " + width + " " + height, width, height, role: "img",
    "aria-label": "rate now " + perSecond(latest(one.rate)) + ", at most " + rate(most(one.rate)) + (failed > 0 ? ", errors at most " + rate(failed) : "")},
    s("line", {class: "floor", x1: 0, x2: width, y1: height - .5, y2: height - .5}), draw(one.rate, "flow"), failed > 0 && draw(one.errors, "failures"));
}
// For a row of the tree; nothing where nothing was measured.
function trend(target, cluster, endpoint, max) {
  const one = past && past.series.get(seriesKey(target, cluster, endpoint));
  return one && [spark(one, max || most(one.rate), 80, 14, "c0"), h("span", {class: "dim p99", title: "99 % of the calls of the last second took at most this long"}, latest(one.rate) > 0 && "p99 " + latency(latest(one.p99)))];
}
