// The shell: where we are, which moment is shown, and the stream of news.
import { html, render, useState, useEffect, useMemo, useRef, useCallback, usePlace, useData, Link, Now, Problem, change, go, clock, jobPath, t } from "./kit.js";
import { LANGUAGES, choose, language } from "./words.js";
import { ask, follow, token } from "./api.js";
import { Overview } from "./overview.js";
import { Jobs, Job, Nodes, WhatIf, Health } from "./pages.js";

const TABS = [["/", t("Overview")], ["/jobs", t("Jobs")], ["/nodes", t("Nodes")], ["/whatif", t("What if")]];
const TICK_MS = 1000;

function SignIn({ problem, done }) {
  const submit = (event) => { event.preventDefault(); token.set(String(new FormData(event.target).get("token")).trim()); done(); };
  return html`<main class="signin"><h1>Muster</h1><p>${problem}</p><form onSubmit=${submit}>
    <label>${t("Token")} <input name="token" type="password" autocomplete="off" required autofocus /></label><button class="button">${t("Sign in")}</button></form>
    <p class="dim">${t("A token of this cluster, for example of {command}. It stays in this tab.", { command: "`kubectl create token NAME`" })}</p></main>`;
}

const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5 };

// A moment that is no sequence, as a time: so long before the newest, or a date and time.
const timed = (at, newest) => { const found = /^-(\d+)([smhd])$/.exec(at); return found ? new Date(newest - found[1] * UNITS[found[2]]) : new Date(at); };
const local = (when) => new Date(when - when.getTimezoneOffset() * 60000).toISOString().slice(0, 19);

// An address that shows this page as of this moment, to whoever opens it.
function Share({ at, latest }) {
  const [said, say] = useState("");
  const copy = () => {
    const url = new URL(location.href);
    if (!at && latest) url.searchParams.set("at", latest.sequence);
    const done = (text) => { say(text); setTimeout(() => say(""), 2500); };
    navigator.clipboard ? navigator.clipboard.writeText(url.href).then(() => done(t("Copied"))).catch(() => prompt(t("The address of this moment"), url.href)) : prompt(t("The address of this moment"), url.href);
  };
  return html`<button class="share" onClick=${copy} disabled=${!at && !latest} title=${t("Copy an address that shows this page as of this moment")}>${said || t("Copy link")}</button>`;
}

function Condition() {
  const { data } = useData("/api/v1/health");
  if (!data) return null;
  const tone = data.admits ? data.findings.length ? "warn" : "good" : "bad", count = data.findings.length;
  return html`<${Link} to="/health" class="condition state ${tone}" title=${data.summary}><i aria-hidden="true">${{ good: "●", warn: "▲", bad: "✕" }[tone]}</i> ${data.admits ? count ? t("{count} to look at", { count }) : t("healthy") : t("stopped")}<//>`;
}

// The slider: each step is a turn of the log; its end is now.
function Time({ at, news, latest }) {
  const [found, setFound] = useState({ marks: [], last: null });
  useEffect(() => { ask("/api/v1/moments?limit=600").then(setFound).catch(() => {}); }, [at ? "past" : Math.floor(news.count / 3)]);
  const { marks } = found, [drawn, setDrawn] = useState(null), [asks, ask_at] = useState(false), later = useRef(0);
  const show_at = (event) => { event.preventDefault(); const when = new Date(String(new FormData(event.target).get("when"))); ask_at(false); change({ at: when.toISOString(), event: "" }); };
  const newest = latest ? new Date(latest.at) : new Date();  // The clock of a demo may run faster.
  const time = timed(at, newest), shown = isNaN(time) ? at : clock(time);
  let index = marks.length;
  // A moment is a sequence, or a time: the last turn at it or before it.
  if (at) { const later = marks.findIndex((each) => /^\d+$/.test(at) ? each.sequence > Number(at) : new Date(each.at) > time); index = Math.max(0, (later < 0 ? marks.length : later) - 1); }
  const show = drawn === null ? index : drawn, mark = marks[show];
  const move = (to) => {
    const wanted = Math.max(0, Math.min(marks.length, to));
    setDrawn(wanted);
    clearTimeout(later.current);
    later.current = setTimeout(() => { setDrawn(null); change({ at: wanted >= marks.length ? "" : marks[wanted].sequence, event: "" }); }, 80);
  };
  const said = show >= marks.length ? t("now") : mark ? `${clock(mark.at)}, ${mark.subject} ${t(mark.word)}` : "";
  return html`<div class="time ${at ? "past" : ""}" role="group" aria-label=${t("Time")}>
    <button onClick=${() => move(show - 1)} disabled=${!show} aria-label=${t("Back by one decision")}>◀</button>
    <input type="range" min="0" max=${marks.length} value=${show} aria-label=${t("Moment")} aria-valuetext=${said} onInput=${(event) => move(Number(event.target.value))} />
    <button onClick=${() => move(show + 1)} disabled=${show >= marks.length} aria-label=${t("Forward by one decision")}>▶</button>
    ${asks ? html`<form class="asked" onSubmit=${show_at}><input type="datetime-local" name="when" step="1" required autofocus aria-label=${t("Date and time")}
        defaultValue=${local(at && mark ? new Date(mark.at) : newest)} /><button class="button">${t("Show")}</button></form>` : html`<button class="moment" onClick=${() => ask_at(true)} title=${t("Go to a date and time")}>
      ${at ? html`<b>${drawn === null && !/^\d+$/.test(at) ? shown : mark ? clock(mark.at) : at}</b> <span class="dim">${/^\d+$/.test(at) || drawn !== null ? t("sequence {seq}", { seq: drawn === null ? at : mark ? mark.sequence : "" }) : ""}</span>` : html`<span class="live">${t("live")}</span> <span class="dim">${latest ? clock(latest.at) : ""}</span>`}</button>`}
    <button class="button" onClick=${() => change({ at: "", event: "" })} disabled=${!at}>${t("Now")}</button></div>`;
}

