"use strict";
const SHOWN = 200;         // endpoints of an unfolded locality that are drawn at first
const FOLD_ABOVE = 12;     // localities with more endpoints start folded
const opened = new Map();  // what the reader folded or unfolded, by path
const expanded = new Set();
let last = null;           // the calls of the last look, for rates

const present = children => children.flat(9).filter(child => child != null && child !== false);
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}
const GOOD = ["READY", "ACKED"], BAD = ["TRANSIENT_FAILURE", "NACKED", "DOES_NOT_EXIST", "RECEIVED_ERROR", "TIMEOUT"];
const chip = state => h("span", {class: "chip " + (GOOD.includes(state) ? "good" : BAD.includes(state) ? "bad" : "")}, state);
const rate = value => value == null ? "" : (value === 0 || value >= 10 ? value.toFixed(0) : value.toFixed(1)) + "/s";
const time = seconds => new Date(seconds * 1000).toLocaleTimeString([], {hour12: false}) + "." + String(Math.floor(seconds * 10) % 10);
const span = s => s < 10 ? s.toFixed(1) + " s" : s < 120 ? s.toFixed(0) + " s" : s < 7200 ? (s / 60).toFixed(0) + " min" : s < 172800 ? (s / 3600).toFixed(0) + " h" : (s / 86400).toFixed(0) + " d";
const age = seconds => span(Math.max(0, Date.now() / 1000 - seconds));
const EXPIRY = {soon: "certificate expires soon", expired: "certificate has expired"};
const until = c => c.subject + (c.names.length ? ", " + c.names.join(", ") : "") + ", until " + new Date(c.not_after * 1000).toLocaleString();
// TLS of a connection, and the certificates of both sides; only those that expire soon are more than a tooltip.
function security(socket) {
  const tls = socket && socket.tls;
  if (!tls) return null;
  const sides = [["server", tls.remote], ["client", tls.local]].filter(([, certificate]) => certificate);
  return [h("span", {class: "chip good tls", title: [tls.version + ", " + tls.cipher_suite + (tls.resumed ? ", resumed" : ""), ...sides.map(([side, c]) => side + ": " + until(c))].join("\n")}, "TLS"),
    sides.map(([side, c]) => EXPIRY[c.expiry] && h("span", {class: "chip expiry" + (c.expiry === "expired" ? " bad" : ""), title: until(c)}, side + "’s " + EXPIRY[c.expiry]))];
}
const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");
