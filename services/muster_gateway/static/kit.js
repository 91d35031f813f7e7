// What all views share: html in templates, the address as the state, data by path, small parts.
import { h, render, Fragment } from "./vendor/preact.js";
import { useState, useEffect, useMemo, useRef, useContext, useCallback } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { createContext } from "./vendor/preact.js";
import { ask } from "./api.js";
import { language, t } from "./words.js";

export const html = htm.bind(h);
export { t, language };
export { h, render, Fragment, useState, useEffect, useMemo, useRef, useContext, useCallback };
export const GPU = "nvidia.com/gpu";

// --- the address ------------------------------------------------------------------------------------------------------

const listeners = new Set();
export const place = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });

export function go(path, change = {}, { replace = false } = {}) {
  const query = new URLSearchParams(path.includes("?") ? path.slice(path.indexOf("?")) : "");
  const at = new URLSearchParams(location.search).get("at");
  if (at && !query.has("at")) query.set("at", at);
  for (const [name, value] of Object.entries(change)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  history[replace ? "replaceState" : "pushState"](null, "", path.split("?")[0] + (text ? `?${text}` : ""));
  if (!replace) scrollTo(0, 0);
  listeners.forEach((each) => each());
}

export const change = (what, options = { replace: true }) => go(location.pathname + location.search, what, options);

export function usePlace() {
  const [, again] = useState(0);
  useEffect(() => {
    const look = () => again((n) => n + 1);
    listeners.add(look);
    addEventListener("popstate", look);
    return () => { listeners.delete(look); removeEventListener("popstate", look); };
  }, []);
  return place();
}

export function Link({ to, children, ...rest }) {
  const at = place().query.get("at");
  const href = at && !to.includes("at=") ? `${to}${to.includes("?") ? "&" : "?"}at=${at}` : to;
  const click = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(to);
  };
  return html`<a href=${href} onClick=${click} ...${rest}>${children}</a>`;
}

export const jobPath = (key) => `/job/${key.split("/").map(encodeURIComponent).join("/")}`;
export const JobLink = ({ job }) => html`<${Link} to=${jobPath(job)} class="job">${job}<//>`;

// --- data -------------------------------------------------------------------------------------------------------------

export const Now = createContext({ at: "", tick: 0, failed: () => {} });

// The answer to a question, asked again when the news change; the old answer is shown until then. An answer is held
// with its question and its moment: under another clock, or beside another question, there is no answer yet. `keep`:
// while a list is filtered, the list before stays.
export function useData(path, body, { keep = false } = {}) {
  const { at, tick, failed } = useContext(Now);
  const [found, setFound] = useState({ data: null, problem: "", asked: "" });
  const said = body === undefined ? undefined : JSON.stringify(body);
  const asked = `${at} ${keep ? path.split("?")[0] : path} ${said}`;
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    ask(path, { at, signal: stop.signal, body: said === undefined ? undefined : JSON.parse(said) })
      .then((data) => setFound({ data, problem: "", asked }))
      .catch((problem) => {
        if (problem.name === "AbortError") return;
        failed(problem);
        setFound((old) => ({ data: old.asked === asked ? old.data : null, problem: problem.message, asked }));
      });
    return () => stop.abort();
  }, [path, at, at ? 0 : tick, said]);
  return found.asked === asked ? found : { data: null, problem: "", asked };
}

// --- words and amounts ------------------------------------------------------------------------------------------------

export const clock = (text, seconds = true) => {
  const when = new Date(text), today = new Date();
  const time = when.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}), hour12: false });
  return when.toDateString() === today.toDateString() ? time
    : `${when.toLocaleDateString(language, { month: "short", day: "numeric" })} ${time}`;
};

export function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return t("{number} s", { number: s });
  if (s < 5400) return t("{number} min", { number: Math.round(s / 60) });
  if (s < 172800) return t("{number} h", { number: Math.round(s / 3600) });
  return t("{number} d", { number: Math.round(s / 86400) });
}

const BINARY = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
export function amount(value, resource) {
  if (value === null || value === undefined) return "∞";
  if (!/memory|storage/.test(resource)) return `${Math.round(value / 10) / 100}`;
  let unit = 0;
  while (value >= 1024 && unit < 5) { value /= 1024; unit += 1; }
  return `${Math.round(value * 10) / 10}${BINARY[unit]}`;
}