function App() {
  const { path, query } = usePlace(), at = query.get("at") || "";
  const [tick, setTick] = useState(0), [news, setNews] = useState({ connected: false, count: 0 }), [latest, setLatest] = useState(null);
  const [denied, setDenied] = useState(""), [viewer, setViewer] = useState(null), [key, setKey] = useState(0);
  const failed = useCallback((problem) => { if (problem.status === 401) setDenied(problem.message); }, []);
  useEffect(() => { ask("/api/v1/viewer").then(setViewer).catch(failed); }, [key]);
  useEffect(() => {
    const stop = new AbortController();
    let waits = 0;
    follow(stop.signal, (message) => {
      setLatest(message.moment);
      if (waits) return;
      waits = setTimeout(() => { waits = 0; setTick((n) => n + 1); setNews((old) => ({ ...old, count: old.count + 1 })); }, TICK_MS);
    }, (connected) => setNews((old) => ({ ...old, connected })));
    const slow = setInterval(() => setTick((n) => n + 1), 10000);
    return () => { stop.abort(); clearTimeout(waits); clearInterval(slow); };
  }, [key]);
  useEffect(() => {
    const press = (event) => {
      if (/INPUT|SELECT|TEXTAREA/.test(event.target.tagName) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === "/") { event.preventDefault(); document.getElementById("find")?.focus(); }
      const tab = TABS[Number(event.key) - 1];
      if (tab) go(tab[0]);
      if (event.key === "n") change({ at: "" });
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const now = useMemo(() => ({ at, tick, failed }), [at, tick, key]);
  if (denied) return html`<${SignIn} problem=${denied} done=${() => { setDenied(""); setKey((n) => n + 1); setTick((n) => n + 1); }} />`;
  const parts = path.split("/").map(decodeURIComponent);
  const page = parts[1] === "job" ? html`<${Job} name=${parts.slice(2).join("/")} key=${path} />` : parts[1] === "jobs" ? html`<${Jobs} />`
    : parts[1] === "nodes" ? html`<${Nodes} />` : parts[1] === "whatif" ? html`<${WhatIf} />` : parts[1] === "health" ? html`<${Health} />` : html`<${Overview} news=${news} />`;
  const find = (event) => { event.preventDefault(); const wanted = String(new FormData(event.target).get("find")).trim(); if (wanted) go(wanted.includes("/") ? jobPath(wanted) : `/jobs?name=${encodeURIComponent(wanted)}`); };
  return html`<${Now.Provider} value=${now}>
    <header><a class="skip" href="#main">${t("Skip to the page")}</a><${Link} to="/" class="brand"><img src="/icon.svg" alt="" width="22" height="22" /> Muster<//>
      <nav aria-label=${t("Pages")}>${TABS.map(([to, name]) => html`<${Link} to=${to} aria-current=${(to === "/" ? path === "/" : path.startsWith(to)) ? "page" : undefined}>${name}<//>`)}</nav>
      <form role="search" onSubmit=${find}><input id="find" name="find" type="search" placeholder=${`${t("Find a job")}  ( / )`} aria-label=${t("Find a job")} /></form>
      ${viewer ? html`<span class="dim who" title=${viewer.namespaces ? t("You see {namespaces}", { namespaces: viewer.namespaces.join(", ") || t("no namespace") }) : t("You see all namespaces")}>${viewer.name || t("local")} · ${viewer.cell}</span>` : null}
      <select class="language" aria-label=${t("Language")} onChange=${(event) => choose(event.target.value)}>${Object.entries(LANGUAGES).map(([tag, name]) => html`<option value=${tag} lang=${tag} selected=${tag === language}>${name}</option>`)}</select>
      <${Condition} /><${Share} at=${at} latest=${latest} />
      <${Time} at=${at} news=${news} latest=${latest} /></header>
    ${news.connected || at || !news.count ? null : html`<${Problem} text=${t("The connection to the gateway was lost; it is tried again.")} />`}
    <main id="main" class=${at ? "past" : ""}>${page}</main><//>`;
}

const root = document.getElementById("app");
root.replaceChildren();
render(html`<${App} />`, root);
