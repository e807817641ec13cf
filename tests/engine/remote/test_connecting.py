"""Checks on connecting to a server, and what they refuse."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from bad_answers import connected
from fake_server import FakeServer, Tops
from made_runs import run_of
from page_walk import opened

from eab.api.branching import EntropyAdaptiveBranching
from eab.config import BranchingConfig
from eab.engine.branching.presets import starting_config
from eab.engine.remote import connection
from eab.engine.remote.model import connect
from eab.errors import ModelError


def test_fewer_log_probabilities_are_used_or_refused(fake: FakeServer, dialect: str) -> None:
    fake.max_top = 20
    assert connected(dialect).top == 20
    fake.max_top = 5
    with pytest.raises(ModelError, match="does not return the 20 most likely tokens"):
        connected(dialect)


def test_a_chat_model_on_a_server_starts_with_settings_that_suit_it(fake: FakeServer) -> None:
    model = connected("vllm")
    model._tokenizer.chat_template = "{{ messages[0].content }}"
    config = EntropyAdaptiveBranching(model, max_new_tokens=2, top_k=20).run("A").started.config
    assert config == starting_config(max_new_tokens=2, top_k=20)


def test_log_probabilities_that_depend_on_the_temperature_are_refused(fake, dialect):
    def sharper(tops: Tops) -> None:
        if fake.requests[-1]["temperature"] == 0.5:
            tops[0] = {token: p - 1.0 for token, p in tops[0].items()}

    fake.change_tops = sharper
    with pytest.raises(ModelError, match="depend on the temperature"):
        connected(dialect)


def test_another_model_and_another_tokenizer_are_refused(fake, monkeypatch):
    monkeypatch.setattr("eab.engine.remote.model.PROBE", "")
    with pytest.raises(ModelError, match="the server runs embedded, not"):
        connect("vllm", str(Path("assets/model").resolve()))
    other = SimpleNamespace(encode=lambda text: [5, 4, 3])
    fake.model = SimpleNamespace(card=fake.model.card, _tokenizer=other)
    with pytest.raises(ModelError, match="tokenizer differs"):
        connected("vllm")


# Sampling parameters of the servers' documentation: a request that leaves one out gets the server's
OF_SERVERS = {
    "vllm": "temperature top_p top_k min_p presence_penalty frequency_penalty repetition_penalty",
    "llama.cpp": "temperature dynatemp_range top_k top_p min_p top_n_sigma typical_p xtc_probability "
    "mirostat repeat_penalty presence_penalty frequency_penalty dry_multiplier samplers",
}


def test_a_server_with_a_generation_config_of_its_own_gives_the_same_run_in_as_many_requests(
    fake: FakeServer, dialect: str
) -> None:
    model = connected(dialect)
    config = BranchingConfig(top_k=20, max_paths=1, max_new_tokens=24, drafter="run-ahead")
    counts, texts = [], []
    for own in ({}, {"repetition_penalty": 3.0, "repeat_penalty": 3.0}):
        fake.own = own
        before = len(fake.requests)
        run = run_of(model, "The cat and the dog", replace(config, draft_length=4))
        counts.append(len(fake.requests) - before)
        texts.append([sample.text for sample in run.samples])
    assert counts[0] == counts[1] < 24
    assert texts[0] == texts[1]
    for request in fake.requests:
        assert set(OF_SERVERS[dialect].split()) <= request.keys()
    model.close()


def test_explore_runs_on_the_server_and_pages_that_measure_here_refuse_its_model(fake):
    page = opened().put(set_model_kind="Server").put(set_model_server="embedded")
    page.generate(prompt="The cat", set_max_new_tokens=4)
    assert not page.errors
    assert fake.requests
    assert "on the server (computed, row by row)" in page.board["sentences"]["memory"]
    assert os.environ[connection.KEY] not in repr(page.main)
    starts = {"memory": "run_button", "bmc": "run_growth", "batching": "batching_start"}
    for name, start in (starts | {"quantization": "formats_run"}).items():
        page.go_to(name)
        words = " ".join([page.said, page.captions, *(one.value for one in page.info)])
        assert "this page measures caches and weights on this machine" in words, name
        assert page.button(key=start).disabled, name
