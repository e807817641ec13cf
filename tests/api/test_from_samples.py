"""Samples of others as runs: every format, the tree, what is known, and what is refused."""

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import eab_here
from hypothesis import given
from hypothesis import strategies as st
from page_data import data_of

import eab
from eab import Run
from eab.api import imported
from eab.engine.request import continue_from
from eab.engine.step_events import entropy_bounds
from eab.errors import ConfigError, ModelError, RecordError
from eab.figures.captions import answers_sentence, cost_sentence, entropy_sentence, tree_sentence
from eab.figures.uncertainty import uncertainty_sentence
from eab.run.record.samples import Vocabulary
from eab.share.exports import as_python, to_html

PROMPT = "The capital of France is"
LN = math.log


def written(folder: Path, *lines: Any) -> Path:
    file = folder / "samples.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


def chat_token(text: str, probability: float, *others: tuple[str, float], **more: Any) -> Any:
    tops = [{"token": name, "logprob": LN(p), "bytes": None} for name, p in others]
    return {"token": text, "logprob": LN(probability), "top_logprobs": tops, **more}


CHAT = {
    "model": "some-model",
    "messages": [{"role": "user", "content": "Capital?"}],
    "usage": {"total_tokens": 5},
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "Paris"},
            "logprobs": {
                "content": [
                    chat_token("Paris", 0.6, ("Paris", 0.6), ("Lyon", 0.3)),
                    chat_token("<|im_end|>", 0.9, ("<|im_end|>", 0.9), (".", 0.1)),
                ]
            },
        },
        {
            "index": 1,
            "finish_reason": "length",
            "message": {"role": "assistant", "content": "Paris."},
            "logprobs": {
                "content": [
                    chat_token("Paris", 0.6, ("Paris", 0.6), ("Lyon", 0.3)),
                    chat_token(".", 0.1, ("<|im_end|>", 0.9), (".", 0.1)),
                ]
            },
        },
    ],
}
COMPLETION = {
    "prompt": PROMPT,
    "choices": [
        {
            "text": " Paris",
            "finish_reason": "length",
            "logprobs": {
                "tokens": [" Paris"],
                "token_logprobs": [LN(0.2)],
                "top_logprobs": [{" the": LN(0.5), " a": LN(0.25), " Paris": LN(0.2)}],
                "text_offset": [0],
            },
        }
    ],
}


def test_a_chat_response_gives_one_tree_with_what_it_says() -> None:
    run = eab.from_samples([CHAT])
    assert run.started.model.name == "some-model"
    assert [message.content for message in run.started.messages] == ["Capital?"]
    root, ended, cut = run.paths
    assert [token.text for token in root.tokens] == ["Paris"]
    assert [(path.weight, path.finish_reason) for path in (ended, cut)] == [
        (0.5, "stop"),
        (0.5, "length"),
    ]
    assert {sample.text: sample.log_prob for sample in run.samples} == pytest.approx(
        {"Paris": LN(0.54), "Paris.": LN(0.06)}
    )
    # the first distribution is known in part; all of the second one is named
    [first] = root.tokens
    low, high = first.whole or (0, 0)
    assert first.entropy == low < high
    assert ended.tokens[0].entropy == pytest.approx(-0.9 * LN(0.9) - 0.1 * LN(0.1))
    assert ended.tokens[0].whole is None
    assert [one.probability for one in first.candidates] == [0.6, 0.3]
    probability = run.probability("Paris")
    assert (probability.low, probability.high) == pytest.approx((0.6, 1.0))


def test_a_token_that_is_named_beside_the_most_likely_ones_bounds_nothing() -> None:
    [token] = eab.from_samples([COMPLETION]).samples[0].tokens
    tops = [LN(0.5), LN(0.25)]  # a token between 0.2 and 0.25 may be missing
    [bounds] = entropy_bounds(imported.torch.tensor([tops]), 2**20).tolist()
    assert token.whole == pytest.approx(bounds)
    assert len(token.candidates) == 3


def test_a_single_named_token_says_nothing_of_the_entropy_unless_it_is_likely() -> None:
    for probability, is_known in ((0.4, False), (0.6, True)):
        sample = {"tokens": ["a"], "logprobs": [LN(probability)]}
        sample["top_logprobs"] = [{"a": LN(probability)}]
        token = eab.from_samples([sample], PROMPT).samples[0].tokens[0]
        assert (token.entropy is not None) == is_known


def test_the_same_samples_in_every_format_give_the_same_tree(tmp_path: Path) -> None:
    own = {"prompt": PROMPT, "text": "ab", "tokens": ["a", "b"], "logprobs": [-1.0, -2.0]}
    token_logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0], "top_logprobs": None}
    completion = {"prompt": PROMPT, "choices": [{"text": "ab", "logprobs": token_logprobs}]}
    content = [{"token": "a", "logprob": -1.0}, {"token": "b", "logprob": -2.0}]
    chat = {"choices": [{"message": {"content": "ab"}, "logprobs": {"content": content}}]}
    chat["prompt"] = PROMPT
    runs = [eab.from_samples(written(tmp_path, line)) for line in (own, completion, chat)]
    runs += [eab.from_samples([own]), eab.from_samples([SimpleNamespace(model_dump=lambda: own)])]
    for run in runs:
        assert run.events == runs[0].events
        assert run.samples[0].log_probs == (-1.0, -2.0, None)
        assert run.samples[0].log_prob is None, "the probability of its end is not known"


