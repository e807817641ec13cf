"""The command line as people use it: exit codes, files, messages."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from command_line import eab, eab_here, output_of

from eab import __version__
from eab.config import SETTINGS
from eab.engine.branching.presets import START
from eab.run import fold, record
from eab.share.exports import to_html

PROMPT = "I tossed a coin and it landed on"
SUM, BALL, MARKET = (f"assets/runs/{name}.eab" for name in ("sum", "ball", "market"))
KV_PARTS = ("bytes_shared", "bytes_private", "bytes_spare")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("cli")
    saved = ("--json", str(folder / "a.json"), "--record", str(folder / "a.eab"))
    out = eab_here("run", PROMPT, "--max-new-tokens", "6", *saved)
    assert out.returncode == 0, out.stderr
    assert not out.stderr, "no progress bar where nobody sees it"
    assert "weight" in out.stdout
    return folder / "a.json", folder / "a.eab"


def test_json_holds_samples_whose_weights_sum_to_one_and_kv_parts_that_add_up(
    files: tuple[Path, Path],
) -> None:
    value = json.loads(files[0].read_text())
    assert sum(sample["weight"] for sample in value["samples"]) == pytest.approx(1)
    for sample in value["samples"]:
        assert len(sample["token_ids"]) == len(sample["entropies"]) > 0
        assert sample["log_prob"] < 0
        assert sample["finish_reason"] in ("stop", "length")
    assert value["settings"]["max_new_tokens"] == 6
    assert value["seconds"] > 0
    kv = value["kv"]
    assert kv["bytes_held"] == sum(kv[part] for part in KV_PARTS) > 0
    assert kv["bytes_independent"] > kv["bytes_shared"] + kv["bytes_private"]


def test_a_recorded_run_replays_to_the_same_samples(files: tuple[Path, Path]) -> None:
    run = fold(record.load(files[1]))
    samples = json.loads(files[0].read_text())["samples"]
    assert [sample.text for sample in run.samples] == [sample["text"] for sample in samples]
    shown = output_of("replay", str(files[1]))
    assert PROMPT in shown
    assert "at least" not in shown


@pytest.mark.parametrize(
    ("options", "reused"),
    [
        (("--preset", "balanced"), True),
        (("--preset", "balanced", "--no-prefix-cache"), False),
        (("--threshold", "1"), False),  # nothing is computed twice
    ],
)
def test_a_run_reuses_the_prompt_that_its_probe_computed(
    options: tuple[str, ...], reused: bool
) -> None:
    out = eab_here("run", PROMPT, "--max-new-tokens", "2", *options, "--json", "-")
    tokens = json.loads(out.stdout)["tokens_reused"]
    assert tokens == (len(PROMPT.split()) if reused else 0), "all but the last token"


def test_beams_are_listed_by_score_and_weigh_their_probability() -> None:
    rules = ("--length-penalty", "2", "--early-stopping", "never", "--max-paths", "3")
    out = eab_here(
        "run", PROMPT, "--policy", "beam", *rules, "--max-new-tokens", "4", "--json", "-"
    )
    samples = json.loads(out.stdout)["samples"]
    scores = [one["log_prob"] / len(one["token_ids"]) ** 2 for one in samples]
    assert len(samples) <= 3
    assert scores == sorted(scores, reverse=True)
    assert [one["weight"] for one in samples] == pytest.approx(
        [math.exp(one["log_prob"]) for one in samples]
    )


@pytest.mark.parametrize("part", ["text", "sentence"])
def test_answers_are_grouped_on_request(files: tuple[Path, Path], part: str) -> None:
    shown = output_of("replay", str(files[1]), "--answers", part)
    assert "certain" in shown
    assert "at least" in shown


def test_json_on_standard_output_is_all_there_is_and_has_the_answers_on_request() -> None:
    saved = ("--json", "-", "--answers", "sentence")
    value = json.loads(eab_here("run", PROMPT, "--max-new-tokens", "6", *saved).stdout)
    answers = value["answers"]
    assert (
        sum(answer["estimate"] for answer in answers["ranked"]) + len(answers["undecided"]) > 0.99
    )
    assert all(answer["low"] <= answer["high"] for answer in answers["ranked"])
    assert 0 <= answers["explored"] <= 1


def test_export_writes_a_page_that_holds_the_run(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = eab_here("export", str(files[1]), "--html", str(tmp_path / "run.html"))
    assert out.returncode == 0, out.stderr
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == to_html(record.load(files[1]))
    assert out.stdout.startswith(f"Wrote {tmp_path / 'run.html'} (")
    assert len(out.stdout.splitlines()) == 1
    out = eab_here("export", str(files[1]), "--html", str(tmp_path / "live.html"), "--live")
    page = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert page == to_html(record.load(files[1]), live=True)


def test_help_starts_with_a_description_and_lists_each_command_once() -> None:
    text = " ".join(output_of("--help").split())
    assert "[ARGS]... Entropy-adaptive branching (EAB): a language model continues" in text
    for command in ("run", "sweep", "replay", "what-if", "compare-caches", "export", "app"):
        assert text.count(f"│ {command} ") == 1
    assert "Exit codes: 0 done" in text
    words = output_of("--version").split()
    assert words == ["eab", __version__]


@pytest.mark.parametrize(
    ("command", "without"),
    [("run", ()), ("compare-caches", ("cache", "drafter", "draft_length"))],
)
def test_every_setting_is_an_option_in_its_group(command: str, without: tuple[str, ...]) -> None:
    text = output_of(command, "--help")
    for name, declared in SETTINGS.items():
        option = f"--{(declared.option or name).replace('_', '-')} "
        assert (f"│ {option}" in text) is (name not in without)
        if name not in without:
            assert f"─ {declared.group} ─" in text
            assert declared.help.split()[0] in text


def test_an_option_of_each_kind_sets_its_setting() -> None:
    out = eab_here(
        *("run", "-", "--json", "-", "--max-new-tokens", "2", "--threshold", "0.5"),
        *("--unit", "normalised", "--r", "auto", "--policy", "independent", "--top-p", "0.9"),
        *("--label-words", "zebra"),
        input="Once upon a time",
    )
    value = json.loads(out.stdout)
    assert value["prompt"] == "Once upon a time"
    given = {
        **{"max_new_tokens": 2, "entropy_threshold": 0.5, "threshold_unit": "normalised"},
        **{"r": "auto", "policy": "independent", "top_p": 0.9},
        "label_words": ["zebra"],
    }
    assert [label["name"] for label in value["labels"]] == ["zebra"]
    defaults = asdict(START) | {"stop": []}  # JSON has no tuples
    assert value["settings"] == defaults | given


def test_a_narrow_terminal_shows_weights_and_texts_without_the_other_numbers() -> None:
    wide, narrow = (
        output_of("replay", "assets/runs/job.eab", "--answers", "sentence", columns=columns)
        for columns in (120, 80)
    )
    for name in ("log p (nats)", "mean H (nats)", "tokens", "texts"):
        assert f"┃ {name}" in wide
        assert f"┃ {name}" not in narrow
    for name in ("weight", "at least", "at most", "answer"):
        assert f"┃ {name}" in narrow
    [heaviest, *_] = fold(record.load(Path("assets/runs/job.eab"))).samples
    assert f"\n {heaviest.weight:.1%}  {heaviest.text} ■ " in narrow


def test_a_narrow_terminal_wraps_texts_without_wasting_lines() -> None:
    run = fold(record.load(Path(BALL)))
    lines = output_of("replay", BALL, columns=80).splitlines()
    assert max(map(len, lines)) <= 80
    first = next(number for number, line in enumerate(lines) if line.startswith("weight  text"))
    listed = lines[first + 1 : lines.index("", first)]
    needed = sum(-(-len(sample.text) // 60) for sample in run.samples)
    assert len(listed) <= needed


@pytest.mark.parametrize("columns", [80, 200])
def test_the_tree_has_the_share_at_each_fork_and_the_weight_of_each_text(columns: int) -> None:
    run = fold(record.load(Path(MARKET)))
    shown = output_of("replay", MARKET, columns=columns)
    for leaf in run.leaves():
        text = "".join(token.text for token in leaf.tokens if not token.special)
        others = "others " if run.is_drawn(leaf) else ""
        assert f"─ {others}{leaf.share:6.1%} {text}  ■ {leaf.weight:.1%}\n" in shown
    assert "Before a branch: its share at the fork (◆); others: all tokens without" in shown
    assert "others" in shown.partition("Before a branch")[0]
    assert "<|endoftext|>" not in shown
    assert "path limit" not in shown


def test_the_tree_says_that_the_path_limit_changed_the_weights() -> None:
    shown = " ".join(output_of("replay", BALL).split())
    assert "The path limit (12) dropped branches from step " in shown
    assert "all texts have equal weight" in " ".join(
        output_of("replay", "assets/runs/original.eab").split()
    )


def test_what_if_marks_the_places_that_only_the_model_can_decide() -> None:
    lower = output_of("what-if", BALL, "--threshold", "0.9")
    assert "Tim asked◇ his dog◇" in lower.replace("\n", "")
    assert "│ length ◇ │" in lower
    narrow = output_of("what-if", BALL, "--threshold", "0.9", columns=80)
    assert "stay in the box." in narrow
    assert "→ ◇" in narrow
    assert "◇" not in output_of("what-if", BALL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", " "], "Error: The prompt is empty; write a few words for the model to continue."),
        (["replay", "nowhere.eab"], "nowhere.eab cannot be read"),
        (["export", SUM, "--html", "/nowhere/x.html"], "/nowhere/x.html cannot be written"),
    ],
)
def test_bad_input_is_explained_on_stderr_with_exit_code_1(
    arguments: list[str], message: str
) -> None:
    out = eab_here(*arguments)
    assert out.returncode == 1
    assert message in " ".join(out.stderr.split())


@pytest.mark.parametrize("output", ["a file", "/dev/full"])
def test_an_error_is_a_message_on_stderr_without_a_traceback(output: str, tmp_path: Path) -> None:
    file, arguments, words = tmp_path / "out", ("replay", "no.eab"), "no.eab cannot be read"
    if output == "/dev/full":
        file, arguments, words = Path(output), ("replay", SUM), "No space left on device"
        if not file.exists():
            pytest.skip("this system has no device that is always full")
    with file.open("w") as opened:
        command = [sys.executable, "-m", "eab", *arguments]
        out = subprocess.run(command, stdout=opened, stderr=subprocess.PIPE, text=True, check=False)
    assert out.returncode == 1
    assert words in out.stderr
    assert "Traceback" not in out.stderr
    assert file.is_char_device() or file.read_text() == ""


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_terminal_that_lacks_some_characters_gets_replacements(encoding: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    out = eab("replay", SUM, env=environment, encoding=encoding)
    assert (out.returncode, out.stderr) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["fly"],
        ["compare-caches", "x", "--cache", "tree"],  # it runs all caches
        ["run", "x", "--seed", "many"],
    ],
)
def test_wrong_usage_has_exit_code_2(arguments: list[str]) -> None:
    assert eab_here(*arguments).returncode == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "99999"], "less than or equal to 65535"),
        (["--address", "999.1.1.1"], "the address is '999.1.1.1'; this machine cannot listen"),
    ],
)
def test_a_page_that_cannot_be_served_fails_with_the_reason(options: list[str], words: str) -> None:
    ended = eab("app", *options)  # the server replaces the process of the command
    assert ended.returncode != 0
    assert words in " ".join(ended.stderr.replace("│", " ").split())
    assert "Traceback" not in ended.stderr


def test_a_prompt_that_ends_in_a_space_is_noticed_on_stderr() -> None:
    out = eab_here("run", "The cat ", "--max-new-tokens", "1")
    assert out.returncode == 0
    assert out.stderr.startswith("The prompt ends in a space.")


def test_texts_that_were_cut_go_on_and_the_others_are_refused(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    saved, before = tmp_path / "long.eab", fold(record.load(files[1]))
    assert eab_here("continue", str(files[1]), "--record", str(saved)).returncode == 0
    after = fold(record.load(saved))
    old = {sample.token_ids for sample in before.samples}
    assert {sample.token_ids[:6] for sample in after.samples} == old
    assert after.started.config.max_new_tokens == 12
    number = next(
        number for number, text in enumerate(before.samples, 1) if text.finish_reason == "length"
    )
    one = eab_here("continue", str(files[1]), "--text", str(number), "--record", str(saved))
    assert one.returncode == 0, one.stderr
    assert fold(record.load(saved)).started.continued_tokens == before.samples[number - 1].token_ids
    refused = eab_here("continue", str(files[1]), "--text", "999")
    assert refused.returncode == 1
    assert "Text 999 has ended, or is not there" in refused.stderr


def test_given_texts_are_scored(tmp_path: Path) -> None:
    texts = (" Paris", " Lyon", " Pa")
    own = ("--temperature", "1", "--top-p", "1")
    shown = output_of("score", "The capital of France is", *texts, *own)
    assert "None of these beginnings: 0." in shown
    out = eab_here("score", "The capital of France is", *texts, *own, "--json", "-")
    paris, lyon, part = json.loads(out.stdout)["texts"]
    assert 1 > part["begins"]["low"] >= paris["begins"]["low"] > 0.9 > lyon["begins"]["high"]
    assert [token["text"] for token in part["tokens"]] == [" P", "a"]
    top = eab_here("score", "The capital of France is", " Lyon", "--top-k", "1", "--json", "-")
    assert json.loads(top.stdout)["texts"][0]["tokens"][0]["log_prob"] is None
    refused = eab_here("score", "The capital of France is", "")
    assert refused.returncode == 1
    assert "is empty" in refused.stderr
