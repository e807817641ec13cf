"""Chat runs: the tokens of the template, and messages that are kept when a run is made again."""

import json
from dataclasses import replace
from typing import Any

import pytest
from command_line import eab_here
from tiny_models import chat_pair

from eab import EntropyAdaptiveBranching, Message, Request
from eab.config import BranchingConfig
from eab.engine.loop import event_stream
from eab.engine.request import continue_from
from eab.engine.what_if.resimulate import resimulate
from eab.errors import ConfigError, ModelError, PromptError
from eab.run import RunState, fold, record
from eab.share.exports import as_python

USER, ANSWER = Message("user", "w5 w6"), Message("assistant", "w7 w8")
SYSTEM = Message("system", "w9")
SHORT = {"max_new_tokens": 5, "max_paths": 4, "entropy_threshold": 1.0}


@pytest.fixture(scope="module")
def eab() -> EntropyAdaptiveBranching:
    return EntropyAdaptiveBranching(chat_pair(), **SHORT)


def as_dicts(*messages: Message) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([USER], (60, 64, 61, 5, 6, 62, 60, 65, 61)),
        ([SYSTEM, USER], (60, 63, 61, 9, 62, 60, 64, 61, 5, 6, 62, 60, 65, 61)),
        ([USER, ANSWER], (60, 64, 61, 5, 6, 62, 60, 65, 61, 7, 8)),
        ([ANSWER, USER], (60, 65, 61, 7, 8, 62, 60, 64, 61, 5, 6, 62, 60, 65, 61)),
    ],
    ids=lambda value: " ".join(map(str, value))[:40],
)
def test_a_chat_becomes_the_tokens_of_its_template(eab, messages, tokens):
    started = eab.run(as_dicts(*messages)).started
    assert started.prompt_tokens == tokens
    assert started.messages == tuple(messages)
    assert started.prompt == "w5 w6"


def decisions(run: RunState) -> list[Any]:
    return [(path.children, [token.id for token in path.tokens]) for path in run.paths]


def test_a_prompt_and_a_system_message_equal_the_same_messages(eab):
    for settings, messages in ({}, [USER]), ({"system": "w9"}, [SYSTEM, USER]):
        written, chat = eab.run("w5 w6", **settings), eab.run(messages)
        assert decisions(written) == decisions(chat)
        assert chat.started.beginning == written.started.beginning == "w5 w6"
    more = eab.run([USER, ANSWER, USER], system="w9").started.prompt_tokens
    assert more == eab.run([SYSTEM, USER, ANSWER, USER]).started.prompt_tokens


def test_a_last_message_of_the_assistant_is_continued(eab: EntropyAdaptiveBranching) -> None:
    run, before = eab.run([USER, ANSWER]), eab.run([USER])
    assert run.started.beginning == "w5 w6\nw7 w8"
    grown = eab.run([USER], continued=(7, 8))
    assert decisions(run) == decisions(grown)
    assert before.started.beginning == "w5 w6"
    assert before.started.followed_by("w3") == "w5 w6\nw3"
    assert grown.started.beginning == f"w5 w6\n{grown.started.kept_text}"
    assert grown.started.followed_by("w3") == f"{grown.started.beginning}w3"
    assert run.started.prompt_tokens == (*before.started.prompt_tokens, 7, 8)


def test_messages_survive_everything_that_repeats_a_run(eab: EntropyAdaptiveBranching) -> None:
    events = list(eab.stream([SYSTEM, USER]))
    run = fold(events)
    kept = record.loads(record.dumps(events), "a file")
    assert kept == events
    assert fold(resimulate(events, 1.5).events).started.messages == (SYSTEM, USER)
    leaf = run.leaves()[0].id
    continued = run.continuation(leaf, run.tokens_before(leaf))
    request = continue_from(eab.model, run.started, continued, run.started.config)
    assert replace(request, continued=(3,)).messages == request.messages == (SYSTEM, USER)
    assert request.prompt == "w5 w6"
    grown = fold(event_stream(eab.model, request)).started
    assert grown.prompt_tokens == (*run.started.prompt_tokens, *continued)
    again: dict[str, Any] = {}
    program = as_python(run.started).replace("run = explorer.run(", "run = list(")
    exec(program.split("for sample")[0].replace(repr(run.started.model.name), "'embedded'"), again)
    assert again["run"] == as_dicts(SYSTEM, USER)


@pytest.mark.parametrize(
    ("messages", "settings", "kind", "why"),
    [
        ([USER], {"chat": False}, ConfigError, "messages require the chat template"),
        ([SYSTEM, USER], {"system": "w8"}, PromptError, "system is set, and messages.0. is"),
        ([Message("tool", "w5")], {}, ModelError, "TemplateError: no role tool"),
        ([{"role": "user"}], {}, PromptError, "messages.0. is"),
    ],
    ids=str,
)
def test_messages_that_cannot_be_run_are_refused_with_the_reason(
    eab: EntropyAdaptiveBranching, messages: Any, settings: Any, kind: Any, why: str
) -> None:
    with pytest.raises(kind, match=why):
        eab.run(messages, **settings)


def test_who_can_take_messages(twins: Any) -> None:
    with pytest.raises(ModelError, match="llama has no chat template, which messages require"):
        next(event_stream(twins("llama").ours, Request("", BranchingConfig(), messages=(USER,))))
    with pytest.raises(PromptError, match="give only one of them"):
        Request("other", BranchingConfig(), messages=(USER,))


def test_the_command_line_reads_messages_from_a_file_or_from_standard_input(tmp_path: Any) -> None:
    model, tokenizer = chat_pair()
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file, text = tmp_path / "chat.json", json.dumps(as_dicts(SYSTEM, USER))
    file.write_text(text)
    found = []
    for name, given in ((str(file), ""), ("-", text)):
        out = ("run", "--model", str(tmp_path / "model"), "--messages", name, "--json", "-")
        result = eab_here(*out, "--max-new-tokens", "3", "--dtype", "float64", input=given)
        assert result.returncode == 0, result.stderr
        found.append(json.loads(result.stdout))
    assert found[0]["messages"] == as_dicts(SYSTEM, USER)
    assert found[0]["samples"] == found[1]["samples"]


def test_the_command_line_needs_a_prompt_or_messages() -> None:
    for arguments in (["Hi", "--messages", "x.json"], []):
        result = eab_here("run", *arguments)
        assert result.returncode == 2
        assert "--messages; give one of them" in result.stderr
