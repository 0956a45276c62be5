// -- buttons, which only demos have -------------------------------------------

function controls(rows) {
  document.getElementById("controls").replaceChildren(...(!rows ? [] : [h("section", {}, h("h2", {}, "Change the mesh"), rows.map(row => h("div", {class: "row"},
    h("b", {class: "mono"}, row.label), h("span", {class: row.state === "up" ? "dim" : ""}, row.state),
    h("span", {class: "right"}, row.buttons.map(([label, command]) => [" ", h("button", {"aria-label": command, onclick: () => press(command)}, label)])))))]));
}
async function press(command) {
  const response = await fetch("controls.json", {method: "POST", body: command});
  if (response.ok) controls(await (await fetch("controls.json", {cache: "no-store"})).json());
}

// -- looking ----------------------------------------------------------------

let shown = null, hasControls = true;
function draw() {
  if (!shown) return;
  const {channels, clients, process, rate, known} = shown;
  const scroll = document.querySelector("ol") ? document.querySelector("ol").scrollTop : 0;
  const cx = {rate, known};
  plots(channels);
  document.getElementById("channels").replaceChildren(...(channels.length ? channels.map(c => channel(c, cx)) : [h("section", {}, "no channels")]));
  explainer(channels);
  document.getElementById("resources").replaceChildren(...clients.map(client));
  document.getElementById("events").replaceChildren(timeline(channels));
  if (document.querySelector("ol")) document.querySelector("ol").scrollTop = scroll;
  const bad = clients.flatMap(c => c.resources).filter(r => BAD.includes(r.status)).length;
  document.getElementById("version").textContent = process ? process.version : "";
  document.getElementById("process").replaceChildren(process ? "process " + process.name + ", pid " + process.pid + ", up " + span(process.uptime) : "");
  document.getElementById("summary").replaceChildren(plural(channels.length, "channel") + ", " + plural(clients.reduce((n, c) => n + c.resources.length, 0), "resource"),
    bad ? h("span", {class: "error"}, ", " + bad + " with errors") : "");
}
async function look() {
  const started = performance.now(), live = document.getElementById("live");
  try {
    const get = async name => { const r = await fetch(name, {cache: "no-store"}); if (!r.ok) throw new Error(r.status); return [await r.json(), r.headers]; };
    const measured = follow(get).catch(() => { past = null; });
    const maybe = name => get(name).catch(() => [null]);
    const [[channels, headers], [clients], [process], [rows]] = await Promise.all([get("channels.json"), get("resources.json"), maybe("process.json"), hasControls ? maybe("controls.json") : [null]]);
    hasControls = rows != null;
    await measured;
    controls(rows);
    const calls = new Map();
    channels.forEach(c => { if (c.tree.root) collect(c.tree.root, "c" + c.id, calls); });
    const known = last != null;
    const rate = rates({at: Number(headers.get("server-time")), calls, channels: new Map(channels.map(c => [c.id, c.calls]))});
    shown = {channels, clients, process, rate, known};
    draw();
    live.textContent = "live";
    live.className = "chip good right";
  } catch (error) {
    live.textContent = "no answer: " + error.message;
    live.className = "chip bad right";
  }
  // Large meshes are looked at less often.
  setTimeout(() => document.hidden ? document.addEventListener("visibilitychange", look, {once: true}) : look(), Math.max(1000, 5 * (performance.now() - started)));
}
look();
