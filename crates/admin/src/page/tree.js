// -- numbers ---------------------------------------------------------------

function collect(node, path, into) {
  (node.endpoints || []).forEach(e => { into.set(path + "|" + e.addresses[0], e.calls); });
  (node.children || []).forEach((child, i) => collect(child, path + "/" + (child.name || i), into));
  return into;
}
// Calls per second since the last look, of one endpoint and of all below a node.
function rates(now) {
  const before = last;
  last = now;
  const span = before ? now.at - before.at : 0;
  const of = (calls, earlier) => !earlier || span <= 0 ? null : {
    ok: Math.max(0, calls.succeeded - earlier.succeeded) / span, failed: Math.max(0, calls.failed - earlier.failed) / span};
  return {channel: (id, calls) => of(calls, before && before.channels.get(id)), endpoint: key => of(now.calls.get(key), before && before.calls.get(key))};
}
function total(node, path, rate) {
  let sum = 0;
  (node.endpoints || []).forEach(e => { const r = rate.endpoint(path + "|" + e.addresses[0]); if (r) sum += r.ok + r.failed; });
  (node.children || []).forEach((child, i) => { sum += total(child, path + "/" + (child.name || i), rate); });
  return sum;
}

// -- the tree --------------------------------------------------------------

// Follows children without names: they say more about the same thing.
function chain(node, path) {
  const policies = [];
  const details = [], errors = [], counters = {};
  let circuit = null;
  for (;;) {
    policies.push(node.policy.replace(/_experimental$/, ""));
    errors.push(...present([node.error, node.resolution_note]));
    const max = node.config && node.config.maxConcurrentRequests, now = node.counters && node.counters.requests_in_flight;
    if (max != null && now != null) circuit = {now, max};
    details.push(...node.details || []);
    Object.assign(counters, node.counters);
    const children = node.children || [];
    if (children.length !== 1 || children[0].name) return {node, path, policies, circuit, errors, details, counters};
    node = children[0];
    path += "/0";
  }
}
function fold(path, open, summary, content) {
  const isOpen = opened.has(path) ? opened.get(path) : open;
  const details = h("details", {open: isOpen}, h("summary", {}, summary));
  if (isOpen) details.append(...present(content()));
  details.addEventListener("toggle", () => {
    if (opened.get(path) === details.open || details.open === isOpen && !opened.has(path)) return;
    opened.set(path, details.open);
    draw();
  });
  return details;
}
function bar(value, all) {
  return all > 0 && value > 0 && h("span", {class: "load", style: "width:" + (100 * value / all).toFixed(1) + "%"});
}
// The largest rate of an endpoint of a cluster: its endpoints share a scale.
const peakOf = (target, cluster) => past ? Math.max(0, ...ofChannel(target).filter(one => one.endpoint && one.cluster === cluster).map(one => most(one.rate))) : 0;
function branch(child, path, all, cx) {
  const end = chain(child, path), isCluster = child.policy === "cds_experimental" && child.name;
  if (isCluster) cx = {...cx, cluster: child.name, peak: peakOf(cx.target, child.name)};
  const load = total(child, path, cx.rate);
  const count = (end.node.endpoints || []).length;
  const ready = (end.node.endpoints || []).filter(e => e.state === "READY").length;
  const summary = h("span", {class: "row"}, bar(load, all), h("b", {class: "mono"}, child.name || end.policies[0]), chip(child.state),
    child.role && h("span", {class: "dim"}, child.role), child.weight != null && h("span", {class: "dim"}, "weight " + child.weight),
    count > 0 && h("span", {class: "dim"}, ready + " of " + count + " endpoints ready"),
    end.counters.endpoints_ejected > 0 && h("span", {class: "chip bad"}, end.counters.endpoints_ejected + " ejected"),
    end.counters.kept_for_sessions > 0 && h("span", {class: "chip"}, end.counters.kept_for_sessions + " kept for sessions"),
    end.circuit && h("span", {class: "dim", title: "requests in flight, and how many may be"}, "circuit ",
      h("span", {class: "meter" + (end.circuit.now >= end.circuit.max ? " full" : "")},
        h("i", {style: "width:" + Math.min(100, 100 * end.circuit.now / Math.max(1, end.circuit.max)) + "%"})),
      " " + end.circuit.now + "/" + end.circuit.max),
    h("span", {class: "right mono"}, isCluster && trend(cx.target, child.name), " ", cx.known && rate(load)));
  return fold(path, count <= FOLD_ABOVE, summary, () => [
    h("div", {class: "dim row"}, h("span", {}, end.policies.join(" → ")), child.changed && h("span", {},
      child.state + " for " + span(child.changed.seconds_ago) + " (" + child.changed.reason + ")")),
    end.errors.map(error => h("div", {class: "error row"}, error)),
    end.details.slice(0, SHOWN).map(detail),
    (end.node.children || []).map((next, i) => branch(next, end.path + "/" + (next.name || i), load, cx)),
    endpoints(end.node.endpoints || [], end.path, load, cx)]);
}
// What a policy says of one endpoint, locality or session.
function detail(d) {
  const fields = Object.entries(d.fields || {}).map(([name, value]) => {
    const [, words, unit] = name.match(/^(.*?)(_seconds_ago|_seconds)?$/);
    return h("span", {}, words.replaceAll("_", " ") + " " + (unit ? value.toFixed(1) + (unit === "_seconds" ? " s" : " s ago") : value));
  });
  return h("div", {class: "row " + (d.kind === "ejected" ? "error" : "dim")}, h("span", {}, d.kind), d.subject && h("span", {class: "mono"}, d.subject), fields);
}
function endpoints(list, path, all, cx) {
  const shown = expanded.has(path) ? list : list.slice(0, SHOWN);
  const rows = shown.map(e => {
    const r = cx.rate.endpoint(path + "|" + e.addresses[0]);
    return h("div", {class: "row"}, bar(r ? r.ok + r.failed : 0, all), h("span", {class: "mono"}, e.addresses.join(", ")), chip(e.state),
      e.weight !== 1 && h("span", {class: "dim"}, "weight " + e.weight), e.connection_count && h("span", {class: "dim"}, plural(e.connection_count, "connection")), e.health && h("span", {class: "dim"}, e.health), e.hostname && h("span", {class: "dim"}, e.hostname), e.proxy && h("span", {class: "dim"}, "through " + e.proxy),
      security(cx.sockets.get(e.connection)),
      e.state === "TRANSIENT_FAILURE" && e.error && h("span", {class: "error"}, e.addresses.reduce((error, a) => error.replace(new RegExp("^(ipv[46]:)?" + a.replace(/[.[\]]/g, "\\$&") + ": "), ""), e.error)),
      h("span", {class: "right mono"}, e.calls.failed > 0 && h("span", {class: "error"}, e.calls.failed + " failed "), trend(cx.target, cx.cluster, e.connected || e.addresses[0], cx.peak), " ", r && rate(r.ok + r.failed)));
  });
  if (shown.length < list.length) rows.push(h("button", {onclick: () => { expanded.add(path); draw(); }}, "show all " + list.length));
  return rows;
}
function channel(report, cx) {
  cx = {...cx, target: report.target, sockets: new Map(report.connections.map(c => [c.id, (c.sockets || [])[0]]))};
  const tree = report.tree, r = cx.rate.channel(report.id, report.calls), path = "c" + report.id;
  const all = tree.root ? total(tree.root, path, cx.rate) : 0;
  return h("section", {}, h("h2", {class: "row"}, h("span", {class: "mono"}, report.target), chip(report.state),
      h("span", {class: "right mono"}, r && rate(r.ok), r && r.failed > 0 && h("span", {class: "error"}, " " + rate(r.failed) + " failed"))),
    h("div", {class: "dim"}, plural(report.calls.started, "call") + ": " + report.calls.succeeded + " succeeded, " + report.calls.failed + " failed; " + plural(report.connections.length, "connection")),
    tree.error && h("p", {class: "error"}, tree.error),
    (tree.routes || []).length > 0 && [h("h3", {}, "Routes of " + tree.virtual_host), tree.routes.map(route => h("div", {class: "row"},
      h("span", {class: "mono"}, route.matches), "→", route.clusters.length ? route.clusters.map(c => h("b", {class: "mono"}, c.cluster + (route.clusters.length > 1 ? " ×" + c.weight : ""))) : h("span", {class: "error"}, "fails")))],
    tree.root && [h("h3", {}, "Clusters"), (tree.root.children || []).map((child, i) => branch(child, path + "/" + (child.name || i), all, cx))]);
}
