// -- resources and events ---------------------------------------------------

function client(client) {
  const bad = r => r.status === "ACKED" ? 1 : 0;
  const sorted = [...client.resources].sort((a, b) => bad(a) - bad(b));
  return h("section", {}, h("h2", {}, "Resources"), h("div", {class: "dim"}, client.server + ", node " + client.node + (client.scope ? ", for " + client.scope : "")),
    h("table", {}, h("thead", {}, h("tr", {}, ["Type", "Name", "Status", "Version", "Age"].map(t => h("th", {}, t)))),
      h("tbody", {}, sorted.slice(0, 500).map(r => [
        h("tr", {}, h("td", {class: "type"}, r.type), h("td", {class: "name mono"}, r.name), h("td", {}, chip(r.status)), h("td", {class: "mono", "data-label": "version"}, r.version || "–"), h("td", {"data-label": "age"}, r.updated ? age(r.updated) : "–")),
        r.error && h("tr", {}, h("td", {colspan: 5, class: "error"}, (r.error.version ? "version " + r.error.version + ", " : "") + age(r.error.time) + " ago: " + r.error.reason))]))));
}
function timeline(channels) {
  const events = channels.flatMap(c => c.events.map(e => ({...e, target: c.target}))).sort((a, b) => b.time - a.time).slice(0, 150);
  return h("section", {}, h("h2", {}, "Events"), h("ol", {}, events.map(e => h("li", {class: e.severity === "info" ? "" : "error"},
    h("span", {class: "mono dim"}, time(e.time) + " "), channels.length > 1 && h("span", {class: "dim"}, e.target + " "), e.description))));
}
