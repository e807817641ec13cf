"""What the library, the commands and the server say to wrong calls and inputs, in one file for people to read: messages.txt.

`EAB_WRITE=1 pytest tests/api/test_messages.py` writes it again; then read the diff.
"""

import gzip
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from command_line import invoked
from lesson_sources import SMALL
from tiny_models import chat_pair, shared, word_tokenizer
from transformers import MinPLogitsWarper

import eab
from app.server import rules
from app.server.class_questions import ClassQuestion
from app.server.links import from_query
from app.server.store import MAX_NAME, RUNS, NamedStore
from eab import BranchingConfig, EntropyAdaptiveBranching, Grid, Request, Run
from eab.engine.loop import event_stream
from eab.engine.remote import connection
from eab.engine.remote.model import load_model
from eab.errors import EabError
from eab.labs.batching import ServingRequest, Workload
from eab.labs.measurement import HEAD
from eab.labs.tuning.prompt_sets import bundled_prompts, read_prompts, read_questions
from eab.labs.tuning.report import Plan, sweep_began
from eab.labs.tuning.report import loads as sweep_of
from eab.lessons import bundled_runs
from eab.lessons.checks.policy import TableModel, random_table
from eab.lessons.lesson_files import MAX_BYTES
from eab.lessons.lesson_files import loads as lesson_of
from eab.run import record
from eab.run.events.chat import parse_messages, read_messages

FILE = Path(__file__).with_name("messages.txt")
MODEL = TableModel(random_table(2, 5), stop_ids=[4])
EXPLORER = EntropyAdaptiveBranching(MODEL, max_new_tokens=3)
LOADED = EntropyAdaptiveBranching((shared("llama"), word_tokenizer()), max_new_tokens=3)
COIN = Run(bundled_runs.events_of(bundled_runs.named("coin.eab")))
PAIR, GRID = chat_pair(), Grid({"top_k": [2, 3]}, BranchingConfig(max_new_tokens=2))
PROCESSOR = MinPLogitsWarper(0.1)


def often(prediction: object, leaf: object) -> bool:
    return True


class Unfinished:
    """A policy without most of its methods."""

    def select(self, prediction: object) -> bool:
        return True


def processed(change: Callable[[Any], object]) -> Run:
    """A run with a logits processor between two harmless ones."""

    def harmless(ids: object, scores: Any) -> Any:
        return scores + 1.0

    def wrong(ids: object, scores: Any) -> Any:
        return change(scores)

    return EXPLORER.run("0", logits_processor=[harmless, wrong, harmless])


