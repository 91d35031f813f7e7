// The other pages: jobs, one job, nodes, and what would be if.
import { html, useData, useState, useContext, Link, JobLink, jobPath, Now, GPU, State, Word, Told, Promised, Problem, Loading, amount, short, clock,
  span, fragments, requestText, roughly, many, change, go, usePlace, t } from "./kit.js";
import { cells, gpusFree, paint, resourcesOf } from "./overview.js";
import { Timeline } from "./timeline.js";

const PAGE = 50, MOST = 500;
const GROUPS = { "": t("none"), owner: t("owner"), reason: t("reason") };
const keyOf = (job) => `${job.namespace}/${job.name}`, reasonOf = (job) => job.headline || job.text;
const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

// Rows of a table by what they have in common, in the order of the first of each.
function grouped(jobs, by) {
  const groups = new Map(), of = (job) => by === "owner" ? job.owner || t("no owner") : by === "reason" ? reasonOf(job) : "";
  jobs.forEach((job) => groups.set(of(job), [...(groups.get(of(job)) || []), job]));
  return [...groups];
}

// The dashboard writes nothing: who may hold jobs does so with these commands.
function Bulk({ jobs, done }) {
  const [reason, setReason] = useState(""), [said, say] = useState("");
  const text = jobs.map((job) => `muster hold ${job.kind}/${keyOf(job)} --reason ${quoted(reason || "held together")}`).join("\n");
  const copy = () => navigator.clipboard ? navigator.clipboard.writeText(text).then(() => say(t("Copied")), () => say(t("Copy it by hand"))) : say(t("Copy it by hand"));
  return html`<section aria-label=${t("Hold jobs")} class="bulk"><h2>${t("Hold {jobs}", { jobs: many(jobs.length, "job") })} <button onClick=${done}>${t("Select none")}</button></h2>
    <label>${t("Reason")} <input value=${reason} placeholder="held together" onInput=${(event) => { setReason(event.target.value); say(""); }} /></label> <button class="button" onClick=${copy}>${said || t("Copy the commands")}</button>
    <pre tabindex="0" aria-label=${t("Commands")}>${text}</pre></section>`;
}
const STATES = ["", "waiting", "running", "admitted", "leaving", "refused", "finished", "failed", "gone"];

