"""The page in a real browser: what is seen, what is asked from it, and when things break."""

import gzip
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from http_jobs import commit, training
from http_living import Living

from trainmover.server.http.roles import Role, Roles
from trainmover.version import VERSION

PAGES = Path(__file__).resolve().parents[3] / "src/trainmover/server/http/pages"
WEB = Path(__file__).resolve().parents[3] / "web"
BYTES_MAX = 150_000
WAIT_MS = 30_000
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifts.push(one.value);
}).observe({type: "layout-shift", buffered: true});
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, with a fresh user."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no Chromium here (Debian: apt install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, headless=True, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    context.add_init_script(WATCH_SHIFTS)
    yield context.new_page()
    context.close()


def act(page: Any, machine: str, what: str) -> None:
    """By keyboard and mouse, as somebody would, and said again when asked."""
    if page.locator(f"[data-machine={machine}][aria-pressed=true]").count() == 0:
        page.click(f"[data-machine={machine}]")
    page.click(f"[data-act={what}]")
    page.click("[data-confirm]")


def says(page: Any, text: str, where: str = ".said") -> None:
    """It comes to say so."""
    script = "([where, text]) => document.querySelector(where)?.textContent.includes(text)"
    try:
        page.wait_for_function(script, arg=[where, text])
    except Exception as error:
        raise AssertionError(f"not {text!r}: {page.inner_text('body')}") from error