CALLS: dict[str, Callable[[], Any]] = {
    'explorer("no-such-owner/no-such-model", branch_factor=1)': lambda: EntropyAdaptiveBranching(
        "no-such-owner/no-such-model", branch_factor=1
    ),
    "explorer(model, beam=4)": lambda: EntropyAdaptiveBranching(MODEL, beam=4),
    "explorer(a model that is not there, logits_processor=3)": lambda: EntropyAdaptiveBranching(
        "no-such-owner/no-such-model", logits_processor=3
    ),
    "explorer(None)": lambda: EntropyAdaptiveBranching(None),
    "explorer((3, 4))": lambda: EntropyAdaptiveBranching((3, 4)),
    "explorer(model without tokenizer)": lambda: EntropyAdaptiveBranching(PAIR[0]),
    'explorer("embedded", tokenizer=tokenizer)': lambda: EntropyAdaptiveBranching(
        "embedded", tokenizer=PAIR[1]
    ),
    **{
        f"explorer(pair, {name}={value!r})": lambda more={name: value}: EntropyAdaptiveBranching(
            PAIR, **more
        )
        for name, value in {"weights": "int8", "dtype": "bfloat16", "device": "cpu"}.items()
    },
    "explorer(model, prefix_cache_mib=-1)": lambda: EntropyAdaptiveBranching(
        MODEL, prefix_cache_mib=-1
    ),
    "eab.generat": lambda: eab.generat,
    **{
        f"run(prompt, {', '.join(f'{name}={value!r}' for name, value in more.items())})": (
            lambda more=more: EXPLORER.run("0", **more)
        )
        for more in (
            {"threshold": 0.3},
            {"model_name": "embedded"},
            {"messages": "a"},
            {"logits_processors": []},
            {"should_fork": 1},
            {"parse_special": "yes"},
            {"draft_length": 17},
            {"temperature": 0, "policy": "arithmetic"},
            {"drafter": "model"},
            {"keep_logits": "02"},
            {"keep_logits": 3},
            {"keep_logits": [-1]},
            {"keep_logits": [3]},
            {"keep_logits": range(10**12)},
            {"logits_processor": MinPLogitsWarper},
        )
    },
    "generate(prompt, keep_logits=[0])": lambda: EXPLORER.generate("0", keep_logits=[0]),
    "run(prompt, 256 paths, keep_logits=range(400))": lambda: EntropyAdaptiveBranching(
        max_paths=256, max_new_tokens=400
    ).run("The cat", keep_logits=range(400)),
    "run(prompt, a draft of another vocabulary)": lambda: EntropyAdaptiveBranching(
        "embedded", draft=MODEL, drafter="model"
    ).run("The cat"),
    "run(prompt, a processor and a drafter)": lambda: EXPLORER.run(
        "0", logits_processor=PROCESSOR, drafter="prompt-lookup"
    ),
    "run(prompt, 65 processors)": lambda: EXPLORER.run("0", logits_processor=[PROCESSOR] * 65),
    "a processor returns None": lambda: processed(lambda scores: None),
    "a processor returns 9 scores": lambda: processed(lambda scores: torch.zeros(9)),
    "a processor returns NaN": lambda: processed(lambda scores: scores * math.nan),
    "a processor returns -inf": lambda: processed(lambda scores: scores - math.inf),
    "a processor returns +inf": lambda: processed(lambda scores: scores + math.inf),
    **{
        f"score([5], {texts!r})": lambda texts=texts: LOADED.score([5], texts)
        for texts in ("yes", [], [""], [7.5], [[]], [[99_999]], ["zebra \N{SNOWMAN}"])
    },
    "sweep(model, [3])": lambda: eab.sweep(LOADED.model, ["w5", 3], GRID),  # type: ignore[list-item]
    "sweep(model, a message without a role)": lambda: eab.sweep(
        LOADED.model, [[{"role": "", "content": "w5"}]], GRID
    ),
    "sweep(own policy, a folder)": lambda: eab.sweep(
        MODEL, ["0"], Grid({"policy": ["fair", often]}, BranchingConfig()), folder="x"
    ),
    **{
        f"run(prompt, policy={name})": lambda given=given: EXPLORER.run("0", policy=given)
        for name, given in {
            "3": 3,
            "None": None,
            "a class": Unfinished,
            "lambda: True": lambda: True,
            "a rule that returns None": lambda prediction, leaf: None,
            "a rule that returns a policy": lambda prediction, leaf: Unfinished(),
            "a function that returns 3": lambda config, nats: 3,
            "a function that returns half a policy": lambda config, nats: Unfinished(),
        }.items()
    },
    "run.labelled(a function that returns 3)": lambda: COIN.labelled(lambda text: 3),
    "run.labelled(a property that returns yes)": lambda: COIN.labelled({"a": lambda text: "yes"}),
    "Grid(own policy twice)": lambda: Grid({"policy": [often, often]}, BranchingConfig()),
    "run.what_if(threshold=-1)": lambda: COIN.what_if(threshold=-1),
    'run.to_pandas("paths")': lambda: COIN.to_pandas("paths"),  # type: ignore[arg-type]
    "run.continuation(99, 0)": lambda: COIN.continuation(99, 0),
    "run.continuation(0, 10**6)": lambda: COIN.continuation(0, 10**6),
    "run.save(None)": lambda: COIN.save(None),  # type: ignore[arg-type]
    "eab.show([])": lambda: eab.show(["a"]),  # type: ignore[list-item]
    "eab.load(a null character)": lambda: eab.load("a\0b"),
    'run.answers("text", "exactly")': lambda: COIN.answers("text", "exactly"),
    "run.answers(lambda text: 3)": lambda: COIN.answers(lambda text: 3),  # type: ignore
    "run.answers(same: two arguments)": lambda: COIN.answers("text", lambda one, other: True),  # type: ignore
    "run.answers(same: 0.8)": lambda: COIN.answers("text", lambda *texts: 0.8),  # type: ignore
    "imported.what_if(threshold=1)": lambda: eab.from_samples(["a"], "b").what_if(threshold=1),
    "from_samples(7)": lambda: eab.from_samples(7),  # type: ignore[arg-type]
    "from_samples([object()])": lambda: eab.from_samples([object()]),
    "from_samples(two prompts)": lambda: eab.from_samples(
        [{"prompt": prompt, "text": "yes"} for prompt in ("one", "two")]
    ),
}


