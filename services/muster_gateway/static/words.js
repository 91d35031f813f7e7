// The language of the page: chosen on the page, else the browser's. The English text is the id of a text, as in
// muster/languages, of which zh-CN.json is made.
const KEY = "muster-language";
export const LANGUAGES = { en: "English", "zh-CN": "中文" };
const stored = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
const tagged = (name) => /^zh\b/i.test(name) ? "zh-CN" : /^en\b/i.test(name) ? "en" : "";
export const language = stored() in LANGUAGES ? stored() : (navigator.languages || []).map(tagged).find(Boolean) || "en";
export const choose = (tag) => { localStorage.setItem(KEY, tag); location.reload(); };

const texts = language === "en" ? {} : await fetch(`/${language}.json`).then((answer) => answer.json()).catch(() => ({}));
document.documentElement.lang = language;

// With a blank between Chinese and Latin letters, as model/language.py has it.
const spaced = (text) => text.replace(/([\u4e00-\u9fff])(?=[A-Za-z0-9`])|([A-Za-z0-9`%])(?=[\u4e00-\u9fff])/g, "$1$2 ");

export function t(text, values = {}) {
  const words = (texts[text] || text).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
  return language === "en" ? words : spaced(words);
}
