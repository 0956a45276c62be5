// -- the explanation of a call ------------------------------------------------

// What the reader typed stays when the page is drawn again: the form is built once, and only its answer changes.
const form = {channel: null, path: null, headers: null, answer: h("div", {id: "explanation", "aria-live": "polite"})};
function explainer(channels) {
  const place = document.getElementById("explain");
  if (!channels.length) return place.replaceChildren();
  const ids = channels.map(c => c.id).join();
  if (form.ids === ids) return;
  const chosen = form.channel ? form.channel.value : null;
  form.ids = ids;
  form.channel = h("select", {}, channels.map(c => h("option", {value: c.id, selected: String(c.id) === chosen}, c.target)));
  form.path = form.path || h("input", {placeholder: "/package.Service/Method", required: true, spellcheck: "false"});
  const asked = !form.headers && decodeURIComponent(location.hash).match(/^#explain=(.+)$/);
  form.headers = form.headers || h("textarea", {rows: 2, placeholder: "x-user: 7", spellcheck: "false"});
  place.replaceChildren(h("section", {}, h("h2", {}, "Where would a call go?"),
    h("form", {onsubmit: event => { event.preventDefault(); ask(); }},
      channels.length > 1 && h("label", {}, "channel", form.channel), h("label", {}, "path", form.path), h("label", {}, "headers, one per line", form.headers),
      h("div", {}, h("button", {}, "explain"))), form.answer));
  // A link can ask: /proxyless/#explain=/package.Service/Method
  if (asked) { form.path.value = asked[1]; ask(); }
}
async function ask() {
  const query = new URLSearchParams({channel: form.channel.value, path: form.path.value.trim()});
  form.headers.value.split("\n").filter(line => line.trim()).forEach(line => query.append("header", line.trim()));
  try {
    const response = await fetch("explain.json?" + query, {cache: "no-store"});
    if (!response.ok) throw new Error(await response.text());
    form.answer.replaceChildren(...explanation(await response.json()));
  } catch (error) {
    form.answer.replaceChildren(h("p", {class: "error"}, error.message));
  }
}
function explanation(e) {
  const o = e.outcome, end = o.kind === "endpoint" ? "goes to " + o.address : o.kind === "waits" ? "waits: " + o.why : (o.kind === "fails" ? "fails with " : "is dropped with ") + o.code + ": " + o.message;
  const r = e.retry, c = e.circuit_breaker;
  const notes = present([e.filters || [], e.timeout_seconds != null && "at most " + e.timeout_seconds + " s", r && "retries up to " + r.retries + " times on " + r.codes.join(", "),
    c && "circuit breaker of " + c.cluster + ": " + c.in_flight + " of " + c.max_requests + " requests in flight", (e.drops || []).map(d => "drops " + d.per_million / 10000 + " % of RPCs, category " + d.category)]);
  return [h("p", {class: o.kind === "endpoint" ? "chosen" : "error"}, end),
    e.decisions.map(d => [h("h3", {}, d.level.replaceAll("_", " ") + (d.of ? " of " + d.of : "") + ", by " + d.by), d.candidates.slice(0, SHOWN).map(candidate),
      d.left_out > 0 && h("div", {class: "dim row"}, "and " + d.left_out + (d.level === "virtual_host" ? " whose domains do not match" : " after it"))]),
    notes.length > 0 && [h("h3", {}, "also"), notes.map(note => h("div", {class: "row"}, note))]].flat(9).filter(part => part);
}
const candidate = c => h("div", {class: "row" + (c.chosen ? " chosen" : " dim")}, c.chosen ? "→" : "·", h("span", {class: "mono"}, c.name), c.weight != null && h("span", {}, "weight " + c.weight), c.state && chip(c.state), h("span", {}, c.why));