# Words of Python itself, which differ between its versions.
INTERPRETER = "Expecting|Exceeds|maximum recursion|Stack overflow|Out of range|Invalid "


def said(call: Callable[[], Any]) -> str:
    with pytest.raises((EabError, AttributeError)) as caught:
        call()
    words = re.sub(r"0x[0-9a-f]+", "0x0", str(caught.value))
    words = re.sub(rf"({INTERPRETER}).*?(?=; write|$)", "…", words, flags=re.MULTILINE)
    assert len(words.encode("utf-8")) < 2100
    return f"{type(caught.value).__name__}: {words}"


# ---- inputs from outside: each door, and what it refuses

RUN_FILE = [json.loads(line) for line in gzip.decompress(record.dumps(COIN.events)).splitlines()]
OTHER_NAMES = ("treshold", "top_kk", "branching_factor", "max_length", "num_return_sequences")
USER = {"role": "user", "content": "Hi"}
IN_A_FILE = {"format": "eab-run", "version": 1}
REQUESTS = tuple((f"prompt {number}", 8) for number in range(5))


def workload(given: dict[str, Any]) -> None:
    asked = given.get("requests", REQUESTS)
    Workload(**(given | {"requests": tuple(ServingRequest(*one) for one in asked)}))


STEP, GUESS, DO = (
    SMALL[SMALL.index(f"## {begin}") : SMALL.index(f"## {end}")]
    for begin, end in (("One", "Guess"), ("Guess", "Two"), ("Do", "Where"))
)


