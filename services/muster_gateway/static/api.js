// Questions to the gateway: one answer, or the stream of what happens. The token, if one is needed, stays in this tab.
import { language, t } from "./words.js";

const KEY = "muster-token";

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export const token = { get: () => sessionStorage.getItem(KEY) || "", set: (text) => sessionStorage.setItem(KEY, text) };

function headers(more) {
  const said = token.get();
  const spoken = { ...more, "Accept-Language": language };
  return said ? { ...spoken, Authorization: `Bearer ${said}` } : spoken;
}

export async function ask(path, { at = "", signal, body } = {}) {
  const url = at ? `${path}${path.includes("?") ? "&" : "?"}at=${encodeURIComponent(at)}` : path;
  const options = { signal, headers: headers({ Accept: "application/json" }) };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  let answer, found;
  try {
    answer = await fetch(url, options);
    found = await answer.text();  // May be aborted half-way, too.
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused(0, t("The gateway cannot be reached. It is asked again every few seconds."));
  }
  try {
    found = JSON.parse(found);
  } catch {
    throw new Refused(answer.status, t("The gateway answered HTTP {status}, and no JSON.", { status: answer.status }));
  }
  if (!answer.ok) throw new Refused(answer.status, found.error);
  return found;
}

// Follows the stream for as long as the signal allows; goes on after the last position when the connection was lost.
export async function follow(signal, heard, connected) {
  let last = "";
  while (!signal.aborted) {
    try {
      const answer = await fetch("/api/v1/stream", { signal, headers: headers(last ? { "Last-Event-ID": last } : {}) });
      if (!answer.ok) throw new Refused(answer.status, "");
      connected(true);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          const id = /^id: (.*)$/m.exec(part), data = /^data: (.*)$/m.exec(part);
          if (id) last = id[1];
          if (data) heard(JSON.parse(data[1]));
        }
      }
    } catch (problem) {
      if (signal.aborted) return;
    }
    connected(false);
    await new Promise((again) => setTimeout(again, 2000));
  }
}
