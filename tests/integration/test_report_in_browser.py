"""The report in a real browser: no errors, no requests, every table can be opened, and nothing is wider than a telephone.

Runs where Chromium is installed (Debian: ``chromium``), spoken to over a pipe in its DevTools protocol.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest

from corpora import chunks, write
from leech.config import build
from leech.data.compose import merge
from leech.data.config import MergeConfig
from leech.evaluation.config import ReportConfig
from leech.evaluation.report.write import report
from leech.provenance import Stamp
from results_files import metrics_content, put_sample

STAMP = Stamp.make(["leech", "report"], "2026-01-01T00:00:00+00:00")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

AMINO_ACIDS = ("Ala", "Gly", "Leu")


class Browser:
    """A browser with one page, that is told what to do and remembers what happened."""

    def __init__(self, profile):
        (child_in, self._out), (self._in, child_out) = os.pipe(), os.pipe()

        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={profile}", "--no-first-run", "about:blank"]
        # Chromium reads commands from descriptor 3 and answers on 4.
        place = (
            f"import os, sys; a, b = os.dup({child_in}), os.dup({child_out}); os.dup2(a, 3); os.dup2(b, 4); "
            "os.set_inheritable(3, True); os.set_inheritable(4, True); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", place, *command],
            pass_fds=(child_in, child_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(child_in)
        os.close(child_out)
        self._number, self._rest, self.events = 0, b"", []
        self._session = None
        target = next(one for one in self.ask("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method, **parameters):
        """Send a command and return its answer; what happens meanwhile goes to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        end = time.monotonic() + 60
        while b"\0" not in self._rest:
            assert select.select([self._in], [], [], max(end - time.monotonic(), 0))[0], "the browser does not answer"
            content = os.read(self._in, 2**20)
            assert content, "the browser has ended"
            self._rest += content
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def visit(self, path):
        self.ask("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression):
        """Return what a JavaScript expression gives on the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def happened(self, *methods):
        return [event for event in self.events if event.get("method") in methods]

    def close(self):
        self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    parts = [write(folder / label, chunks(20, seed=seed, label=label)) for seed, label in enumerate(("yes", "no"))]
    merge(parts, build(MergeConfig, {"positive_label": "yes"}), folder / "m", force=False, stamp=STAMP)
    references = [(f"tRNA-{name}-AGC-1-1", name, 30, 70, 5) for name in AMINO_ACIDS]
    for number in range(12):
        put_sample(folder / "t", f"a-long-name-of-sample-number-{number}", references)
    (folder / "metrics.json").write_text(json.dumps(metrics_content()))
    (folder / "model").mkdir()
    history = [{"step": step, "train_loss": 1 / step, "validation_auroc": 0.9} for step in (1, 2, 3)]
    (folder / "model" / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history))
    (folder / "model" / "model.json").write_text(json.dumps({"format": "leech-model", "training": {"step": 2}}))
    options = {"calls": [folder / "t"], "metrics": [folder / "metrics.json"], "corpus": folder / "m"}
    config = build(ReportConfig, {**options, "model": folder / "model"})
    result = report(config, folder / "report.html", force=False, stamp=STAMP)
    assert all(section.body for section in result.sections)
    return result


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()


@pytest.mark.parametrize(("width", "scripts"), [(1280, True), (390, True), (390, False)])
def test_the_page_opens_without_errors_and_every_table_can_be_clicked_open(browser, page, width, scripts):
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 800)
    browser.ask("Emulation.setScriptExecutionDisabled", value=not scripts)
    browser.visit(page.path)
    # Every part is there and has a height; figures are drawn at a width.
    for section in page.sections:
        assert browser.value(f"document.getElementById('{section.anchor}').offsetHeight") > 40, section.anchor
    assert browser.value("document.querySelectorAll('figure svg').length") > 10
    assert browser.value("Math.min(...[...document.querySelectorAll('figure svg')].map(e => e.clientWidth))") > 200
    # The page itself never has to be moved sideways, tables closed or open.
    assert browser.value("document.documentElement.scrollWidth") <= width
    places = browser.value("document.querySelectorAll('summary').length")
    assert places > 10
    for place in range(places):
        where = browser.value(
            f"(e => {{e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); "
            f"return [r.left + 20, r.top + r.height / 2]}})(document.querySelectorAll('summary')[{place}])"
        )
        for kind in ("mousePressed", "mouseReleased"):
            browser.ask("Input.dispatchMouseEvent", type=kind, x=where[0], y=where[1], button="left", clickCount=1)
    assert browser.value("document.querySelectorAll('details:not([open])').length") == 0
    assert browser.value("document.documentElement.scrollWidth") <= width
    # Links lead to parts of the page.
    assert browser.value(
        "[...document.querySelectorAll('nav a')].every(a => document.getElementById(a.getAttribute('href').slice(1)))"
    )
    assert browser.happened("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded") == []
    requests = [event["params"]["request"]["url"] for event in browser.happened("Network.requestWillBeSent")]
    assert requests == [page.path.as_uri()]
