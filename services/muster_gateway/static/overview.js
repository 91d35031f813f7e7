// The first page: the tree, what waits, what happens, and the share of one quota over time.
import { html, useData, useContext, useEffect, useRef, useState, Link, JobLink, Now, GPU, State, Word, Told, Promised, Problem,
  Loading, amount, short, clock, fragments, hue, requestText, change, usePlace, t } from "./kit.js";
import uPlot from "./vendor/uplot.js";

export function resourcesOf(tree) {
  const names = new Set(tree.queues.flatMap((each) => each.amounts.filter((a) => a.guaranteed || a.limit).map((a) => a.resource)));
  return [...names].sort((a, b) => (b === GPU) - (a === GPU) || a.localeCompare(b));
}

export function Bar({ a, whole }) {
  if (!a) return html`<div class="bar none"></div>`;
  const of = Math.max(whole || a.limit || 0, a.used, a.guaranteed, 1), part = (n) => `${Math.min(100, n * 100 / of)}%`;
  const own = Math.min(a.used, a.guaranteed);
  const title = t("{used} used; guaranteed {least}; borrowed {borrowed}; held {held}", { used: a.text, least: amount(a.guaranteed, a.resource), borrowed: amount(a.borrowed, a.resource), held: amount(a.held, a.resource) });
  return html`<div class="bar" role="img" aria-label=${title} title=${title}>
    <span class="limit" style=${{ width: part(a.limit === null ? of : a.limit) }}></span>
    <span class="own" style=${{ width: part(own) }}></span>
    <span class="borrowed" style=${{ left: part(own), width: part(a.used - own) }}></span>
    <span class="held" style=${{ left: part(a.used), width: part(a.held) }}></span>
    ${a.guaranteed ? html`<span class="least" style=${{ left: part(a.guaranteed) }}></span>` : null}
  </div>`;
}

export function Tree({ tree, resource, chosen, choose }) {
  const find = (queue) => queue.amounts.find((each) => each.resource === resource);
  const whole = Math.max(1, ...tree.queues.map((queue) => { const a = find(queue); return a ? Math.max(a.limit || 0, a.used, a.guaranteed) : 0; }));
  return html`<div class="scroll"><table class="tree">
    <thead><tr><th scope="col">${t("Quota")}</th><th scope="col" class="wide">${short(resource)}</th><th scope="col" class="number">${t("used")}</th>
      <th scope="col" class="number">${t("guaranteed")}</th><th scope="col" class="number">max</th><th scope="col" class="number">${t("borrowed")}</th>
      <th scope="col" class="number">${t("running")}</th><th scope="col" class="number">${t("waiting")}</th></tr></thead>
    <tbody>${tree.queues.map((queue) => {
      const a = find(queue), on = queue.path === chosen;
      return html`<tr key=${queue.path} class=${on ? "chosen" : ""}>
        <th scope="row"><span class="depth" style=${{ width: `${queue.depth * 14}px` }}></span>
          <button class="name" aria-pressed=${on} onClick=${() => choose(queue.path)} title=${queue.path}>${queue.name}</button>
          ${queue.paused.length ? html` <span class="chip warn">${t("paused")}</span>` : null}</th>
        <td class="wide"><${Bar} a=${a} whole=${whole} /></td>
        <td class="number">${a ? amount(a.used, resource) : ""}</td><td class="number">${a ? amount(a.guaranteed, resource) : ""}</td>
        <td class="number">${a ? amount(a.limit, resource) : ""}</td>
        <td class="number ${a && a.borrowed ? "hot" : "dim"}">${a ? amount(a.borrowed, resource) : ""}</td>
        <td class="number">${queue.running}</td>
        <td class="number">${queue.waiting ? html`<${Link} to=${`/jobs?state=waiting&queue=${encodeURIComponent(queue.path)}`}>${queue.waiting}<//>` : html`<span class="dim">0</span>`}</td>
      </tr>`;
    })}</tbody></table></div>
    <p class="legend"><i class="own"></i> ${t("within the guarantee")} <i class="borrowed"></i> ${t("borrowed")} <i class="held"></i> ${t("held for a waiting job")}
      <i class="least"></i> ${t("guarantee")} <i class="limit"></i> ${t("up to the max")}</p>`;
}

// Rows by their reason, in the order of the first of each.
function byReason(jobs) {
  const groups = new Map();
  jobs.forEach((job) => groups.set(job.headline || job.text, [...(groups.get(job.headline || job.text) || []), job]));
  return [...groups];
}

