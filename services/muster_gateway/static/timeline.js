// The life of a job on one line: waits, starts, runs, leaves; who started meanwhile, and what was promised.
import { html, useData, clock, span, change, many, t, JobLink } from "./kit.js";

const TURNS = { queued: "waits", admitted: "starts", running: "runs", evicted: "leaves", refused: "refused", finished: "", gone: "" };
const DID = { waits: t("waited"), starts: t("started"), runs: t("ran"), leaves: t("left"), refused: t("refused") };
const DOES = { waits: t("waits"), starts: t("starts"), runs: t("runs"), leaves: t("leaves"), refused: t("refused") };
const SHOWN = 12;

// From the lines of a history, oldest first: what the job did from when to when, times in ms.
export function spansOf(events, now) {
  const spans = [];
  for (const { word, at, sequence } of events) {
    const does = TURNS[word], last = spans[spans.length - 1], time = Date.parse(at);
    if (does === undefined || (last && last.end === null && last.does === does)) continue;
    if (last && last.end === null) last.end = time;
    if (does) spans.push({ does, word, start: time, end: null, sequence });
  }
  for (const each of spans) each.end = each.end === null ? Math.max(now, each.start) : each.end;
  return spans;
}

export function Timeline({ events, job, moment }) {
  const now = Date.parse(moment.at), spans = spansOf(events, now), last = spans[spans.length - 1];
  const waits = job.state === "waiting" && last && last.does === "waits";
  const queue = useData(waits ? `/api/v1/happened?queue=${encodeURIComponent(job.queue)}&limit=500` : "").data;
  if (!spans.length) return null;
  const own = `${job.namespace}/${job.name}`, passed = !queue ? [] : queue.events.filter((each) =>
    each.word === "admitted" && each.subject && each.subject !== own && Date.parse(each.at) > last.start && Date.parse(each.at) <= now);
  const promised = job.promise ? Date.parse(job.promise.latest) : 0, begin = spans[0].start, end = Math.max(spans[spans.length - 1].end, promised, begin + 1);
  const part = (from, to) => `${Math.max(0, to - from) * 100 / (end - begin)}%`, left = spans.length > SHOWN ? spans.length - SHOWN : 0;
  const words = spans.slice(left).map((each) => `${DID[each.does]} ${span(each.end - each.start)}`).join(", ");
  return html`<section aria-label=${t("Timeline")}><h2>${t("Timeline")} <span class="dim">${t("{first} to {last}", { first: clock(begin), last: clock(end) })}</span></h2>
    <div class="life" role="img" aria-label=${words}>${spans.map((each) => html`<i key=${each.sequence} class=${each.does} style=${{ left: part(begin, each.start), width: part(each.start, each.end) }}></i>`)}
      ${promised > now ? html`<i class="promised" style=${{ left: part(begin, now), width: part(now, promised) }}></i>` : null}
      ${passed.map((each) => html`<i key=${each.sequence} class="passed" style=${{ left: part(begin, Date.parse(each.at)) }}></i>`)}</div>
    <ol class="turns">${left ? html`<li key="earlier" class="dim">${many(left, "earlier turn")}</li>` : null}${spans.slice(left).map((each) => html`<li key=${each.sequence}>
      <button class="when" title=${t("Show this moment")} onClick=${() => change({ at: each.sequence, event: "" }, {})}>${clock(each.start)}</button> <b class=${each.does}>${t(each.word)}</b> <span class="dim">${DOES[each.does]} ${span(each.end - each.start)}</span></li>`)}
      ${job.promise ? html`<li key="promised"><span class="when">${clock(promised)}</span> <b>${t("promised")}</b> <span class="dim">${t("a start by then, meant to hold in {percent} of 100 cases", { percent: job.promise.percent })}${job.promise.first ? t("; first promised by {time}", { time: clock(job.promise.first) }) : ""}</span></li>` : null}</ol>
    ${passed.length ? html`<p class="dim">${t("{jobs} of its quota started while it waits, last", { jobs: many(passed.length, "job") })} ${passed.slice(0, 3).map((each, n) => html`${n ? ", " : ""}<${JobLink} job=${each.subject} />`)}.</p>` : null}</section>`;
}