def test_a_stop_string_at_the_end_is_no_text_and_stays_text_elsewhere() -> None:
    tokens = ["a", "\n", "b", "\n"]
    run = eab.from_samples([{"text": "a\nb", "tokens": tokens, "logprobs": [-1.0] * 4}], "x")
    [sample] = run.samples
    assert sample.text == "a\nb"
    assert [token.special for token in sample.tokens] == [False, False, False, True]
    assert sample.log_prob == -4.0, "the stop string is its end"


def test_tokens_of_a_part_of_a_character_have_their_bytes() -> None:
    first, second = "é".encode()
    content = [
        {"token": "\\xc3", "logprob": -1.0, "bytes": [first]},
        {"token": "\ufffd", "logprob": -1.0, "bytes": [second]},
    ]
    [sample] = eab.from_samples([{"choices": [{"logprobs": {"content": content}}]}], "x").samples
    assert sample.text == "é"


@pytest.mark.usefixtures("embedded")
def test_a_tokenizer_splits_texts_and_gives_the_texts_of_ids() -> None:
    model = eab.load_model("embedded")
    ids = list(model.encode("Once upon a time"))
    of_text = eab.from_samples(["Once upon a time"], "One", tokenizer="embedded")
    by_ids = {"token_ids": ids, "prompt": ids[:2]}
    by_name = {"tokens": [f"token_id:{id}" for id in ids], "prompt": ids[:2]}
    runs = [eab.from_samples([one], tokenizer="embedded") for one in (by_ids, by_name)]
    for run in runs:
        assert run.samples[0].text == token_texts(model, ids)
        assert run.started.by_token_ids
        assert run.started.prompt_tokens == tuple(ids[:2])
    assert of_text.samples[0].text == "Once upon a time"
    assert of_text.started.prompt_texts == tuple(map(model.text, of_text.started.prompt_tokens))


def token_texts(model: Any, ids: Sequence[int]) -> str:
    return "".join(model.text(id) for id in ids if not model.is_special(id))


def test_without_log_probabilities_only_shares_are_known(tmp_path: Path) -> None:
    run = eab.from_samples(["Paris.", "Paris, yes.", "Paris.", "Lyon", ""], PROMPT)
    assert {sample.text: sample.weight for sample in run.samples} == pytest.approx(
        {"Paris.": 0.4, "Paris, yes.": 0.2, "Lyon": 0.2, "": 0.2}
    )
    assert {entropy for sample in run.samples for entropy in sample.entropies} == {None}
    probability = run.probability("Paris")
    assert (probability.estimate, probability.low, probability.high) == (
        pytest.approx(0.6),
        0.0,
        1.0,
    )
    first = run.answers().ranked[0]
    assert (first.name, first.estimate, first.low, first.high) == ("Paris.", 0.4, 0.0, 1.0)
    scores = run.uncertainty()
    assert scores.rao_blackwellised is scores.predictive is None
    assert uncertainty_sentence(scores).endswith("of the texts: not known.")
    shares = (0.4, 0.2, 0.2, 0.2)
    assert scores.discrete == pytest.approx(-sum(share * LN(share) for share in shares))
    assert scores.texts == 5, "equal samples count as often as they were drawn"
    assert run.seconds is None
    assert "5 imported samples: 2 forks" in tree_sentence(run)
    assert "No entropy is known" in entropy_sentence(run)
    assert "not known" in cost_sentence(run)
    assert "its share of the samples" in answers_sentence(run.answers())
    assert run.to_pandas("tokens")["probability"].isna().all()
    assert "5 imported samples" in data_of(to_html(run))["about"]
    run.save(tmp_path / "run.eab")
    assert eab.load(tmp_path / "run.eab").events == run.events


def test_rewards_of_equal_samples_have_their_mean_and_labels_the_most_frequent() -> None:
    rated = [("a", True), ("a", 0), ("b", 0.25)]
    run = eab.from_samples([{"text": text, "reward": reward} for text, reward in rated], "x")
    assert {sample.text: sample.reward for sample in run.samples} == {"a": 0.5, "b": 0.25}
    assert list(run.to_pandas()["reward"]) == [0.5, 0.25]
    named = [{"text": "a", "label": label} for label in ("good", "bad", "bad")]
    assert eab.from_samples(named, "x").samples[0].reward == "bad"


LETTERS = st.text("abc", max_size=4)


@given(st.lists(LETTERS, min_size=1, max_size=40))
def test_the_tree_holds_the_samples_and_shares_every_beginning(texts: list[str]) -> None:
    spaced = [" ".join(text) for text in texts]
    run = eab.from_samples(spaced, "x")
    counts = Counter(spaced)
    assert {one.text: round(one.weight * len(texts)) for one in run.samples} == counts
    for path in run.paths:
        firsts = [run.paths[child].tokens[0].id for child in path.children]
        assert len(firsts) == len({*firsts}) != 1, "what is common is before the fork"
        children = math.fsum(run.paths[child].weight for child in path.children)
        assert not firsts or children == pytest.approx(path.weight)


