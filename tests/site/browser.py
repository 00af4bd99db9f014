# SPDX-License-Identifier: BSD-3-Clause
"""
What a browser makes of the documentation's site: pages that are wider than a
phone, files that they lack, and what its search finds first.

    browser.py SITE BROWSER WORDS
"""
import functools
import html
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

site, browser, words = sys.argv[1:]
PHONE = 360  # pixels
pages = sorted(os.path.relpath(os.path.join(folder, name), site)
               for folder, _, names in os.walk(site) for name in names
               if name.endswith(".html"))

# Loads each page into a frame as wide as a phone, and says which are wider.
LOOK = """<!DOCTYPE html><body><script>
async function look(page) {
    const frame = document.createElement("iframe");
    frame.style = "width: %(phone)dpx; height: 700px; border: 0";
    frame.src = page;
    document.body.append(frame);
    await new Promise(loaded => frame.onload = loaded);
    const width = frame.contentDocument.documentElement.scrollWidth;
    frame.remove();
    return width > %(phone)d ? `${page} is ${width} pixels wide\\n` : "";
}
(async () => {
    let text = "";
    for (const page of %(pages)s)
        text += await look(page);
    document.body.textContent = text + "done";
})();
</script>"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/look":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write((LOOK % {"phone": PHONE, "pages": json.dumps(pages)})
                         .encode())

    def log_error(self, *_):
        if self.path != "/favicon.ico":  # which browsers ask for unasked
            print("there is no", self.path)

    def log_message(self, *_):
        pass


def load(path):
    """The page as it is once its scripts have run."""
    return subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu",
         "--virtual-time-budget=600000", "--dump-dom",
         "http://%s:%d/" % server.server_address + path],
        check=True, capture_output=True, text=True, timeout=300).stdout


server = http.server.ThreadingHTTPServer(
    ("127.0.0.1", 0), functools.partial(Handler, directory=site))
threading.Thread(target=server.serve_forever, daemon=True).start()
text = html.unescape(re.sub("<[^>]*>", "", load("look"))).strip()
print(text.removesuffix("done"), end="" if text.endswith("done") else "?\n")
found = re.search(r'<li[^>]*><a href="([^"?#]*)',
                  load("search.html?q=" + urllib.parse.quote(words)))
print(found[1] if found else "nothing")