function Waiting({ found, now }) {
  if (!found.jobs.length) return html`<p class="dim">${t("No job waits.")}</p>`;
  return html`<div class="scroll"><table class="list"><thead><tr><th scope="col">${t("Job")}</th><th scope="col">${t("Asks for")}</th>
      <th scope="col">${t("Place")}</th><th scope="col">${t("Starts")}</th><th scope="col" class="wide">${t("Why it waits")}</th></tr></thead>
    <tbody>${byReason(found.jobs).flatMap(([reason, jobs]) => jobs.map((job, n) => html`<tr key=${job.uid}>
      <th scope="row"><${JobLink} job=${`${job.namespace}/${job.name}`} /></th><td>${requestText(job.request)}</td>
      <td>${job.position ? t("{position} of {length}", { position: job.position, length: job.length }) : ""}</td><td><${Promised} job=${job} now=${now} /></td>
      ${n ? null : html`<td class="wide reason" rowspan=${jobs.length} title=${job.text}>${reason}</td>`}</tr>`))}</tbody></table></div>`;
}

export function Feed({ events }) {
  if (!events.length) return html`<p class="dim">${t("Nothing has happened yet.")}</p>`;
  return html`<ol class="feed">${events.map((each) => html`<li key=${`${each.sequence}-${each.index}-${each.subject}`}>
    <button class="when" title=${t("Show this moment")} onClick=${() => change({ at: each.sequence }, {})}>${clock(each.at)}</button>
    <span><${Word} word=${each.word} /> ${each.subject ? html`<${JobLink} job=${each.subject} />` : null}
      <span class="text"> ${each.text}</span></span></li>`)}</ol>`;
}

function Chart({ series }) {
  const box = useRef(null);
  useEffect(() => {
    const points = series.points;
    if (!box.current || points.length < 1) return undefined;
    const end = new Date(series.moment.at) / 1000, scale = /memory/.test(series.resource) ? 2 ** 30 : 1000;
    const last = points[points.length - 1], all = [...points, { ...last, at: series.moment.at }];
    const x = all.map((p) => new Date(p.at) / 1000);
    const data = [x, all.map((p) => p.guaranteed / scale), all.map((p) => p.limit === null ? null : p.limit / scale), all.map((p) => p.used / scale)];
    const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const step = uPlot.paths.stepped({ align: 1 });
    const make = () => new uPlot({
      width: Math.max(200, box.current.clientWidth), height: 190, legend: { show: false }, cursor: { y: false },
      scales: { x: { range: [Math.min(x[0], end - 60), end] }, y: { range: (_, low, high) => [0, Math.max(high * 1.08, 1)] } },
      axes: [{ ...axis, space: 70, values: (_, all) => all.map((at) => clock(new Date(at * 1000), end - x[0] < 600)) }, { ...axis, size: 38 }],
      series: [{}, { stroke: color("--least"), width: 2, dash: [6, 4], paths: step, points: { show: false } },
        { stroke: color("--dim"), width: 1, dash: [2, 3], paths: step, points: { show: false } },
        { stroke: color("--own"), width: 2, fill: color("--fill"), paths: step, points: { show: false } }],
    }, data, box.current);
    let plot = make();
    const size = new ResizeObserver(() => box.current && plot.setSize({ width: Math.max(200, box.current.clientWidth), height: 190 }));
    size.observe(box.current);
    return () => { size.disconnect(); plot.destroy(); };
  }, [series]);
  return html`<div class="chart" ref=${box}></div>`;
}

export function Share({ queue, resource }) {
  const found = useData(queue ? `/api/v1/series?queue=${encodeURIComponent(queue)}&resource=${encodeURIComponent(resource)}` : ""), { data, problem } = found;
  const last = data && data.points[data.points.length - 1];
  const words = last ? t("{queue} uses {used} {resource}; its guarantee is {least}", { queue, used: amount(last.used, resource), resource: short(resource), least: amount(last.guaranteed, resource) }) : "";
  return html`<section aria-label=${t("Share over time")}><h2>${t("Share of {queue}", { queue: queue ? queue.split("/").pop() : "" })} <span class="dim">${t("{resource} over time", { resource: short(resource) })}</span></h2>
    ${queue ? html`<${Loading} ...${found} />` : null}<${Problem} text=${data ? problem : ""} />
    ${last ? html`<div role="img" aria-label=${words}><${Chart} series=${data} /></div>` : data ? html`<p class="dim">${t("What it used until then is not known yet.")}</p>` : null}
    <p class="legend"><i class="own"></i> ${t("used")} <i class="line least"></i> ${t("guaranteed")} <i class="line"></i> max</p></section>`;
}

const STATES = [["running", t("running")], ["waiting", t("waiting")], ["admitted", t("starting")], ["leaving", t("leaving")], ["refused", t("refused")], ["finished", t("finished")]];
export const FAILED = "/jobs?outcome=failed";