@given(st.lists(LETTERS, min_size=1, max_size=40), st.integers(2, 6))
def test_a_limited_tree_has_exact_shares_wherever_it_forks(texts: list[str], most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(imported, "MAX_PATHS", most)
        run = eab.from_samples([" ".join(text) for text in texts], "x")
    different = len(set(texts))
    assert len(run.leaves()) == min(most, different)
    assert math.fsum(leaf.weight for leaf in run.leaves()) == pytest.approx(1)
    assert {run.text(leaf.id).replace(" ", "") for leaf in run.leaves()} <= {*texts}
    assert any(path.limited_steps for path in run.paths) == (different > most)
    for path in run.paths:
        if path.children:  # not drawn, so all samples with this beginning are below
            begin = run.text(path.id)
            share = sum(" ".join(text).startswith(begin) for text in texts) / len(texts)
            assert path.weight <= share + 1e-9


def test_drawn_texts_are_unbiased() -> None:
    texts = [f"{first} {second}" for first in "ab" for second in range(30)]
    texts += ["a 0"] * 20
    means = []
    for seed in range(200):
        keys = sorted(imported.np.array([*map(ord, text)], ">u4").tobytes() for text in texts)
        arrays = [imported.np.frombuffer(key, ">u4") for key in keys]
        root = imported.sample_tree(arrays, 4, seed)
        leaves = [branch for branch in _branches(root) if not branch.children]
        assert sum(leaf.samples for leaf in leaves) == len(texts)
        shown = [("".join(map(chr, arrays[leaf.shown])), leaf.samples) for leaf in leaves]
        means.append(sum(count for text, count in shown if text.endswith("7")) / len(texts))
    expected = sum(text.endswith("7") for text in texts) / len(texts)
    error = imported.np.std(means) / math.sqrt(len(means))
    assert abs(float(imported.np.mean(means)) - expected) < 4 * error


def _branches(branch: Any) -> list[Any]:
    return [branch, *(below for child in branch.children for below in _branches(child))]


def test_each_prompt_has_a_run_of_its_own(tmp_path: Path) -> None:
    samples = [{"prompt": prompt, "text": "yes"} for prompt in ("one", "two", "one")]
    runs = list(eab.runs_from_samples(samples))
    assert [(run.started.prompt, run.started.imported) for run in runs] == [("one", 2), ("two", 1)]
    file, out = str(written(tmp_path, *samples)), tmp_path / "runs"
    refused = eab_here("import", file, "-o", str(tmp_path / "one.eab"))
    assert refused.returncode == 1
    assert "give a folder" in " ".join(refused.stderr.split())
    assert not list(tmp_path.glob("*.eab"))
    assert eab_here("import", file, "-o", str(out)).returncode == 0
    assert {Run.load(path).started.prompt for path in out.iterdir()} == {"one", "two"}


def test_what_needs_the_model_is_refused() -> None:
    run = eab.from_samples(["a", "b"], PROMPT)
    model = eab.load_model("embedded")
    with pytest.raises(ModelError, match="imported"):
        continue_from(model, run.started, (), run.started.config)
    assert "eab.load(" in as_python(run.started)
    compile(as_python(run.started), "code", "exec")


def test_all_bad_lines_are_reported_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    file = written(tmp_path, {"prompt": "a", "text": "fine"}, [], {"text": "a"})
    with pytest.raises(ConfigError) as raised:
        list(eab.runs_from_samples(file))
    first, *lines = str(raised.value).split("\n  ")
    assert "2 problems, so nothing was written" in first
    assert [line.partition(":")[0] for line in lines] == ["line 2", "line 3"]
    assert eab_here("import", str(file), "-o", str(tmp_path / "run.eab")).returncode == 1
    assert not list(tmp_path.glob("*.eab"))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: Is a directory"):
        eab.from_samples(tmp_path)
    with pytest.raises(RecordError, match="No such file"):
        eab.from_samples(tmp_path / "none.jsonl")
    file = tmp_path / "samples.jsonl"
    for content, words in ((b"", "no samples"), (b'{"text": "\xff"}', "not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            eab.from_samples(file)


@given(st.text())
def test_splitting_a_text_loses_nothing(text: str) -> None:
    vocabulary = Vocabulary()
    assert "".join(map(vocabulary.text, vocabulary.split(text))) == text


def test_the_time_grows_with_the_number_of_samples() -> None:
    def seconds(count: int) -> float:
        samples = [{"text": f"{i % 7} {i} " + "word " * 100, "prompt": "x"} for i in range(count)]
        begin = time.process_time()
        run = eab.from_samples(samples)
        assert len(run.leaves()) == 256
        return time.process_time() - begin

    seconds(300)
    least = min(seconds(1000) for _ in range(2))
    assert seconds(4000) < 8 * least
