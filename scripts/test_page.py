#!/usr/bin/env python3
"""Uses the page of lariat serve in a headless Chromium: Send, Stop, Continue, New chat, fields, plot and colour schemes.

    scripts/test_page.py [BUILD]    the folder of lariat, default: build
"""
import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

DEMO = Path(__file__).resolve().parent.parent / "configs/demo"
# Chromium reads requests from descriptor 3 and writes answers to 4.
CHROMIUM = ("exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
            "--no-first-run --remote-debugging-pipe --user-data-dir=profile 3<&0 4>&1 >/dev/null")
BACKGROUND = "document.body.style.background = 'Canvas', getComputedStyle(document.body).backgroundColor"
# Runs in the page, because a call per poll could miss a short answer. -> [[name, found, wanted]]
USE = r"""(async () => {
const checks = [], check = (name, found, wanted) => checks.push([name, found, wanted]);
const until = async (name, test) => {
  for (const end = Date.now() + 20000; !(await test()); await new Promise(go => setTimeout(go, 5)))
    if (Date.now() > end) throw new Error("20 s passed: " + name);
};
const click = async (button, fields = {}) => {
  for (const [id, value] of Object.entries(fields)) get(id).value = value;
  get(button).click();
  await until("the end after " + button, () => get("stop").disabled);
};
const texts = role => [...document.querySelectorAll("article." + role)].map(article => article.textContent);
const text = "The secret number of";
const ask = async settings => (await fetch("/v1/chat/completions", {method: "POST", headers: headers(), body: JSON.stringify(
  {messages: [{role: "user", content: text}], temperature: 0, ...settings})})).json();
const text_of = reply => reply.choices[0].message.content || "not empty";
try {
  await until("the model's name", () => document.getElementById("facts")?.textContent);
  check("the model and its context", [get("model").textContent, get("facts").textContent], ["demo", "context of 16384 tokens"]);
  await click("send", {text, temperature: 0, max_tokens: 24});
  const reply = await ask({max_tokens: 24}), plot = get("plot");
  check("the text after Send", texts("assistant"), [text_of(reply)]);
  check("the state", get("state").textContent.match(/^\d+|\d+ of \d+/g), ["24", reply.usage.total_tokens - 1 + " of 16384"]);
  check("lines in the plot", plot.getContext("2d").getImageData(0, 0, plot.width, plot.height).data.some(v => v > 0), true);
  await click("more", {max_tokens: 28}), await click("more");  // The first of them ends in a line feed.
  const long = text_of(await ask({max_tokens: 96})), least = text_of(await ask({max_tokens: 60})).length;
  check("the text after Continue", texts("assistant"), [long.slice(0, Math.max(least, texts("assistant").join().length))]);
  const real_fetch = fetch;  // ignore_eos: the answer is long, so that a slow browser can stop it.
  fetch = (url, options) => real_fetch(url, options?.body
    ? {...options, body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})} : options);
  await click("clear", {text, max_tokens: 100000});
  check("the texts after New chat", get("texts").textContent, "");
  get("text").dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", ctrlKey: true}));
  await until("an answer to Ctrl-Enter", () => texts("assistant").join());
  await click("stop");
  check("a full context in spite of Stop", Number(get("state").textContent.match(/context: (\d+)/)[1]) >= 16384, false);
  fetch = real_fetch;
  await until("the server's end after Stop", async () => /running 0/.test(await (await fetch("/metrics")).text()));
  await click("clear", {text, max_tokens: 24, rope_scaling: "yarn/factor=4"}), await click("send");
  const scaled = text_of(await ask({max_tokens: 24, rope_scaling: "yarn/factor=4"}));
  check("the text with rope_scaling after New chat", [texts("assistant"), scaled === text_of(reply)], [[scaled], false]);
  await click("more", {rope_scaling: "rubbish"});
  check("the error of a wrong rope_scaling", texts("error"), [(await ask({rope_scaling: "rubbish"})).error.message]);
  await click("more", {rope_scaling: ""});
  check("Continue after an error lengthens the text", texts("assistant").join().length > scaled.length, true);
} catch (error) { check("exception", error.stack, ""); }
return checks;
})()"""


class Page:
    """A tab of Chromium. Uses the debugging pipe, because the standard library has no WebSocket client."""

    def __init__(self, chromium):
        self.chromium, self.unread, self.urls, self.errors, self.session = chromium, b"", [], [], {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in "Runtime", "Log", "Network":
            self.call(domain + ".enable")

    def call(self, method, **params):
        signal.alarm(60)  # longer than the waits within the page
        self.chromium.stdin.write(json.dumps({"id": 1, "method": method, "params": params} | self.session).encode() + b"\0")
        while True:
            while b"\0" not in self.unread:
                self.unread += self.chromium.stdout.read(1 << 16) or sys.exit("test_page: chromium ended")
            message, self.unread = self.unread.split(b"\0", 1)
            match json.loads(message):
                case {"id": 1, "result": result}:
                    return result
                case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                    self.urls.append(url)
                case {"params": {"exceptionDetails": one} | {"entry": {"level": "error"} as one} | ({"type": "error"} as one)}:
                    if "status of 400" not in one.get("text", ""):  # the refused rope_scaling
                        self.errors.append(one)

    def run(self, script, scheme="light"):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        return self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)["result"]["value"]


def main():
    if not shutil.which("chromium"):
        return print("SKIPPED: the page: chromium is missing; run scripts/install.sh --ci")
    for number in signal.SIGALRM, signal.SIGTERM:  # sys.exit runs the cleanup
        signal.signal(number, lambda number, _: sys.exit(f"test_page: ended by {signal.strsignal(number)}"))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        shutil.copytree(DEMO, f"{folder}/demo")
        # The demo has no template. This one joins the texts, so that Continue resumes the story.
        template = "{{ bos_token }}{% for one in messages %}{{ '' if loop.first else ' ' }}{{ one.content }}{% endfor %}"
        Path(f"{folder}/demo/chat_template.jinja").write_text(template, encoding="utf-8")
        command = [f"{(sys.argv[1:] or ['build'])[0]}/lariat", "serve", "-m", f"{folder}/demo", "--port=0", "--ctx=16384"]
        server = stack.enter_context(Popen(command, start_new_session=True, stderr=PIPE, text=True))
        stack.callback(os.killpg, server.pid, signal.SIGKILL)
        signal.alarm(20)
        line = next((line for line in server.stderr if "listening on" in line), None) or sys.exit("test_page: no server")
        url = line.split()[-1].removesuffix("v1")
        chromium = stack.enter_context(Popen(["bash", "-c", CHROMIUM], start_new_session=True, bufsize=0, cwd=folder,
                                             env=os.environ | {"TMPDIR": folder}, stdin=PIPE, stdout=PIPE, stderr=DEVNULL))
        stack.callback(os.killpg, chromium.pid, signal.SIGKILL)
        page = Page(chromium)
        page.call("Page.navigate", url=url)
        checks = page.run(USE)
        checks.append(["different backgrounds", page.run(BACKGROUND, "dark") != page.run(BACKGROUND, "light"), True])
        checks.append(["errors or requests elsewhere", page.errors + [one for one in page.urls if not one.startswith(url)], []])
    failed = [f"test_page: {name}: {found!r}, not {wanted!r}" for name, found, wanted in checks if found != wanted]
    sys.exit("\n".join(failed)) if failed else print(f"page: {len(checks)} checks passed")


if __name__ == "__main__":
    main()
