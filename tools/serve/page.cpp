#include "tools/serve/page.h"

namespace lariat {

const char* const kPage = R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>lariat</title>
<style>
:root { color-scheme: light dark; --line: #8884; --mine: #8882; --mark: #c60; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
header, form, fieldset { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: baseline; }
header h1 { font-size: 1.2rem; margin: 0; }
fieldset { border: 1px solid var(--line); border-radius: .4rem; margin: .5rem 0; }
label { font-size: .85rem; }
input { width: 7rem; font: inherit; }
textarea { flex: 1 1 100%; min-height: 4rem; font: inherit; padding: .5rem; }
article { white-space: pre-wrap; overflow-wrap: anywhere; padding: .5rem .75rem; margin: .5rem 0; border-radius: .4rem; }
article.user { background: var(--mine); }
article.error { color: var(--mark); }
canvas { width: 100%; height: 6rem; border: 1px solid var(--line); border-radius: .4rem; }
small { opacity: .75; }
</style>
<header><h1>lariat</h1><span id="model"></span><small id="facts"></small></header>
<fieldset>
<label>temperature <input id="temperature" type="number" min="0" step="0.1" value="0.7"></label>
<label>top_p <input id="top_p" type="number" min="0" max="1" step="0.05" value="1"></label>
<label>new tokens <input id="max_tokens" type="number" min="1" value="512"></label>
<label>rope_scaling <input id="rope_scaling" placeholder="the model's"></label>
<label>position_method <input id="position_method" placeholder="the model's"></label>
<label>API key <input id="key" type="password"></label>
</fieldset>
<main id="texts"></main>
<canvas id="plot" title="surprisal of each new token in nats, and tokens per second"></canvas>
<small id="state"></small>
<form id="form">
<textarea id="text" placeholder="Message (Ctrl-Enter sends)" aria-label="Message"></textarea>
<button id="send">Send</button>
<button id="stop" type="button" disabled>Stop</button>
<button id="more" type="button" disabled>Continue</button>
<button id="clear" type="button">New chat</button>
</form>
<script>
"use strict";
const get = id => document.getElementById(id);
let messages = [], surprisal = [], rates = [], running = null, room = 0;

function headers() {
  const key = get("key").value;
  return {"Content-Type": "application/json", ...(key ? {Authorization: "Bearer " + key} : {})};
}
function show(role, text) {
  const article = document.createElement("article");
  article.className = role;
  article.textContent = text;
  get("texts").append(article);
  return article;
}
function draw() {
  const canvas = get("plot"), scale = devicePixelRatio || 1, context = canvas.getContext("2d");
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  const plot = (values, colour) => {
    const most = Math.max(1e-9, ...values);
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = scale;
    context.beginPath();
    values.forEach((value, i) => context.lineTo((i + .5) / values.length * canvas.width,
                                                (1 - .85 * value / most) * canvas.height));
    context.stroke();
  };
  plot(surprisal.slice(-400), "#c60");
  plot(rates.slice(-400), "#38c");
}
async function describe() {
  const answer = await fetch("/v1/models", {headers: headers()});
  if (!answer.ok) return get("facts").textContent = "needs its API key";
  const model = (await answer.json()).data[0];
  room = model.max_model_len;
  get("model").textContent = model.id;
  get("facts").textContent = room ? "context of " + room + " tokens" : "";
}
function settings() {
  const body = {};
  for (const name of ["temperature", "top_p", "max_tokens"])
    if (get(name).value !== "") body[name] = Number(get(name).value);
  for (const name of ["rope_scaling", "position_method"])
    if (get(name).value.trim() !== "") body[name] = get(name).value.trim();
  return body;
}
async function answer() {
  const last = messages[messages.length - 1];
  const goesOn = last.role === "assistant";
  const mine = goesOn ? last : {role: "assistant", content: ""};
  const article = goesOn ? [...document.querySelectorAll("article.assistant")].pop() : show("assistant", "");
  mine.content = mine.content.trimEnd();  // The server continues after the last word.
  running = new AbortController();
  get("stop").disabled = false;
  get("send").disabled = get("more").disabled = true;
  const start = performance.now();
  let tokens = 0, facts = {length: 0, rope_scale: 1, rerotations: 0};
  surprisal = [], rates = [];
  try {
    const body = {messages, stream: true, logprobs: true, ...settings()};
    const reply = await fetch("/v1/chat/completions",
                              {method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal});
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    if (!goesOn) messages.push(mine);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let part; !(part = await reader.read()).done;) {
      const events = (rest + part.value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        if (!event.startsWith("data: {")) continue;
        const chunk = JSON.parse(event.slice(6));
        if (chunk.error) throw new Error(chunk.error.message);
        facts = chunk.lariat || facts;
        const choice = chunk.choices[0];
        if (!choice) continue;
        mine.content += choice.delta.content || "";
        for (const token of choice.logprobs ? choice.logprobs.content : []) {
          surprisal.push(-token.logprob);
          rates.push(++tokens / (performance.now() - start) * 1000);
        }
        article.textContent = mine.content;
      }
      draw();
      get("state").textContent = tokens + " tokens, " + (rates[rates.length - 1] || 0).toFixed(1) + " per second" +
        "; context: " + facts.length + (room ? " of " + room : "") +
        "; RoPE scale " + facts.rope_scale.toFixed(2) + ", " + facts.rerotations + " re-rotations";
    }
  } catch (error) {
    const at = messages.indexOf(goesOn || mine.content ? null : last);
    if (at >= 0) {  // No answer: the message returns to its field.
      messages.length = at;
      article.previousElementSibling.remove();
      article.remove();
      get("text").value = get("text").value || last.content;
    }
    if (error.name !== "AbortError") show("error", error.message);
  }
  running = null;
  get("stop").disabled = true;
  get("send").disabled = false;
  get("more").disabled = !(messages.length && messages[messages.length - 1].role === "assistant" &&
                           messages[messages.length - 1].content);
}
get("form").onsubmit = event => {
  event.preventDefault();
  const text = get("text").value;
  if (running || !text) return;
  get("text").value = "";
  messages.push({role: "user", content: text});
  show("user", text);
  answer();
};
get("text").onkeydown = event => { if (event.ctrlKey && event.key === "Enter") get("form").requestSubmit(); };
get("stop").onclick = () => running && running.abort();
get("more").onclick = () => answer();
get("clear").onclick = () => {
  if (running) running.abort();
  messages = [], surprisal = [], rates = [];
  get("texts").replaceChildren();
  get("state").textContent = "";
  get("more").disabled = true;
  draw();
};
get("key").onchange = describe;
describe();
</script>
</html>
)html";

}  // namespace lariat