def test_what_is_built_is_small_of_this_version_and_asks_nobody_else() -> None:
    files = [path for path in PAGES.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".js", ".css", ".svg", ".txt"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= BYTES_MAX
    text = "".join(path.read_text() for path in files)
    assert f'"{VERSION}"' in text or f"`{VERSION}`" in text
    elsewhere = set(re.findall(r"https?://[\w./]+", text))
    assert {one for one in elsewhere if "www.w3.org" not in one} == set()
    assert "trainmover status" in (PAGES / "index.html").read_text()


def test_it_is_built_from_the_sources_there_are() -> None:
    names = [f"src/{path.name}" for path in (WEB / "src").iterdir()]
    whole = sha256()
    for name in sorted([*names, "index.html", "package-lock.json"]):
        whole.update((WEB / name).read_bytes())
    assert (PAGES / "built-from.txt").read_text().strip() == whole.hexdigest(), "make web"


@pytest.mark.turns(4)
def test_a_move_a_kill_and_a_cordon_from_the_page(page: Any, tmp_path: Path) -> None:
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    with Living(tmp_path) as living:
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        assert "#" not in page.url
        assert page.locator(".machine").count() == 4
        says(page, "operator", "header")
        act(page, "m1", "move")
        says(page, "rank 0 kept")
        page.wait_for_selector("[data-incident='1']")
        act(page, "m1", "cordon")
        says(page, "m1 is cordoned")
        page.wait_for_selector("[data-machine=m1].is-cordoned")
        act(page, "m2", "kill")
        says(page, " takes rank 1 in about ")
        page.wait_for_selector("[data-incident='2']")
        colours = """() => [...document.querySelectorAll(".incident .phase")]
            .map((one) => [one.title.split(" ")[0], one.className])"""
        of_phase = page.evaluate(colours)
        assert len({name for name, _ in of_phase}) == len({(name, look) for name, look in of_phase})
        page.click("[data-incident='2'] summary")
        says(page, "state equal", "[data-incident='2']")
        says(page, "committed", "[data-incident='2']")
        says(page, "replace the machine, which was done", "[data-incident='2']")
        journal = [told.text for told in living.server.news.recent]
        assert any("(session) at 127.0.0.1" in text and "kill m2" in text for text in journal)
    assert {url.split("/")[2] for url in asked} == {living.url.removeprefix("http://")}
    assert problems == []


@pytest.mark.turns(4)
def test_a_roll_is_seen_stopped_and_let_go_on_from_the_page(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path) as living:

        async def begin() -> bool:
            return (await living.server.roll([], hold=True)).ok

        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        assert page.locator("[data-plan]").count() == 0
        assert living.do(begin())
        says(page, " of 4 machines", "[data-plan='1']")
        page.click("[data-plan-act]")
        says(page, "has stopped", "[data-plan='1']")
        page.click("[data-plan-act]")
        says(page, "is going", "[data-plan='1']")


@pytest.mark.turns(4)
def test_a_viewer_s_click_is_refused(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path) as living:
        page.goto(living.address(Role.VIEWER))
        act(page, "m1", "kill")
        says(page, "This takes the operator's token")
        assert living.server.job.incidents == ()
        assert len(living.server.job.machines) == 4


@pytest.mark.turns(4)
def test_the_page_goes_on_when_a_controller_dies_and_returns(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path) as living:
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        living.die()
        says(page, "No contact with the controller since", ".banner")
        says(page, "The run may have ended", ".banner")
        says(page, "no contact", "dd")
        assert "Training goes on" not in page.inner_text("body")
        living.come_back()
        page.wait_for_function(
            "() => !document.querySelector('.banner').textContent.includes('contact')"
        )
        act(page, "m4", "cordon")
        says(page, "m4 is cordoned")


@pytest.mark.turns(4)
def test_a_kill_without_a_standby_says_that_it_ends_the_job(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path) as living:
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        page.click("[data-machine=m2]")
        page.click("[data-act=kill]")
        says(page, " takes rank 1 in about ", "dialog")
        assert page.evaluate("document.activeElement.textContent") == "Cancel"
        page.keyboard.press("Enter")
        page.wait_for_selector("dialog", state="detached")
        living.lose("m3", "m4")
        page.wait_for_selector("[data-machine=m4]", state="detached")
        page.click("[data-act=kill]")
        says(page, "standbys 0 of 2 ready: the next loss ends the job", ".banner")
        says(page, "No standby: this ends the job.", "dialog")
        assert page.evaluate("document.activeElement.textContent") == "Cancel"
        assert "recovers" not in page.inner_text("dialog")
        assert living.server.job.incidents == ()
        page.click("[data-confirm]")
        says(page, "ended, exit status 1", "dd")


def _ends_well(living: Living) -> None:
    living.finish()


def _loses_all_standbys_and_one(living: Living) -> None:
    living.lose("m2", "m3", "m4")


def _is_stopped(living: Living) -> None:
    living.stop(130, "stopped by SIGINT")


@pytest.mark.turns(4)
@pytest.mark.parametrize(
    ("ends", "state", "how"),
    [
        (_ends_well, "ended", "The job has ended: every rank ran its script to the end."),
        (_loses_all_standbys_and_one, "ended, exit status 1", "were lost: its agent has ended"),
        (_is_stopped, "ended, exit status 130", "stopped by SIGINT"),
    ],
)
def test_the_page_says_how_the_job_has_ended(
    page: Any, tmp_path: Path, ends: Callable[[Living], None], state: str, how: str
) -> None:
    """And says so still when the controller has left."""
    with Living(tmp_path) as living:
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        ends(living)
        living.leave()
        says(page, how, ".banner")
        page.wait_for_function(
            "(state) => document.querySelector('dd').textContent == state", arg=state
        )
        assert page.title().startswith(f"{state} - calm-heron")
        assert "contact" not in page.inner_text("body")


@pytest.mark.turns(4)
def test_a_thousand_machines_are_seen_at_once_and_walked_by_keys(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path, training(1000, 4)) as living:

        async def steps() -> None:
            for step in range(1, 4):
                commit(living.server, step, first=step == 1)

        living.do(steps())
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m1004]")
        assert page.locator(".machine").count() == 1004
        last = page.locator("[data-machine=m1004]").bounding_box()
        assert last["y"] + last["height"] < 900
        page.focus("[data-machine=m1]")
        for key, there in (("ArrowRight", "m2"), ("End", "m1004"), ("Home", "m1")):
            page.keyboard.press(key)
            assert page.evaluate("document.activeElement.dataset.machine") == there
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_selector(".chosen")
        page.wait_for_function(
            "() => document.querySelector('header').textContent.includes('step3')"
        )
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.turns(4)
@pytest.mark.parametrize("machines", [4, 200])
def test_names_of_a_cloud_are_told_apart_and_hide_nothing(
    page: Any, tmp_path: Path, machines: int
) -> None:
    def cloud(route: Any) -> None:
        reply = route.fetch()
        status = reply.json()
        for one in status["machines"]:
            number = int(one["id"][1:])
            one["id"] = f"ip-10-0-{number // 100}-{number % 100}.eu-central-1.compute.internal"
        route.fulfill(response=reply, body=json.dumps(status))

    with Living(tmp_path, training(machines, 1)) as living:
        page.route("**/api/v1/status", cloud)
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(living.address())
        page.wait_for_selector(".machine")
        shown = page.locator(".machine").evaluate_all(
            "(all) => all.map((one) => one.firstElementChild.textContent)"
        )
        assert len(set(shown)) == machines + 1
        assert all(name.strip("…") for name in shown)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if machines == 4:
            card = page.locator(".machine").first
            box, word = card.bounding_box(), card.locator(".word").bounding_box()
            assert word["y"] + word["height"] <= box["y"] + box["height"]
            assert "rank 0" in card.inner_text()
        cells = page.locator(".machine").evaluate_all(
            "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
        )
        assert cells == 0