export function Jobs() {
  const { query } = usePlace(), skip = Number(query.get("skip") || 0);
  const by = query.get("group") in GROUPS ? query.get("group") : "", { at } = useContext(Now), [picked, pick] = useState(new Set()), size = by ? MOST : PAGE;
  const params = new URLSearchParams({ limit: size, skip });
  for (const name of ["state", "outcome", "queue", "namespace", "name"]) if (query.get(name)) params.set(name, query.get(name));
  const found = useData(`/api/v1/jobs?${params}`, undefined, { keep: true }), { data } = found;
  const states = data ? data.states : {}, chosen = query.get("outcome") ? "failed" : query.get("state") || "";
  const count = (state) => state === "failed" ? (data ? data.failed : 0) : state ? states[state] || 0 : Object.values(states).reduce((a, b) => a + b, 0);
  const shown = data ? data.jobs : [], held = at ? [] : shown.filter((job) => picked.has(job.uid));
  const toggle = (uids, on) => pick((old) => new Set(on ? [...old, ...uids] : [...old].filter((uid) => !uids.includes(uid))));
  return html`<h1>${t("Jobs")} ${query.get("queue") ? html`<span class="dim">${t("of {queue}", { queue: query.get("queue") })}</span>` : null}</h1>
    <div class="filters"><span class="tabs" role="group" aria-label=${t("State")}>${STATES.map((state) => html`<button aria-pressed=${chosen === state}
        onClick=${() => change({ state: state === "failed" ? "" : state, outcome: state === "failed" ? state : "", skip: "" })}>${state ? t(state) : t("all")} <span class="dim">${count(state).toLocaleString()}</span></button>`)}</span>
      <label>${t("Name")} <input type="search" value=${query.get("name") || ""} placeholder="namespace/name" onInput=${(e) => change({ name: e.target.value, skip: "" })} /></label>
      <label>${t("Group by")} <select value=${by} onChange=${(e) => change({ group: e.target.value, skip: "" })}>${Object.entries(GROUPS).map(([name, word]) => html`<option key=${name} value=${name}>${word}</option>`)}</select></label>
      ${query.get("queue") ? html`<button onClick=${() => change({ queue: "", skip: "" })}>${t("All quotas")}</button>` : null}</div>
    ${held.length ? html`<${Bulk} jobs=${held} done=${() => pick(new Set())} />` : null}
    <section aria-label=${t("Jobs")}><${Loading} ...${found} />
    ${data ? html`<div class="scroll"><table class="list"><thead><tr>${at ? null : html`<th scope="col"><input type="checkbox" aria-label=${t("Select all shown")} checked=${shown.length > 0 && held.length === shown.length}
          onChange=${(e) => toggle(shown.map((job) => job.uid), e.target.checked)} /></th>`}<th scope="col">${t("Job")}</th><th scope="col">${t("State")}</th><th scope="col">${t("Owner")}</th><th scope="col">${t("Quota")}</th>
        <th scope="col">${t("Asks for")}</th><th scope="col">${t("Place")}</th><th scope="col">${t("Since")}</th><th scope="col">${t("Starts")}</th><th scope="col" class="wide">${t("Reason")}</th></tr></thead>
      ${grouped(shown, by).map(([name, jobs]) => html`<tbody key=${name}>${by ? html`<tr class="group"><th scope="rowgroup" colspan=${at ? 9 : 10}>${name} <span class="dim">${many(jobs.length, "job")}</span>${" "}
          ${at ? null : html`<button onClick=${() => toggle(jobs.map((job) => job.uid), true)} aria-label=${t("Select: {name}", { name })}>${t("Select")}</button>`}</th></tr>` : null}${jobs.map((job) => html`<tr key=${job.uid}>
        ${at ? null : html`<td><input type="checkbox" aria-label=${t("Select {job}", { job: keyOf(job) })} checked=${picked.has(job.uid)} onChange=${(e) => toggle([job.uid], e.target.checked)} /></td>`}
        <th scope="row"><${JobLink} job=${keyOf(job)} /> <span class="dim">${job.kind}</span></th>
        <td><${State} job=${job} /></td><td>${job.owner}</td><td>${job.queue.replace(/^root\//, "")}</td><td>${requestText(job.request)}</td>
        <td>${job.position ? t("{position} of {length}", { position: job.position, length: job.length }) : ""}</td><td>${clock(job.since)}</td><td><${Promised} job=${job} now=${data.moment.at} /></td>
        <td class="wide reason" title=${job.text}>${by === "reason" ? "" : reasonOf(job)}</td></tr>`)}</tbody>`)}</table></div>
      <p class="pager">${data.total ? t("{first}–{last} of {count}", { first: skip + 1, last: Math.min(skip + size, data.total), count: data.total.toLocaleString() }) : t("No such job.")}
        <button disabled=${!skip} onClick=${() => change({ skip: Math.max(0, skip - size) || "" })}>${t("Previous")}</button>
        <button disabled=${skip + size >= data.total} onClick=${() => change({ skip: skip + size })}>${t("Next")}</button></p>` : null}</section>`;
}

function Chain({ event, close }) {
  const [sequence, index] = event.split("-");
  const found = useData(`/api/v1/events/${sequence}/${index}`);
  return html`<div class="chain"><h3>${t("Because")} <button class="close" onClick=${close} aria-label=${t("Close the chain of causes")}>✕</button></h3><${Loading} ...${found} />
    ${found.data ? html`<ol>${found.data.chain.map((step, n) => html`<li key=${`${step.sequence}-${step.index}`} class=${step.decision ? "decision" : "fact"}>
      <span class="dim">${step.decision ? t("decided by {stage}", { stage: step.stage.replace(/_/g, " ") }) : t("observed ({stage})", { stage: step.stage.replace(/_/g, " ") })}, ${clock(step.at)},
        ${" "}<button class="when" onClick=${() => change({ at: step.sequence, event: "" }, {})} title=${t("Show this moment")}>${t("sequence {seq}", { seq: step.sequence })}</button></span>
      <div><${Word} word=${step.word || "hidden"} /> ${step.job ? html`<${JobLink} job=${step.job} />` : step.subject} <${Told} text=${step.text} jobs=${[step.job]} /></div></li>`)}</ol>` : null}</div>`;
}

export function Job({ name }) {
  const { query } = usePlace(), found = useData(`/api/v1/jobs/${name.split("/").map(encodeURIComponent).join("/")}`), { data } = found;
  if (!data) return html`<h1>${name}</h1><${Loading} ...${found} />`;
  const { job, wanting } = data, holders = wanting ? wanting.holders.map((each) => each.job) : [], open = query.get("event");
  return html`<h1>${name} <span class="dim">${job.kind}</span></h1>
    <div class="columns turned"><div><section aria-label="Why"><h2><${State} job=${job} text=${job.state === "waiting" ? job.headline : ""} /></h2>
      <p class="lead"><${Told} text=${data.text} jobs=${holders} /></p>
      ${data.pauses.map((each) => html`<${Problem} text=${each} />`)}
      <dl>${job.owner ? html`<dt>${t("Owner")}</dt><dd>${job.owner}</dd>` : null}<dt>${t("Quota")}</dt><dd><${Link} to=${`/?queue=${encodeURIComponent(job.queue)}`}>${job.queue || t("none")}<//></dd><dt>${t("Asks for")}</dt><dd>${requestText(job.request)}</dd>
        ${job.position ? html`<dt>${t("Place")}</dt><dd>${t("{position} of {length}", { position: job.position, length: job.length })}</dd>` : null}
        ${job.state === "waiting" ? html`<dt>${t("Starts")}</dt><dd>${job.promise ? html`<${Promised} job=${job} now=${data.moment.at} />` : job.why_no_promise}</dd>` : null}
        <dt>${t("Priority")}</dt><dd>${job.priority === null ? t("none") : job.priority}</dd></dl>
      ${job.state === "waiting" ? html`<p><${Link} class="button" to=${`/whatif?job=${encodeURIComponent(name)}`}>${t("What if…")}<//></p>` : null}</section>
      ${wanting ? html`<section aria-label=${t("The limit")}><h2>${t("What it waits for")}</h2>
        <p>${t("{quota} has {free} of {limit} {resource} free; it asks for {request}: {missing} more must be released.", { ...wanting, resource: short(wanting.resource) })}</p>
        <table class="list"><thead><tr><th scope="col">${t("Held by")}</th><th scope="col" class="number">${short(wanting.resource)}</th><th scope="col">${t("Detail")}</th></tr></thead>
        <tbody>${wanting.holders.map((each) => html`<tr key=${each.job}><th scope="row"><${JobLink} job=${each.job} /></th><td class="number">${each.amount}</td><td>${each.text}</td></tr>`)}</tbody></table>
        ${wanting.held_by > wanting.holders.length ? html`<p class="dim">${t("and {hidden} more", { hidden: wanting.held_by - wanting.holders.length })}</p>` : null}</section>` : null}
      ${data.waits.map((cluster) => html`<section key=${cluster.text} aria-label=${t("What waits in it")}><h2>${cluster.text}</h2>
        <ul>${cluster.pieces.map((piece) => html`<li key=${piece.text}>${piece.text}<ul>${piece.groups.map((each) => html`<li key=${each} class="dim">${each}</li>`)}</ul></li>`)}</ul></section>`)}</div>
    <div><${Timeline} events=${data.events} job=${job} moment=${data.moment} /><section aria-label=${t("History")}><h2>${t("What happened to it")} <span class="dim">${t("click one for its causes")}</span></h2>
      <ol class="history">${data.events.slice().reverse().map((each) => { const id = `${each.sequence}-${each.index}`; return html`<li key=${id}>
        <button class="when" title=${t("Show this moment")} onClick=${() => change({ at: each.sequence, event: "" }, {})}>${clock(each.at)}</button>
        <div><button class="event" aria-expanded=${open === id} onClick=${() => change({ event: open === id ? "" : id })}><${Word} word=${each.word} /> ${each.text}${each.times > 1 ? t(" ({times} times)", { times: each.times }) : ""}</button>
        ${open === id ? html`<${Chain} event=${id} close=${() => change({ event: "" })} />` : null}</div></li>`; })}</ol></section></div></div>`;
}

export function Nodes() {
  const found = useData("/api/v1/nodes?limit=500"), { data } = found;
  const [marked, mark] = useState("");
  return html`<h1>${t("Nodes")} ${data ? html`<span class="dim">${data.total}${fragments(data.fragmented)}</span>` : null}</h1><${Loading} ...${found} />
    ${data ? html`<div class="nodes">${data.nodes.map((node) => { const jobs = [...new Set(node.pods.map((pod) => pod.job).filter(Boolean))];
      return html`<section key=${node.name} class="node" aria-label=${node.name}><h2>${node.name} ${node.ready && node.schedulable ? null : html`<span class="chip bad">${node.ready ? t("cordoned") : t("not ready")}</span>`}
        <span class="dim">${node.gpus ? gpusFree(node) : t("no GPU")}</span></h2>
        ${node.gpus ? html`<div class="cells" role="img" aria-label=${t("{used} of {count} GPUs used", { used: node.gpus_used_milli / 1000, count: node.gpus })}>${cells(node).map((cell) => html`<i class=${`${cell ? (cell.job ? "cell job" : "cell other") : "cell"} ${cell && cell.job === marked ? "marked" : ""}`}
          style=${paint(cell)} title=${cell ? cell.job || t("not shown") : t("free")}></i>`)}</div>` : null}
        <p class="dim">${t("free:")} ${["cpu", "memory"].map((name) => t("{free} of {limit} {name}", { free: roughly(node.free[name] || "0"), limit: roughly(node.allocatable[name] || "0"), name })).join(", ")}</p>
        <ul class="jobs">${jobs.map((job) => html`<li key=${job} onMouseEnter=${() => mark(job)} onMouseLeave=${() => mark("")}><i class="cell job" style=${paint({ job })}></i> <${JobLink} job=${job} />${" "}
          <span class="dim">${many(node.pods.filter((pod) => pod.job === job).length, "pod")}</span></li>`)}${node.others ? html`<li class="dim">${t("{count} pods of others", { count: node.others })}</li>` : null}</ul></section>`; })}</div>
      <${Gangs} />` : null}`;
}

function Gangs() {
  const { data } = useData("/api/v1/gangs?limit=100");
  if (!data || !data.gangs.length) return null;
  return html`<section aria-label=${t("Gangs of pods")}><h2>${t("Gangs of pods")} <span class="dim">${data.total}</span></h2><table class="list"><thead><tr><th scope="col">Gang</th><th scope="col">${t("State")}</th><th scope="col">${t("Takes")}</th><th scope="col" class="wide">${t("Pods")}</th></tr></thead>
    <tbody>${data.gangs.map((gang) => html`<tr key=${gang.name}><th scope="row">${gang.name}</th><td title=${gang.text}>${gang.code}</td><td>${gang.minimum || ""}</td><td class="wide">${gang.pods.map((pod) => `${pod.name}: ${pod.where}`).join("; ")}</td></tr>`)}</tbody></table></section>`;
}

export function Health() {
  const found = useData("/api/v1/health"), { data } = found;
  return html`<h1>${t("Health")}</h1><section aria-label=${t("Health")}><${Loading} ...${found} />${data ? html`<h2><span class="state ${data.admits ? data.findings.length ? "warn" : "good" : "bad"}">${data.summary}</span></h2>
    ${data.findings.length ? html`<ul class="findings">${data.findings.map((each) => html`<li><span class="state ${each.level === "stopped" ? "bad" : "warn"}"><i aria-hidden="true">${each.level === "stopped" ? "✕" : "▲"}</i></span>
      <div>${/^[^/]+\/[^/]+$/.test(each.subject) ? html`<${JobLink} job=${each.subject} /> ` : each.subject ? html`<b>${each.subject}</b> ` : null}${each.text}</div></li>`)}</ul>` : html`<p>${t("The cluster is listed, jobs are admitted, and no object needs attention.")}</p>`}
    <p class="dim">${t("As the log shows it. {command} also asks the cluster and the bus.", { command: "`muster doctor`" })}</p>` : null}</section>`;
}

const parse = (text) => { try { const found = JSON.parse(text || "[]"); return Array.isArray(found) ? found : []; } catch { return []; } };
const when = (wait, owed, binds) => wait === null ? t("not foreseen") : owed ? t("by reclaim") : wait ? t("in {span}", { span: span(wait) }) : binds ? t("any moment") : t("now");
const words = (c) => c.job ? t("{job} asks for {value} {resource}", { ...c, resource: short(c.resource) })
  : c.nodes ? t("{nodes} with {value} {resource} each", { nodes: many(c.nodes, "more node"), value: c.value, resource: short(c.resource) }) : t("{field} of {queue}: {value} {resource}", { ...c, value: c.value || t("none"), resource: short(c.resource) });

export function WhatIf() {
  const { query } = usePlace(), changes = parse(query.get("change")), job = query.get("job") || "";
  const tree = useData("/api/v1/queues"), waiting = useData("/api/v1/jobs?state=waiting&limit=200");
  const found = useData(changes.length ? "/api/v1/whatif" : "", changes.length ? { changes, job } : undefined);
  const [kind, setKind] = useState("quota"), [picked, setPicked] = useState({});
  const pick = (event) => setPicked(Object.fromEntries(new FormData(event.currentTarget)));
  const set = (list) => change({ change: list.length ? JSON.stringify(list) : "" });
  const add = (event) => {
    event.preventDefault();
    const form = new FormData(event.target), get = (name) => String(form.get(name) || "");
    const made = { resource: get("resource"), value: get("value").trim() };
    if (kind === "quota") Object.assign(made, { queue: get("queue"), field: get("field") });
    if (kind === "job") made.job = get("job");
    if (kind === "nodes") made.nodes = Number(get("nodes")) || 1;
    set([...changes, made]);
  };
  const resources = tree.data ? resourcesOf(tree.data) : [GPU];
  // The quota of the job that is asked about comes first, and what a value is now is shown where the new one is typed.
  const line = waiting.data ? waiting.data.jobs : [], asked = line.find((each) => `${each.namespace}/${each.name}` === job);
  const queue = picked.queue || (asked ? asked.queue : ""), quota = (tree.data ? tree.data.queues : []).find((each) => each.path === queue);
  const resource = picked.resource || resources[0], part = quota && quota.amounts.find((each) => each.resource === resource);
  const now = part && { max: part.limit, min: part.guaranteed }[picked.field || "max"];
  const becomes = kind === "quota" && part && now !== undefined ? t("now {amount}", { amount: amount(now, resource) }) : "8";
  return html`<h1>${t("What if…")} <span class="dim">${t("the queues as they are, and with a change, played forward")}</span></h1>
    <div class="columns turned"><div><section aria-label=${t("Changes")}><h2>${t("Changes")}</h2>
      ${changes.length ? html`<ul class="changes">${changes.map((each, n) => html`<li>${words(each)} <button aria-label=${t("Remove: {change}", { change: words(each) })} onClick=${() => set(changes.filter((_, other) => other !== n))}>✕</button></li>`)}</ul>` : html`<p class="dim">${t("None yet: add one.")}</p>`}
      <span class="tabs" role="group" aria-label=${t("What to change")}>${[["quota", t("a quota")], ["nodes", t("more nodes")], ["job", t("a job's request")]].map(([name, text]) => html`<button aria-pressed=${kind === name} onClick=${() => setKind(name)}>${text}</button>`)}</span>
      <form onSubmit=${add} onChange=${pick} key=${kind}>
        ${kind === "quota" ? html`<label>${t("Quota")} <select name="queue" required>${(tree.data ? tree.data.queues : []).map((each) => html`<option value=${each.path} selected=${each.path === queue}>${each.path}</option>`)}</select></label>
          <label>${t("What")} <select name="field"><option>max</option><option>min</option><option>weight</option></select></label>` : null}
        ${kind === "nodes" ? html`<label>${t("How many")} <input name="nodes" type="number" min="1" max="1000" value="1" /></label>` : null}
        ${kind === "job" ? html`<label>${t("Job")} <select name="job" required>${line.map((each) => { const key = `${each.namespace}/${each.name}`; return html`<option selected=${key === job}>${key}</option>`; })}</select></label>` : null}
        <label>${t("Resource")} <select name="resource">${resources.map((each) => html`<option value=${each}>${short(each)}</option>`)}</select></label>
        <label>${kind === "nodes" ? t("Each has") : t("Becomes")} <input name="value" required placeholder=${becomes} size="8" /></label>
        <button class="button">${t("Add")}</button></form></section></div>
    <div><section aria-label=${t("Outcome")} aria-live="polite"><h2>${t("Outcome")}</h2>${changes.length ? html`<${Loading} ...${found} /><${Problem} text=${found.data ? found.problem : ""} />` : html`<p class="dim">${t("It is shown here as soon as there is a change.")}</p>`}
      ${changes.length && found.data ? html`<p class="lead">${found.data.summary}</p>
        <p>${t("{before} could start now as it is; with the change {after}.", { before: found.data.now_before, after: found.data.now_after })}</p>
        <div class="scroll"><table class="list"><thead><tr><th scope="col">${t("Waiting job")}</th><th scope="col" class="number">${t("as it is")}</th><th scope="col" class="number">${t("with it")}</th><th scope="col" class="wide">${t("What still binds")}</th></tr></thead>
        <tbody>${found.data.effects.slice(0, 25).map((each) => html`<tr key=${each.job}><th scope="row"><${JobLink} job=${each.job} /></th><td class="number">${when(each.before, each.owed_before, each.binds)}</td>
          <td class="number ${each.after !== null && (each.before === null || each.after < each.before) ? "cool" : ""}">${when(each.after, each.owed_after, each.binds)}</td><td class="wide reason">${each.binds}</td></tr>`)}</tbody></table></div>` : null}</section></div></div>`;
}
