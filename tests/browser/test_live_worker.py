"""The live model of the page in a worker of Chromium, from static files."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from static_files import serving_files

from eab.share.live import model_files, worker

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGE = """<!doctype html>
<meta http-equiv="Content-Security-Policy" content="default-src 'self'">
<title>live</title>"""
# Posts a message to the worker and waits until its run ends; stops it after some steps.
ASK = """([message, steps]) => new Promise((done) => {
  window.worker ??= new Worker("model/worker.js");
  const said = {events: [], loaded: [], error: ""};
  worker.onmessage = ({data}) => {
    if (data.type === "progress") said.loaded.push(data.loaded / data.total);
    if (data.type === "error") said.error = data.message;
    if (data.type === "events") said.events.push(...data.events);
    if (said.events.filter(({event}) => event === "StepTimed").length === steps)
      worker.postMessage({type: "stop"});
    if (said.error || said.events.at(-1)?.event === "RunEnded") done(said);
  };
  worker.postMessage({base: `${location.href}model/`, ...message});
})"""
RUN = {"type": "run", "prompt": "Once upon a time, there was a little", "settings": {"seed": 4}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    for name, data in model_files().items():
        (tmp_path / "model" / name).write_bytes(data)
    (tmp_path / "model" / "worker.js").write_text(worker(), encoding="utf-8")
    (tmp_path / "index.html").write_text(PAGE)
    return tmp_path


def ask(page: Page, message: dict[str, Any], stop_after: int = -1) -> Any:
    return page.evaluate(ASK, [message, stop_after])


def kinds(said: Any) -> list[str]:
    return [event["event"] for event in said["events"]]


def test_a_run_in_a_worker(browser: Browser, folder: Path) -> None:
    with serving_files(folder) as (url, asked), browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        first = ask(page, RUN)
        assert first["loaded"] == sorted(first["loaded"])
        assert first["loaded"][-1] == 1
        assert first["events"][-1]["reason"] == "finished"
        assert "Forked" in kinds(first)
        assert next(each for each in first["events"] if "config" in each)["config"]["seed"] == 4
        stopped = ask(page, RUN, stop_after=5)
        steps = kinds(stopped).count("StepTimed")
        assert 5 <= steps < 8
        assert stopped["events"][-1] == {"event": "RunEnded", "step": steps, "reason": "stopped"}
        timed = ("StepTimed", "RunEnded")
        begun = [each for each in stopped["events"] if each["event"] not in timed]
        assert (
            begun == [each for each in first["events"] if each["event"] not in timed][: len(begun)]
        )
        assert ask(page, RUN | {"prompt": "so " * 500})["error"].startswith(
            "the text to continue has 502"
        )
        # After reloading, the weights come from the cache of the browser.
        asked.clear()
        page.reload()
        assert kinds(ask(page, RUN)) == kinds(first)
        assert "/model/model.json" in asked
        assert "/model/model.safetensors" not in asked


def test_weights_that_are_damaged_or_missing(browser: Browser, folder: Path) -> None:
    weights = folder / "model" / "model.safetensors"
    whole = weights.read_bytes()
    with serving_files(folder) as (url, _), browser.new_context() as context:
        page = context.new_page()
        page.goto(url)
        weights.write_bytes(whole[:-2] + b"??")
        assert ask(page, RUN)["error"].startswith("model.safetensors arrived damaged")
        weights.unlink()
        assert "could not be loaded (Error: status 404)" in ask(page, RUN)["error"]
        (folder / "model" / "model.json").rename(folder / "manifest")
        (folder / "model" / "model.json").write_text(PAGE)  # as hosts do that answer with a page
        assert ask(page, RUN)["error"].startswith("the story model is not beside this page")
        (folder / "manifest").replace(folder / "model" / "model.json")
        weights.write_bytes(whole)  # and it can be tried again, also where storage is forbidden
        script = folder / "model" / "worker.js"
        refusing = "self.caches.open = () => Promise.reject(new Error('forbidden'));\n"
        script.write_text(refusing + worker(), encoding="utf-8")
        page.reload()
        assert ask(page, RUN, stop_after=1)["events"][-1]["reason"] == "stopped"