@pytest.mark.turns(4)
def test_nothing_moves_while_it_comes_up_and_goes_on(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path) as living:
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        begun = living.server.progress.step
        page.wait_for_function(
            "(step) => [...document.querySelectorAll('dd')].some((one) => +one.textContent > step)",
            arg=begun + 10,
        )
        assert sum(page.evaluate("window.shifts")) < 0.02
        paint = page.evaluate("performance.getEntriesByType('paint').map((one) => one.startTime)")
        assert paint  # How soon is told by the clock of this host: see the bench.
        print(f"first paint after {paint[0]:.0f} ms")


@pytest.mark.turns(4)
def test_it_is_light_or_dark_as_the_reader_wants(browser: Any, tmp_path: Path) -> None:
    grounds = []
    with Living(tmp_path, training(4, 1)) as living:
        for scheme in ("light", "dark"):
            context = browser.new_context(color_scheme=scheme)
            page = context.new_page()
            page.goto(living.address())
            page.wait_for_selector(".machine")
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            context.close()
    assert len(set(grounds)) == 2


@pytest.mark.turns(4)
def test_without_a_session_the_page_says_how_to_get_one(page: Any, tmp_path: Path) -> None:
    with Living(tmp_path, training(4, 1)) as living:
        page.goto(living.url)
        says(page, "trainmover dashboard", ".door")
        used = living.address()
        living.do(_use(living, used))
        page.goto("about:blank")
        page.goto(used)
        says(page, "was used already", ".door")
        old = Roles(b"0123456789abcdef-token").begin(Role.OPERATOR, 0.0)
        page.evaluate("(old) => sessionStorage.setItem('session', old)", old)
        page.goto("about:blank")
        page.goto(living.url)
        says(page, "The session is over", ".door")
        page.fill("input[name=token]", "0123456789abcdef-token")
        page.keyboard.press("Enter")
        page.wait_for_selector(".machine")


async def _use(living: Living, address: str) -> None:
    assert living._api.roles.redeem(address.partition("=")[2], time.time()) is Role.OPERATOR


class Elsewhere(BaseHTTPRequestHandler):
    """Another user's page, at another port of this host. It keeps what it is sent."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(str(self.headers))
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<h1>elsewhere</h1>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.turns(4)
def test_a_page_at_another_port_gets_no_session(page: Any, tmp_path: Path) -> None:
    """Nor does a tab that is opened from the page's own."""
    with Living(tmp_path) as living, HTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        page.goto(living.address())
        page.wait_for_selector("[data-machine=m4]")
        session = page.evaluate("sessionStorage.getItem('session')")
        assert session
        assert page.evaluate("document.cookie") == ""
        assert page.context.cookies() == []
        for where in (page, page.context.new_page()):
            where.goto(f"http://127.0.0.1:{other.server_port}/")
            assert where.evaluate("sessionStorage.getItem('session')") is None
        other.shutdown()
    assert Elsewhere.seen
    assert not [headers for headers in Elsewhere.seen if session in headers]


@pytest.mark.turns(4)
def test_without_script_it_says_what_to_do(browser: Any, tmp_path: Path) -> None:
    with Living(tmp_path, training(4, 1)) as living:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(living.url)
        assert "trainmover status" in page.inner_text("body")
        context.close()


@pytest.mark.turns(4)
def test_a_page_of_another_version_says_so(page: Any, tmp_path: Path) -> None:
    def older(route: Any) -> None:
        reply = route.fetch()
        route.fulfill(response=reply, body=json.dumps(reply.json() | {"version": "9.9.9"}))

    with Living(tmp_path, training(4, 1)) as living:
        page.route("**/api/v1/status", older)
        page.goto(living.address())
        says(page, "the controller of 9.9.9: load it again", ".banner")