def run_file(*lines: Any) -> bytes:
    """A run file of these lines; each one that is not text yet is written as JSON."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return gzip.compress("\n".join(texts).encode(), mtime=0)


def changed_run_file(change: tuple[Any, ...]) -> None:
    """Load the file of a run with another value at a place of its first event of this kind."""
    kind, *place, value = change
    lines = json.loads(json.dumps(RUN_FILE))
    holder = next(line for line in lines if line.get("event") == kind)
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    record.loads(run_file(*lines))


def not_text(data: bytes) -> str:
    Path("bytes.csv").write_bytes(data)
    return "bytes.csv"


def rules_file(text: str) -> None:
    Path("eab.toml").write_text(text, encoding="utf-8")
    rules.load({"EAB_RULES": "eab.toml"})


def lines_of(read: Callable[[str], object], text: str) -> None:
    Path("lines.jsonl").write_text(text, encoding="utf-8")
    read("lines.jsonl")


def first_event(asked: tuple[Any, ...]) -> None:
    next(event_stream(LOADED.model, Request(asked[0], BranchingConfig(), *asked[1:])))


def eab_command(words: str) -> None:
    if (error := invoked(*words.split(" ")).exception) is not None:
        raise error


def server_address(url: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(connection.ADDRESS, url)
        load_model("vllm:embedded")


def read_as(name: str, read: Callable[[str], object], text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")
    read(name)


def sweep_file(change: dict[str, Any]) -> None:
    """Load the file of a sweep of one cell, with these changes of its plan."""
    asked = [{"id": "a", "question": {"prompt": "A coin"}}]
    about = {"plan": {"grid": {}, "prompts": asked} | change} if change else {"plan": None}
    began = sweep_began("tiny", "float32", "here", Plan(Grid(), ()))
    content = HEAD | {"began": msgspec.to_builtins(began) | {"about": about}, "tables": {}}
    sweep_of(json.dumps(content | {"ended": None}).encode(), "a sweep")


def of_prompt(**change: Any) -> dict[str, Any]:
    return {"prompts": [{"id": "a", "question": {"prompt": "A"}} | change]}


DOORS: dict[str, tuple[Callable[[Any], object], Sequence[Any]]] = {
    "settings": (
        lambda given: BranchingConfig(**given),
        [
            *({"max_paths": value} for value in (2.5, True, None, "3", [3])),
            *({"top_p": value} for value in (math.nan, math.inf, 3 + 0j)),
            *(
                {"entropy_threshold": value, "threshold_unit": unit}
                for value, unit in ((1.5, "normalised"), (0.65, "rank"))
            ),
            *({"policy": value} for value in ("best", None, ["fair"])),
            *({"threshold_unit": "bits"}, {"cache": "slab"}),
            *({"system": "Be brief.", "chat": False}, {"system": 3}, {"system": None}),
            *({"chat_template_kwargs": {"a": 1}, "chat": False}, {"chat": 1}, {"chat": "yes"}),
            *({"stop": value} for value in (7, ["a"] * 5, ["a", ""], [3], ["x" * 101], ["x\ud800"])),
            *({"chat_template_kwargs": value} for value in (None, "[1]", "{a: 1}", '{"a": NaN}')),
            *({"chat_template_kwargs": value} for value in ('{"a": 1e999}', {"a": {1, 2}})),
            *({"chat_template_kwargs": value} for value in ({"a": math.inf}, "[" * 900)),
            *({"chat_template_kwargs": value} for value in ("[" * 10**5, {"a": "x" * 1000})),
            *({"chat_template_kwargs": value} for value in ({"a": [[[[1]]]]}, '{"a": "\\ud800"}')),
            *({"chat_template_kwargs": {"tokenize": True}}, {"temprature": 1}),
        ],
    ),
    "names of settings": (
        lambda name: BranchingConfig.from_settings({name: 1}),
        [*OTHER_NAMES, "zzz", "x" * 10**6, "\ud800", "", "self"],
    ),
    "a run on this machine": (
        first_event,
        [
            *((prompt,) for prompt in ("", " ", "\n\t \u00a0", "\u3000", "\ud800", None, 3, b"w5")),
            *(("w5", (token,)) for token in (1.5, "w5", None, -1, 72, 2**33, 10**400)),
        ],
    ),
    "messages": (
        read_messages,
        [
            *(None, "Hi", [], [USER] * 257, [USER, "Hi"], [{"role": "user"}], [USER | {"name": "x"}]),
            *([USER | {"role": role}] for role in ("the user", "x" * 33, None)),
            *([USER | {"content": [part]}] for part in ({"type": "text"}, {"type": "image"})),
            *([USER, USER | {"content": " \n"}], [USER | {"content": "x\ud800"}]),
            [USER | {"content": "x" * 100_001}] * 2,
        ],
    ),
    "messages as text": (parse_messages, ["", "{", "[" * 10**5, "[NaN]", "9" * 5000]),
    "a link": (
        from_query,
        [
            *({"seed": "x"}, {"seed": "9" * 5000}, {"temperature": "nan"}, {"chat": "yes"}),
            *({"chat_template_kwargs": "[1]"}, {"policy": "<script>"}, {"max_paths": "100000"}),
            *({"cursor": "-3"}, {"prompt": "x" * 2001}, {"messages": "["}, {"model": "x" * 400}),
            *({"messages": '[{"role": "user"}]'},),
            {"messages": '[{"role":"user","content":"\\ud800"}]'},
            {"messages": '[{"role":"user","content":"a"}]', "prompt": "b"},
        ],
    ),
    "the rules of a server": (
        rules_file,
        [
            *("max_path = 3", "nonsense = 3", "max_paths = 1", "max_paths = true", "max_paths = "),
            *('models = "embedded"', 'public = "yes"', 'visitor = "me"', 'key = "a b"', "\x00"),
            *('frame_ancestors = "x; script-src *"', 'hosts = "example.org"'),
            'hosts = ["http://example.org"]',
        ],
    ),
    "the rules in the environment": (
        rules.load,
        [
            *({"EAB_RULE_MAX_PATHS": "many"}, {"EAB_RULE_MAX_PATH": "12"}),
            *({"EAB_RULE_HOSTS": "example.org"}, {"EAB_RULE_SAVE_RUNS": ""}),
            *({"EAB_RULES": name} for name in ("/no/such/file", "~nobody-of-this-name/x", ".", "\x00")),
        ],
    ),
    "a question to a class": (
        lambda given: ClassQuestion(*given),
        [
            *(("Which?", tuple(options)) for options in ("a", "abcdefg", "a ", "aa")),
            *(("", ("a", "b")), ("Which?", ("a", "b" * 201))),
        ],
    ),
    "the name of a saved run": (
        lambda name: NamedStore(Path("runs.sqlite"), RUNS).save(name, COIN.events),
        ["", "   ", "x" * (MAX_NAME + 1), "two\nlines", "\u202eback"],
    ),
    "a lesson": (
        lambda change: lesson_of(SMALL.replace(*change, 1).encode(), "small"),
        [
            *(("+++\ntitle", "title"), ('title = "Small"\n', ""), ('title = "Small"', "title = 7")),
            *(('run = "coin', 'colour = "red"\nrun = "coin'), ('title = "Small"', "title = Small")),
            *(("What you will see: little.", ""), ("little.", "<script>alert(1)</script>")),
            *(("little.", "![it](https://example.org/a.png)"), ('"Small"', '"<b>Small</b>"')),
            *(('run = "coin', 'page = "nowhere"\nrun = "coin'), ("{{forks}}", "{{luck}}")),
            ("of deep-copy over tree", "of nobody"),
            ('measure = "forks"\nb', 'measure = "forks of continuous"\nb'),
            *(("[1, 3]", bounds) for bounds in ("[3, 1]", "[]", "[nan]")),
            *(('"first fork"', '"there"'), ('"first fork"', "-1"), ("0.4", "99")),
            *(("threshold = 0.4", script) for script in ("r = 0", 'show = "tables"')),
            *(('cursor = "first fork"', 'picture = "a cat"'), ("Look.\n", "\n")),
            *(("{{forks}} forks.", ""), ("at_most = 0", ""), ("at_most = 0", "at_most = 0\nat_least = 2")),
            ('measure = "forks"\nat', 'measure = "forks of tree"\nat'),
            ("[[goals]]", 'calculator = "abacus"\n[[goals]]'),
            *(("## Where\n`eab/run`", ""), ("little.", "little\x07.")),
            ("## Two\n", "```step\n```\n\n```step\n```\n\n## Two\n"),
        ],
    ),
    "the bytes of a lesson": (
        lambda data: lesson_of(data, "small"),
        [
            *(b"x" * (MAX_BYTES + 1), b"\xff\xfe\x00", b""),
            *(SMALL.replace(*change).encode() for change in ((GUESS, ""), (DO, DO * 2))),
            *(SMALL.replace(*change).encode() for change in ((STEP, ""), (STEP, STEP * 5))),
            SMALL.replace(STEP, STEP * 20).encode(),
        ],
    ),
    "the name of a lesson": (lambda name: lesson_of(SMALL.encode(), name), ["../../etc"]),
    "labels of a run": (COIN.labelled, [{}, "Paris", {"": "Paris"}, {"a": ""}]),
    "a grid of settings": (
        lambda given: Grid(**given).configs(),
        [
            *({"varied": {"treshold": [1.0]}}, {"varied": {"seed": [1, 2]}}),
            *({"varied": {"preset": names}} for names in (["wide", "thin"], ["wide", "wide"])),
            *({"varied": {"max_paths": values}} for values in ([], 4, [4, 8, 4], [4, 0])),
            *({"varied": {"policy": "fair"}}, {"varied": {"entropy_threshold": ["a"]}}),
            {"varied": {"entropy_threshold": [3.0], "threshold_unit": ["nats", "normalised"]}},
            {"varied": {"max_new_tokens": range(1, 300), "max_paths": range(1, 200)}},
            *({"seeds": seeds} for seeds in ([-1], [3, 3], range(1001))),
            {"sample": -2},
        ],
    ),
    "the plan in the file of a sweep": (
        sweep_file,
        [
            *({}, {"prompts": []}, {"grid": {"varied": {"max_paths": ["many"]}}}, {"more": 1}),
            {"grid": {"seeds": [*range(1000)], "varied": {"max_paths": [*range(2, 99)]}}},
            *({"grid": {"varied": {"r": [1] * 100_000}}}, {"grid": {"seeds": [1] * 100_000}}),
            *(of_prompt(id=1), of_prompt(id="x" * 101), of_prompt(question={"prompt": " "})),
            of_prompt(question={"prompt": "A", "distribution": {"a": 0.5}}),
            of_prompt(settings={"max_paths": 64}),
            of_prompt(question={"prompt": "A", "distribution": {"\ud800": 1.0}}),
            {"prompts": [{"id": "a", "question": {"prompt": "A"}}] * 2},
        ],
    ),
    "requests to serve": (
        workload,
        [
            *({"requests": ()}, {"requests": REQUESTS * 7}, {"requests": (("  ", 8),)}),
            *({"requests": (*REQUESTS, ("x" * 2001, 8))}, {"requests": (("x", 0),)}),
            *({"requests": (("x", 257),)}, {"slots": 0}, {"repeats": 10}, {"max_paths": 9}),
        ],
    ),
    "the name of a prompt set": (bundled_prompts, ["coins"]),
    "prompts of a sweep": (
        partial(read_as, "prompts.jsonl", read_prompts),
        [
            "\n".join(
                [
                    *('{"prompt": "fine", "id": "one"}', '{"prompt": "a"', '{"id": "a"}'),
                    *('{"prompt": "  "}', '{"prompt": "a", "id": "../a"}'),
                    *('{"prompt": "a", "seed": 1}', '{"prompt": "a", "answers": [1]}'),
                    '{"prompt": "a", "distribution": {"a": 2}}',
                    '{"prompt": "a", "answers": ["b"], "distribution": {"b": 1}}',
                    *('{"prompt": "\\ud800"}', '{"prompt": "a", "id": "ONE"}'),
                ]
            )
        ],
    ),
    "prompts of a sweep, as CSV": (
        partial(read_as, "prompts.csv", read_prompts),
        [
            *("", "prompt\n", "prompt\na,b\n", 'prompt\n"a\n', "prompt,distribution\na,b\n"),
            *("prompt,seed\na,1\n", f"prompt\n{'a' * 200_000}\n"),
        ],
    ),
    "a file of prompts": (
        lambda name: read_prompts(name if isinstance(name, str) else not_text(name)),
        ["none.jsonl", b"prompt\n\xff\n"],
    ),
    "questions with answers": (
        partial(read_as, "questions.jsonl", read_questions),
        [
            *("{", "[1]", '{"prompt": "a", "id": "b"}', '{"prompt": "a", "answers": "b"}'),
            *(f'{{"prompt": "a", "distribution": {{"b": {value}}}}}' for value in ("0.5", '"x"')),
        ],
    ),
    "lines of prompts": (
        partial(lines_of, read_prompts),
        [
            "\n".join(
                [
                    *('{"prompt": "fine", "id": "one"}', "", '{"prompt": "a"', '["a"]', '{"id": "a"}'),
                    *('{"messages": []}', '{"prompt": "a", "id": "../a"}', "[" * 100_000),
                    *('{"prompt": "a", "id": true}', '{"prompt": "a", "temprature": 1}'),
                    *('{"prompt": "a", "temperature": NaN}', '{"prompt": "a", "policy": {}}'),
                    *('{"prompt": "a", "id": "."}', '{"prompt": "a", "id": "ONE"}'),
                ]
            ),
            "\n\n",
        ],
    ),
    "lines of samples": (
        partial(lines_of, eab.from_samples),
        [
            *("", "{", "[]", '{"text": "a"}', '{"prompt": "a"}', '{"prompt": "a", "choices": []}'),
            '{"prompt": "a", "tokens": ["a", "b"], "logprobs": [-1]}',
            '{"prompt": "a", "tokens": ["a"], "top_logprobs": [{}, {}]}',
            '{"prompt": "a", "tokens": ["a"], "token_ids": [1, 2]}',
            '{"prompt": "a", "tokens": ["a"], "logprobs": [0.5]}',
            '{"prompt": "a", "tokens": ["a"], "top_logprobs": [{"a": -0.1, "b": -0.2}]}',
            *('{"prompt": "a", "token_ids": [7]}', '{"prompt": "a", "tokens": ["token_id:8"]}'),
            '{"prompt": "a", "messages": [], "text": "b"}',
            *('{"messages": [3], "text": "b"}', '{"prompt": "a", "text": "b", "reward": "x"}'),
            json.dumps({"prompt": "a", "text": "b " * 5000}),
            '{"prompt": "a", "choices": [{"logprobs": {"content": '
            '[{"token": "\\\\x", "logprob": -1, "bytes": [999]}]}}]}',
        ],
    ),
    "the bytes of a run file": (
        record.loads,
        [b"", b"not gzip at all", b"\x1f\x8b", gzip.compress("é".encode(), mtime=0)],
    ),
    "the lines of a run file": (
        lambda lines: record.loads(run_file(*lines)),
        [
            *((), ([1, 2],), (IN_A_FILE | {"format": "x"},), ("[" * 100_000,)),
            *((IN_A_FILE | {"version": version},) for version in (4, "1")),
            *(({"format": "eab-run"},), (IN_A_FILE,)),
        ],
    ),
    "the fourth line of a run file": (
        lambda line: record.loads(run_file(*RUN_FILE[:3], line)),
        [
            *("[" * 100_000, "9" * 10_000, "NaN", "{", {}, {"event": "x"}, {"event": 3}),
            *({"event": "TokensAppended", "step": 0}, [], None, 3, [["a"] * 9] * 9, "x" * 10**6),
        ],
    ),
    "a changed run file": (
        changed_run_file,
        [
            *(("TokensAppended", "tokens", 0, 1, value) for value in ("3", True, 3.0)),
            *(("TokensAppended", "tokens", 0, 2, 5), ("TokensAppended", "tokens", 0, 3, 10**400)),
            *(("TokensAppended", "tokens", 0, 4, 1), ("TokensAppended", "tokens", 0, [0, 3])),
            ("TokensAppended", "tokens", 0, [0, 3, "a", -1.0, False, 1]),
            *(("TokensAppended", "tokens", {"0": 1}), ("TokensAppended", "extra", 1)),
            *(("Predicted", "predictions", 0, 2, value) for value in ([1, 2, 3], 3)),
            *(("Predicted", "predictions", 0, 2, 0, value) for value in ([1, "a"], [1, "a", 0.5, 3])),
            *(("Predicted", "predictions", 0, 2, 0, 1, 5), ("Predicted", "predictions", 0, 2, 0, 2, "1")),
            *(("Predicted", "predictions", 0, [0, 1.0, [], [0.0, 1.0], 3]), ("Predicted", "predictions", None)),
            *(("Predicted", "predictions", 0, 1, 1e6), ("Predicted", "predictions", 0, 0, 2**70)),
            *(("Forked", "children", [[1]]), ("Forked", "weights", 0, 3.0), ("Forked", "weights", [0.1] * 17)),
            *(("PathFinished", "reason", "tired"), ("StepTimed", "seconds", -1.0)),
            *(("KvMeasured", "paths", [[0, 1, 2, 3]]), ("KvMeasured", "usage", "rows_spare", -1)),
            *(("RowsAllocated", "growth", "rows", 2**60), ("RunStarted", "model", None)),
            *(("RunStarted", "config", "branch_factor", 99), ("RunStarted", "config", "extra", 1)),
            *(("RunStarted", "config", "policy", f"own:{name}") for name in ("", "a b", "<b>", "\ud800")),
            *(("RunStarted", "config", "policy", name) for name in ("own:" + "x" * 61, "Own:x")),
            *(("RunStarted", "config", "cache", "x\udfff"), ("RunStarted", "config", "system", "x\udfff")),
            *(("RunStarted", "logits_processors", names) for names in ([3], ["x"] * 65, ["\udc80"], "x")),
            *(("RunStarted", "messages", [USER | more]) for more in ({"content": 3}, {"name": "x"})),
            *(("RunStarted", "messages", [USER | more]) for more in ({"role": "<b>"}, {})),
            ("RunStarted", "messages", "Hi"),
        ],
    ),
    "a model": (load_model, ["sglang:x", "http://x/y", "openai:http://127.0.0.1:9/none"]),
    "the address of a model server": (
        server_address,
        [
            *("", "127.0.0.1:9", "file:///etc/passwd", "http://", "http://[::1"),
            "http://user:secret@127.0.0.1:9",
        ],
    ),
    "eab": (
        eab_command,
        [
            *("compare-caches x --json /nowhere/a.json", "run x --cache slab", "run x --temperature -1"),
            *("run x --model " + "a" * 300, "run x --model openai:http://127.0.0.1:9/none"),
            *("run x --model vllm:embedded", "run x --model vllm:embedded --weights int8"),
            *("run x --drafter run-ahead", "run x --dtype int3", "run x --weights int8 --layout plain"),
            *("run x --answers word", "models get embedded", "models remove ../x"),
            *("models get " + "x" * 10**5, "evaluate none.jsonl", "replay nowhere.eab"),
            *("evaluate --same-answer fuzzy", "evaluate --answers word"),
            *(
                f"sweep p.txt --out out {option}"
                for option in (
                    *("--threshold a", "--threshold 0.3,", "--threshold 1:0:0.1", "--threshold 0:1:-1"),
                    *("--threshold 0:1", "--threshold 0:1:1e-9", "--max-paths 4.5", "--max-paths 4,4"),
                    *("--r auto,no", "--seeds 0", "--answers word", "--same-answer no"),
                    "--preset wide,thin",
                )
            ),
        ],
    ),
}  # fmt: skip


def named(input: object) -> str:
    words = repr(input)
    return words if len(words) < 100 else f"{words[:60]} … {words[-30:]}"


def test_the_messages_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.txt").write_text("Once upon a time\n", encoding="utf-8")
    found = "".join(f"{name}\n    {said(call)}\n" for name, call in CALLS.items())
    for door, (enter, inputs) in DOORS.items():
        found += f"\n# {door}\n"
        for one in inputs:
            found += f"{named(one)}\n    {said(partial(enter, one))}\n"
    if os.environ.get("EAB_WRITE"):
        FILE.write_text(found, encoding="utf-8")
    assert found == FILE.read_text(encoding="utf-8")
    assert not [*tmp_path.glob("*.sqlite")], "nothing is made before it is checked"
    assert not Path("out").exists()