export function Counts({ states, failed }) {
  return html`<ul class="counts">${STATES.map(([state, word]) => html`<li key=${state}><${Link} to=${`/jobs?state=${state}`}>
    <b>${(states[state] || 0).toLocaleString()}</b> ${word}<//></li>`)}
    <li key="failed"><${Link} to=${FAILED}><b>${failed.toLocaleString()}</b> ${t("failed")}<//></li></ul>`;
}

export function Overview({ news }) {
  const { query } = usePlace(), { at } = useContext(Now);
  const tree = useData("/api/v1/queues"), waiting = useData("/api/v1/jobs?state=waiting&limit=12"), past = useData("/api/v1/happened?limit=40");
  const nodes = useData("/api/v1/nodes?limit=64");
  const resources = tree.data ? resourcesOf(tree.data) : [GPU];
  const resource = resources.includes(query.get("resource")) ? query.get("resource") : resources[0] || GPU;
  const leaf = tree.data && (tree.data.queues.find((each) => each.leaf && each.waiting) || tree.data.queues.find((each) => each.leaf));
  const chosen = query.get("queue") || (leaf ? leaf.path : "");
  return html`<h1 class="hidden">${t("Overview")}</h1>
    ${waiting.data ? html`<${Counts} states=${waiting.data.states} failed=${waiting.data.failed} />` : null}
    ${tree.data ? tree.data.notes.map((note) => html`<${Problem} text=${note} />`) : null}
    <div class="columns"><div>
      <section aria-label=${t("Quota tree")}><h2>${t("Quotas")}
        <span class="tabs" role="group" aria-label=${t("Resource")}>${resources.map((each) => html`<button aria-pressed=${each === resource}
          onClick=${() => change({ resource: each })}>${short(each)}</button>`)}</span></h2>
        <${Loading} ...${tree} />
        ${tree.data ? html`<${Tree} tree=${tree.data} resource=${resource} chosen=${chosen} choose=${(path) => change({ queue: path })} />` : null}
      </section>
      <section aria-label=${t("Waiting line")}><h2>${t("Waiting")} ${waiting.data ? html`<span class="dim">${waiting.data.total.toLocaleString()}</span>` : null}</h2>
        <${Loading} ...${waiting} />
        ${waiting.data ? html`<${Waiting} found=${waiting.data} now=${waiting.data.moment.at} />` : null}
        ${waiting.data && waiting.data.total > 12 ? html`<p><${Link} to="/jobs?state=waiting">${t("All {count} that wait", { count: waiting.data.total.toLocaleString() })}<//></p>` : null}
      </section></div>
    <div>
      <${Share} queue=${chosen} resource=${resource} />
      ${nodes.data && nodes.data.nodes.length ? html`<section aria-label=${t("Devices")}><h2>${t("Nodes")} <span class="dim">${nodes.data.total}${fragments(nodes.data.fragmented)}</span></h2>
        <${Strip} nodes=${nodes.data.nodes} /><p><${Link} to="/nodes">${t("Which job is where")}<//></p></section>` : null}
      <section aria-label=${t("What happens")}><h2>${at ? t("Happened until then") : t("Happening")} ${at || !news.connected ? null : html`<span class="live" title=${t("Live")}>${t("live")}</span>`}</h2>
        <${Loading} ...${past} />${past.data ? html`<${Feed} events=${past.data.events} />` : null}</section>
    </div></div>`;
}

export function cells(node) {
  const found = [];
  for (const pod of node.pods) {
    const asked = Number(pod.request[GPU] || 0);
    for (let n = 0; n < Math.ceil(asked); n += 1) found.push({ job: pod.job || `${pod.namespace}/${pod.name}`, pod, part: asked < 1 ? asked : 1 });
  }
  const others = Math.max(0, Math.round(node.gpus_used_milli / 1000) - found.length);
  for (let n = 0; n < others; n += 1) found.push({ job: "", pod: null, part: 1 });
  while (found.length < node.gpus) found.push(null);
  return found;
}

export const paint = (cell) => cell && cell.job ? { "--hue": `${hue(cell.job)}` } : {};

export const gpusFree = (node) => t("{free} of {count} GPUs free", { free: node.gpus - node.gpus_used_milli / 1000, count: node.gpus });

function Strip({ nodes }) {
  return html`<div class="strip">${nodes.map((node) => html`<${Link} to="/nodes" class="small node" title=${`${node.name}: ${gpusFree(node)}`} aria-label=${`${node.name}: ${gpusFree(node)}`}>
    ${cells(node).map((cell) => html`<i class=${cell ? (cell.job ? "cell job" : "cell other") : "cell"} style=${paint(cell)}></i>`)}<//>`)}</div>`;
}