// A quantity as Kubernetes writes it, as people read it: 456528Mi is 445.8Gi, 30500m is 30.5.
export const roughly = (text) => { if (/^\d+m$/.test(text)) return `${parseInt(text, 10) / 1000}`; const [, number, unit] = /^(\d+)(Ki|Mi|Gi)?$/.exec(text) || []; return unit ? amount(number * 1024 ** (1 + ["Ki", "Mi", "Gi"].indexOf(unit)), "memory") : text; };

export const short = (resource) => resource === GPU ? "GPU" : resource.includes("/") ? resource.split("/")[1] : resource;
export const requestText = (request) => {
  const names = Object.keys(request).sort((a, b) => (b === GPU) - (a === GPU));
  return names.filter((name) => name !== "memory" || names.length < 2).slice(0, 2).map((name) => `${roughly(request[name])} ${short(name)}`).join(", ");
};

// What a state is called; the code of a job is in the title.
const STATE = { seen: t("seen"), outside: t("outside"), waiting: t("waiting"), refused: t("refused"), reserved: t("reserved"), admitted: t("admitted"),
  running: t("running"), leaving: t("leaving"), finished: t("finished"), gone: t("gone"), failed: t("failed"), invalid: t("invalid") };
const TONE = { good: "good", waits: "wait", act: "bad", plain: "done" };
const MARK = { good: "●", wait: "◔", warn: "▲", bad: "✕", done: "○" };
export function State({ job, text }) {
  const shown = STATE[job.outcome && job.outcome !== "succeeded" ? job.outcome : job.state];
  const tone = job.state === "leaving" ? "warn" : TONE[job.tone] || "done";
  return html`<span class="state ${tone}" title=${job.status}><i aria-hidden="true">${MARK[tone]}</i> ${text || shown || job.status}</span>`;
}

const WORD = { admitted: "good", running: "good", finished: "done", evicted: "warn", reclaimed: "warn", preempted: "warn", waits: "wait", queued: "wait", refused: "bad", failed: "bad" };
export const Word = ({ word }) => html`<span class="word ${WORD[word] || "done"}">${t(word)}</span>`;

// A sentence in which names of jobs are links. A job is known by the list that the view has.
export function Told({ text, jobs = [] }) {
  const known = jobs.filter((each) => each && text.includes(each)).sort((a, b) => b.length - a.length);
  if (!known.length) return html`${text}`;
  const parts = text.split(new RegExp(`(${known.map((each) => each.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`));
  return html`${parts.map((part) => known.includes(part) ? html`<${JobLink} job=${part} />` : part)}`;
}

export function Promised({ job, now }) {
  if (!job.promise) return job.state === "waiting" ? html`<span class="dim" title=${job.why_no_promise}>${job.tone === "act" ? t("not as it is") : t("no promise yet")}</span>` : null;
  const { start, latest, percent, kept, settled, first } = job.promise;
  const title = t("by {time}, meant to hold in {percent} of 100 cases; {kept} of {settled} promises after such waits were kept", { time: clock(latest, false), percent, kept, settled });
  const moved = first && clock(first, false) !== clock(latest, false)
    ? t("promised {first}, now {latest}", { first: clock(first, false), latest: clock(latest, false) }) : t("by {time}", { time: clock(latest, false) });
  return html`<span title=${title}>${t("in {span}", { span: span(new Date(start) - new Date(now)) })}<span class="dim"> · ${moved}</span></span>`;
}

export const Problem = ({ text }) => text ? html`<p class="problem" role="status">${text}</p>` : null;
export const fragments = (count) => count ? t(", {count} partly used", { count }) : "";
export const Loading = ({ data, problem }) => data ? null : problem ? html`<${Problem} text=${problem} />` : html`<p class="dim">${t("Loading…")}</p>`;
export function hue(text) {
  let n = 2166136261;
  for (const c of text) n = Math.imul(n ^ c.charCodeAt(0), 16777619);
  n = Math.imul(n ^ (n >>> 15), 2246822507);
  return ((n ^ (n >>> 13)) >>> 0) % 24 * 15;
}
export const many = (number, noun) => t(`{number} ${noun}${number === 1 ? "" : "s"}`, { number: number.toLocaleString() });
