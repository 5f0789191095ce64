"""The page: whole, safe whatever the results hold, and usable in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from agents import ModelReply
from leaderboard import run
from leaderboard.board import load
from leaderboard.page import page, page_data
from leaderboard.store import run_folders
from leaderboard.verify import verify, write_verdict

# What models and agents may say: ways out of a script element, out of JSON, and out of UTF-8.
HOSTILE = (
    "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>"
    "<!--<script> ]]> {{7*7}} ${window.broken=1} __DATA__ \u0000 \u2028 \ud800 \\u003c \"'&lt;"
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Toy runs of random with n=1 (two seeds) and n=2, of a hostile model, and a shorter one."""
    out = tmp_path_factory.mktemp("results")
    toy = ("--env", "toy", "--split", "train", "--out", str(out))
    for agent, n, seed, turns in (
        ("random", 1, 0, 8),
        ("random", 1, 1, 8),
        ("random", 2, 0, 8),
        ("expert", 2, 0, 4),
    ):
        options = {"--agent": agent, "--n": n, "--seed": seed, "--max-turns": turns}
        words = [str(word) for pair in options.items() for word in pair]
        made = CliRunner().invoke(run.app, [*words, *toy])
        assert made.exit_code == 0, made.output
    for folder in run_folders(out):
        write_verdict(folder, verify(folder))
    (parallel,) = out.glob("random-*-n2-*")
    chatty = out / "chatty"
    chatty.mkdir()
    protocol = json.loads((parallel / "protocol.json").read_text())
    protocol |= {"agent": "chatty", "settings": {"model": HOSTILE, "temperature": 0.4}}
    (chatty / "protocol.json").write_text(json.dumps(protocol))
    rows = [json.loads(line) for line in (parallel / "episodes.jsonl").read_text().splitlines()]
    for row in rows:
        turns = len(row["episode"]["turns"])
        reply = asdict(ModelReply((HOSTILE,), ("no_action",), tokens_in=100, tokens_out=10))
        row |= {"replies": [reply] * turns, "tokens_in": 100 * turns, "tokens_out": 10 * turns}
        row["texts"]["task"] = HOSTILE
    # One task was not played and one failed.
    failed = {"won", "score", "raw_score", "ended", "turns", "steps", "episode", "texts"}
    failed |= {"tokens_in", "tokens_out"}
    error = {"error": HOSTILE, "diversity": {}, "replies": []}
    rows[-2:] = [{**rows[-1], **dict.fromkeys(failed), **error}]
    (chatty / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return out


@pytest.fixture(scope="module")
def html(results: Path) -> str:
    folders = run_folders(results)
    return page(load(folders), folders, viewer=4)


def embedded(html: str) -> Any:
    """The data as a browser finds it: from the element's start to the first end of a script."""
    _, _, rest = html.partition('<script type="application/json" id="board">')
    data, end, _ = rest.partition("</script")
    assert end
    return json.loads(data)


def test_the_page_holds_all_that_it_shows(results: Path, html: str) -> None:
    folders = run_folders(results)
    data = page_data(load(folders), folders, viewer=4)
    found = embedded(html)
    assert found == json.loads(json.dumps(data))
    assert set(found) == {"version", "groups", "published"}
    few, group = found["groups"]
    assert (few["max_turns"], few["rows"][0]["name"], few["comparisons"]) == (4, "expert n=2", [])
    assert (group["tasks"], group["max_turns"], group["types"]) == (9, 8, ["far", "near"])
    names = [row["name"] for row in group["rows"]]
    assert sorted(names) == [f"chatty {HOSTILE} n=2", "random n=1", "random n=2"]
    assert group["rows"][names.index("random n=1")]["seeds"] == [0, 1]
    pairs = {tuple(each["pair"]) for each in group["comparisons"]}
    assert pairs == {(0, 1), (0, 2), (1, 2)}
    (control,) = group["controls"]
    assert (control["parallel"], control["sequential"]) == ("random n=2", "random n=1")
    assert len(control["budgets"]) == len(control["parallel_success"]) == 8
    for row in group["rows"]:
        model = row["label"] != "random"
        assert row["status"] == ("unverified" if model else "verified")
        assert (row["errors"], row["missing"]) == ((1, 1) if model else (0, 0))
        assert row["finished"] == row["expected"] - row["errors"] - row["missing"]
        assert row["low"] - 1e-9 <= row["rate"] <= row["high"] + 1e-9
        assert (row["tokens_in"] is None) is (row["curves"]["tokens"] is None) is not model
        assert sum(part["won"] for part in row["types"].values()) == row["won"]
        for unit in ("turns", "steps"):
            assert len(row["curves"][unit]) == len(group["budgets"][unit])
            assert row["curves"][unit][-1] == row["rate"]
        alone = row["n"] == 1
        assert (row["diversity"]["width_repeat"]["all"] is None) is alone, "undefined, not 0"
        assert row["protocol"]["tasks"] == 9
        assert len(row["episodes"]) == 4
        for episode in row["episodes"]:
            assert all(len(turn["replicas"]) == row["n"] for turn in episode["turns"])
            assert all(turn["replies"] == ([HOSTILE] if model else []) for turn in episode["turns"])


def test_episodes_of_the_viewer_are_the_first_runs(results: Path) -> None:
    """With several seeds a task may be won under one and lost under another."""
    folders = run_folders(results)
    _, group = page_data(load(folders), folders, viewer=6)["groups"]
    (row,) = (row for row in group["rows"] if row["n"] == 1)
    (first,) = (f for f in folders if f.protocol().n == 1 and f.protocol().seed == 0)
    won = {result.task_id: result.won for result in first.results()}
    assert {e["task_id"]: e["won"] for e in row["episodes"]}.items() <= won.items()
    assert len(row["episodes"]) == 6
    wins = sum(won.values())
    assert sum(e["won"] for e in row["episodes"]) == min(wins, max(6 - (9 - wins), 3))


def test_nothing_in_the_results_gets_out_of_its_element(html: str) -> None:
    assert embedded(html)["groups"][0]["rows"]
    template = files("leaderboard").joinpath("page.html").read_text(encoding="utf-8")
    assert html.count("<script") == template.count("<script") == 2
    assert html.count("</script") == html.count("<script")
    assert html.count("<!--") == template.count("<!--")
    assert html.count("<img") == 0
    assert html.isascii() or not set(html) & {"\0", "\ud800"}
    html.encode()


def test_the_template_is_one_file_that_fetches_nothing() -> None:
    template = files("leaderboard").joinpath("page.html").read_text(encoding="utf-8")
    assert template.count("__DATA__") == 1
    without_names = template.replace("http://www.w3.org/2000/svg", "")
    for outside in ("http:", "https:", "//cdn", "@import", "url(", " src=", "fetch(", "import("):
        assert outside not in without_names, outside
    script = template.rpartition("<script>")[2]
    for unsafe in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("):
        assert unsafe not in script, unsafe
    assert "require-trusted-types-for 'script'" in template


def test_published_numbers_are_well_formed() -> None:
    text = files("leaderboard").joinpath("data", "published.json").read_text(encoding="utf-8")
    tables = json.loads(text)
    assert len({table["id"] for table in tables}) == len(tables) == 5
    for table in tables:
        assert set(table) == {"id", "title", "source", "protocol", "columns", "rows", "notes"}
        assert all(table[key] for key in ("id", "title", "source", "protocol", "rows"))
        for row in table["rows"]:
            assert len(row) == len(table["columns"]), (table["id"], row)
            label, *cells = row
            assert isinstance(label, str)
            for cell in cells:
                assert cell is None or isinstance(cell, (str, int, float))
                if "%" in table["title"] and not isinstance(cell, (str, type(None))):
                    assert 0 <= cell <= 100, (table["id"], row)
    averages = {row[0]: row for row in tables[0]["rows"]}
    assert averages["DPEPO, 7B"][1:] == [98.6, 97.8, 98.2, 66.6, 66.5, 51.0, 61.4]


class Browser:
    """A headless Chromium that is spoken to through a pipe; one page, its complaints collected."""

    def __init__(self, program: str, profile: Path) -> None:
        read, ours = os.pipe()
        theirs, write = os.pipe()
        options = "--headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
        # The protocol's pipes have fixed numbers; high ones first, so that none is overwritten.
        plumbing = f'exec 8<&{read} 9>&{write}; exec "$@" 3<&8 4>&9'
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                plumbing,
                "bash",
                program,
                *options.split(),
                f"--user-data-dir={profile}",
            ],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self.out, self.into = os.fdopen(ours, "wb", buffering=0), os.fdopen(theirs, "rb")
        self.number = 0
        self.session: str | None = None
        self.complaints: list[str] = []
        self.loads = 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self.number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.into.read(1)) != b"\0":
            assert byte, "the browser is gone"
            data += byte
        event: dict[str, Any] = json.loads(data)
        if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(json.dumps(event["params"]))
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(event["params"]["args"]))
        self.loads += event.get("method") == "Page.loadEventFired"
        return event

    def open(self, url: str, width: int, height: int = 900, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        for each in ("about:blank", url):  # a change of the hash alone would load nothing
            before = self.loads
            self.call("Page.navigate", url=each)
            while self.loads == before:
                self._receive()

    def do(self, script: str) -> Any:
        """Return what an expression is in the page; a promise is waited for."""
        result = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = {"ArrowLeft": 37, "ArrowRight": 39, "Enter": 13}[key]
            text = {"text": "\r"} if key == "Enter" and kind == "rawKeyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type="keyDown" if text else kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **text,
            )

    def close(self) -> None:
        self.session = None
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        self.out.close()
        self.into.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for name in names if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    made = Browser(program, tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def url(html: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "leaderboard.html"
    path.write_bytes(html.encode())
    return path.as_uri()


def test_the_page_fits_and_nothing_complains(browser: Browser, url: str) -> None:
    for width in (1280, 360):
        for dark in (False, True):
            browser.open(url, width, dark=dark)
            assert browser.do("document.documentElement.scrollWidth") <= width
            ids = browser.do("[...document.querySelectorAll('section')].map((s) => s.id)")
            assert ids == [
                *("ranking", "types", "curves", "controls", "comparisons", "diversity"),
                *("episodes", "protocols", "published", "verify"),
            ]
            empty = (
                "[...document.querySelectorAll('section')].filter((s) => s.innerText.length < 80)"
            )
            assert browser.do(f"{empty}.length") == 0
            background = browser.do("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background[4:-1].split(","))) < 300) is dark
    assert browser.do("document.querySelector('#published').innerText.includes('not verified')")
    browser.do("document.querySelector('#theme').click()")
    assert browser.do("document.documentElement.style.colorScheme") == "light"
    browser.do("document.querySelector('#theme').click()")
    assert browser.do("document.documentElement.style.colorScheme") == "dark"
    browser.do("document.querySelector('#theme').click()")
    assert browser.complaints == []


def test_hostile_text_is_shown_and_does_nothing(browser: Browser, url: str) -> None:
    browser.open(url, 1280)
    browser.do("document.querySelectorAll('.groups a')[1].click()")
    browser.do("new Promise((resolve) => setTimeout(resolve, 50))")
    agents = browser.do("[...document.querySelectorAll('.ranking th a')].map((a) => a.textContent)")
    assert len(agents) == 3
    (hostile,) = (name for name in agents if name != "random")
    assert hostile.startswith("chatty </script><script>window.broken=1</script><img src=x")
    browser.do(
        "[...document.querySelectorAll('.ranking th a')]"
        ".find((a) => a.textContent !== 'random').click()"
    )
    browser.do("new Promise((resolve) => setTimeout(resolve, 50))")
    assert "<img src=x" in browser.do("document.querySelector('#episodes .task').textContent")
    assert "no_action" in browser.do("document.querySelector('.said').textContent")
    assert "<img src=x" in browser.do("document.querySelector('.said pre').textContent")
    for everything in ("summary", "#curves label", "#diversity label", ".matrix td"):
        browser.do(f"document.querySelectorAll({everything!r}).forEach((each) => each.click())")
    assert browser.do("typeof window.broken") == "undefined"
    assert browser.do("document.images.length") == 0
    assert browser.do("document.scripts.length") == 2
    assert browser.complaints == []


def test_a_table_sorts_by_keyboard_with_unknown_values_last(browser: Browser, url: str) -> None:
    browser.open(f"{url}#g=toy/train/9x8", 1280)
    heads = "[...document.querySelectorAll('.ranking thead tr:last-child th')]"
    names = browser.do(f"{heads}.map((head) => head.innerText.trim())")
    tokens = names.index("tokens in")
    sort = f"{heads}.map((head) => head.getAttribute('aria-sort'))"
    assert browser.do(sort)[0] == "ascending"
    assert browser.do(sort)[1:] == [None] * (len(names) - 1)
    browser.do(f"{heads}[{tokens}].querySelector('button').focus()")
    rows = "[...document.querySelectorAll('.ranking tbody tr')]"
    column = f"{rows}.map((row) => row.cells[{tokens}].innerText)"
    for order in ("ascending", "descending"):
        browser.press("Enter")
        assert browser.do(sort)[tokens] == order
        assert browser.do(column)[1:] == ["n/a", "n/a"]
    assert browser.do("document.activeElement.innerText") == "tokens in"
    assert browser.complaints == []


def test_an_address_leads_to_a_turn_and_the_arrow_keys_go_on(browser: Browser, url: str) -> None:
    row = "g=toy/train/9x8&row=random+n%3D2"
    browser.open(f"{url}#{row}&turn=2&s=episodes", 1280)
    assert 0 <= browser.do("document.querySelector('#episodes').getBoundingClientRect().top") < 200
    where = "document.querySelector('.turnbar output').innerText"
    assert browser.do(where).startswith("turn 2 of ")
    assert browser.do("document.querySelectorAll('.replica').length") == 2
    browser.do("document.querySelector('.turnbar input').focus()")
    for key, turn in (("ArrowLeft", 1), ("ArrowRight", 2), ("ArrowRight", 3)):
        browser.press(key)
        assert browser.do(where).startswith(f"turn {turn} of ")
    here = browser.do("location.href")
    assert "turn=3" in here
    shown = browser.do("document.querySelector('.replicas').innerText")
    task = browser.do("document.querySelector('#episodes .task').innerText")
    browser.open(here, 360)
    assert browser.do("document.querySelector('.replicas').innerText") == shown
    assert browser.do("document.querySelector('#episodes .task').innerText") == task
    assert browser.do("document.documentElement.scrollWidth") <= 360
    turns = int(browser.do(where).rpartition(" ")[2])
    browser.do("document.querySelector('.turnbar [type=checkbox]').click()")
    assert browser.do("document.querySelectorAll('.turn').length") == turns + 1
    assert browser.complaints == []


def test_marks_of_the_viewer_agree_with_the_record(browser: Browser, url: str, html: str) -> None:
    """Counted from the record alone: new states, equal actions, wins, and where states part."""
    (row,) = (row for row in embedded(html)["groups"][1]["rows"] if row["name"] == "random n=2")
    for episode in row["episodes"]:
        task = quote(episode["task_id"])
        browser.open(f"{url}#g=toy/train/9x8&row=random+n%3D2&task={task}", 1280)
        browser.do("document.querySelector('.turnbar [type=checkbox]').click()")
        count = "document.querySelectorAll('.turn + .turn .replica{}').length"
        played = [replica for turn in episode["turns"] for replica in turn["replicas"]]
        acted = [replica for replica in played if replica["action"] is not None]
        states = {episode["start_state"], *(replica["state"] for replica in acted)}
        assert browser.do(count.format("")) == len(played)
        assert browser.do(count.format(":not(.idle)")) == len(acted)
        assert browser.do(count.format(":not(.idle):not(:has(.again))")) == len(states) - 1
        equal = [
            turn
            for turn in episode["turns"]
            if turn["replicas"][0]["action"] == turn["replicas"][1]["action"] is not None
        ]
        assert browser.do(count.format(":has(.same)")) == 2 * len(equal)
        wins = [replica for replica in episode["turns"][-1]["replicas"] if replica["won"]]
        assert browser.do(count.format(":has(.win)")) == len(wins)
        fork = browser.do("document.querySelector('.strip .fork')?.dataset.turn")
        parted = [len({r["state"] for r in turn["replicas"]}) > 1 for turn in episode["turns"]]
        assert fork == (str(parted.index(True) + 1) if any(parted) else None)
    assert browser.complaints == []


def test_a_page_without_results_or_episodes_still_shows(browser: Browser, results: Path) -> None:
    folders = run_folders(results)
    path = results.parent / "bare.html"
    for html in (page([], [], 0), page(load(folders), folders, viewer=0)):
        path.write_bytes(html.encode())
        browser.open(path.as_uri(), 1280)
        assert "Published" in browser.do("document.body.innerText")
    assert "without episodes" in browser.do("document.querySelector('#episodes').innerText")
    assert browser.complaints == []
