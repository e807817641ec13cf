"""The bundled examples: what each description claims is true of its run, and the first one shows
the idea.
"""

import math
import re
from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from made_runs import leaves_at

from eab.analysis.label_rules import labelled
from eab.config import SETTINGS
from eab.figures.kv_memory import separate_bytes
from eab.lessons import bundled_runs
from eab.run import Path, RunState, Sample, Token, fold
from eab.settings import THRESHOLD_SCALES, Lines, Slider

Fact: TypeAlias = Callable[[RunState], bool]
STEPS_PER_SECOND: Final = 6  # during a replay


def shares(run: RunState, path: int = 0) -> dict[str, int]:
    """The share of each branch of this path's fork in percent, by the branch's first word."""
    children = [run.paths[child] for child in run.paths[path].children]
    return {child.tokens[0].text.strip(): round(100 * child.share) for child in children}


def forks(run: RunState) -> list[Path]:
    return [path for path in run.paths if path.status == "forked"]


def fork_entropy(run: RunState, path: int = 0) -> float:
    entropy = run.paths[path].fork_entropy
    assert entropy is not None
    return round(entropy, 2)


def tokens(run: RunState) -> list[Token]:
    return [token for path in run.paths for token in path.tokens]


def unforked(run: RunState) -> list[Token]:
    """Tokens that were drawn at or above the threshold without a fork."""
    return [
        token
        for path in run.paths
        for token in (path.tokens[1:] if path.parent >= 0 else path.tokens)
        if token.entropy >= run.started.threshold_nats
    ]


def texts(run: RunState) -> list[str]:
    """The texts, heaviest first."""
    return [sample.text for sample in run.samples]


def after(run: RunState, words: str) -> list[Path]:
    """The paths that forked after these words."""
    texts = {path.id: "".join(token.text for token in run.tokens(path.id)) for path in forks(run)}
    return [path for path in forks(run) if words in texts[path.id]]


def likely_after(run: RunState, words: str) -> tuple[int, float]:
    """How many branches of the fork after these words have at least 5%, and its entropy."""
    [path] = after(run, words)
    return sum(share >= 5 for share in shares(run, path.id).values()), fork_entropy(run, path.id)


def weights(run: RunState) -> list[int]:
    """The weights of the texts in percent, heaviest first."""
    return [round(100 * sample.weight) for sample in run.samples]


def fork_steps(run: RunState) -> list[int]:
    return [run.paths[path.children[0]].born for path in forks(run)]


def some_text_has(run: RunState, words: str) -> bool:
    return any(words in text for text in texts(run))


def first(run: RunState) -> Token:
    """The first token of a run that does not fork at its first step."""
    return run.paths[0].tokens[0]


def highest_entropy(run: RunState) -> float:
    return max(token.entropy for token in tokens(run))


def caches_ratio(run: RunState, step: int) -> float:
    """The bytes that separate caches would hold, as a multiple of the bytes held."""
    kv = run.steps[step].kv
    return separate_bytes(run.started, kv) / kv.bytes_held


def ratios_from(run: RunState, first: int) -> list[float]:
    return [caches_ratio(run, step) for step in range(first, len(run.steps))]


def is_product_of_three_shares(run: RunState, sample: Sample) -> bool:
    product = math.prod(run.paths[path].share for path in sample.lineage)
    weight = run.paths[sample.lineage[-1]].weight
    return math.isclose(weight, product, rel_tol=1e-6) and len(sample.lineage) == 4


# The claims of each description, each with its check.
FACTS: Final[dict[str, dict[str, Fact]]] = {
    "cake.eab": {
        "Anna, a human, the dog or someone": lambda run: (
            list(shares(run)) == ["Anna", "a", "the", "someone"]
            and some_text_has(run, " a human.")
            and some_text_has(run, " the dog.")
        ),
        "forks at its first word": lambda run: fork_steps(run)[0] == 0,
        "7 texts": lambda run: len(run.leaves()) == 7,
        "a prompt of 155 tokens": lambda run: len(run.started.prompt_tokens) == 155,
        "separate caches would hold 3.4 to 6.5× as much": lambda run: (
            [round(extreme(ratios_from(run, 1)), 1) for extreme in (min, max)] == [3.4, 6.5]
        ),
    },
    "bridge.eab": {
        "is sure of nearly every word": lambda run: (
            sum(token.entropy < 0.25 for token in tokens(run)) > 0.85 * len(tokens(run))
        ),
        "It forks where it is not": lambda run: (
            not unforked(run)
            and all(min(shares(run, path.id).values()) >= 20 for path in forks(run))
        ),
        "7 forks": lambda run: len(forks(run)) == 7,
        "8 stories": lambda run: len(run.leaves()) == 8,
    },
    "coin.eab": {
        "equally likely": lambda run: shares(run) == {"heads": 50, "tails": 50},
        "0.70 nats": lambda run: fork_entropy(run) == 0.70,
        "one bit, which is 0.69 nats": lambda run: round(math.log(2), 2) == 0.69,
    },
    "bent.eab": {
        "Heads has 91%": lambda run: round(100 * first(run).candidates[0].probability) == 91,
        "0.31 nats": lambda run: round(first(run).entropy, 2) == 0.31,
        "below the threshold of 0.65, so there is no fork": lambda run: (
            run.started.threshold_nats == 0.65 and not forks(run)
        ),
        "below 0.31 to see where there would be one": lambda run: (
            highest_entropy(run) == first(run).entropy
        ),
    },
    "coins.eab": {
        "Every coin forks every path": lambda run: fork_steps(run) == [0, 2, 2, 4, 4, 4, 4],
        "the product of the shares at its three forks": lambda run: all(
            is_product_of_three_shares(run, sample) for sample in run.samples
        ),
        "8 texts, each with 11 to 15%": lambda run: (
            len(run.samples) == 8 and all(0.11 <= sample.weight <= 0.15 for sample in run.samples)
        ),
    },
    "job.eab": {
        "five jobs have 30, 30, 20, 10 and 10%": lambda run: (
            truth("When I grow up I want to be a") == [30, 30, 20, 10, 10]
        ),
        "The model gives them 40, 23, 20, 11 and 7%": lambda run: (
            [shares(run)[job] for job in ("doctor", "teacher", "pilot", "farmer", "sing")]
            == [40, 23, 20, 11, 7]
        ),
    },
    "bag.eab": {
        "Three red balls, one blue: the odds are 75 to 25": lambda run: (
            "three red balls and one blue ball" in run.started.prompt
        ),
        "It gives 68 to 32": lambda run: shares(run) == {"red": 68, "blue": 32},
    },
    "pet.eab": {
        "like 14 equally likely names": lambda run: all(
            round(math.exp(fork_entropy(run, path.id))) == 14 for path in after(run, "named")
        ),
        "a fork has 3 branches": lambda run: {len(path.children) for path in forks(run)} == {3},
        "the two most likely names, and one that is drawn": lambda run: all(
            list(shares(run, path.id))[:2]
            == [one.text.strip() for one in run.paths[path.children[0]].tokens[0].candidates[:2]]
            for path in after(run, "named")
        ),
        "over 80%": lambda run: all(
            list(shares(run, path.id).values())[2] > 80 for path in after(run, "named")
        ),
        "Three names for fourteen": lambda run: len(after(run, "named")) == 3,
    },
    "market.eab": {
        "After flour one thing is likely (no fork)": lambda run: not after(run, "flour"),
        "after milk two (0.77 nats)": lambda run: likely_after(run, "milk") == (2, 0.77),
        "after apples three (1.20 nats)": lambda run: likely_after(run, "apples") == (3, 1.20),
    },
    "count.eab": {
        "nearly a toss-up, 54 to 46": lambda run: shares(run) == {"loses": 54, "finds": 46},
        "the number at the end has to follow from it": lambda run: (
            texts(run)
            == [" loses one of them. Now Ben has three.", " finds one more. Now Ben has five."]
        ),
    },
    "wording.eab": {
        "Two ways to say one answer": lambda run: (
            shares(run).keys() == {"It", "The"} and all("Rome." in text for text in texts(run))
        ),
        "The other fork": lambda run: len(forks(run)) == 2,
        "whether the conversation goes on": lambda run: (
            {*texts(run)} >= {" It is Rome.", " It is Rome.\nUser:"}
        ),
    },
    "capital.eab": {
        "Paris has 99.8%": lambda run: (
            round(first(run).candidates[0].probability, 3) == 0.998 and first(run).text == " Paris"
        ),
        "so there is no fork before it. The only fork comes after the full stop": lambda run: (
            [path.tokens[-1].text for path in forks(run)] == ["."]
        ),
        "another question": lambda run: some_text_has(run, "Question"),
    },
    "rare.eab": {
        "2.47 nats at its first syllable": lambda run: fork_entropy(run) == 2.47,
        "The right one, Sucre, has 22% of the weight": lambda run: (
            round(100 * sum(one.weight for one in run.samples if " Sucre" in one.text)) == 22
        ),
    },
    "sum.eab": {
        "Seven is right and gets 48%": lambda run: shares(run)["seven"] == 48,
        "eight gets 39%": lambda run: shares(run)["eight"] == 39,
        "six 11%": lambda run: shares(run)["six"] == 11,
        "1.10 nats": lambda run: fork_entropy(run) == 1.10,
        "A sum it half knows": lambda run: 45 <= shares(run)["seven"] <= 55,
    },
    "ball.eab": {
        "After three steps there are 12 paths, the limit": lambda run: (
            len(leaves_at(run, 2)) == 12 == run.started.config.max_paths
        ),
        "all share the long prompt": lambda run: len(run.started.prompt_tokens) > 50,
        "From then on each path weighs less than the 10% that a fork needs, so none forks": (
            lambda run: (
                run.started.config.min_fork_weight == 0.1
                and max(fork_steps(run)) <= 3
                and max(leaf.weight for leaf in run.leaves()) < 0.1
            )
        ),
        "although the model stays unsure": lambda run: len(unforked(run)) > 100,
    },
    "original.eab": {
        "All texts count equally": lambda run: set(weights(run)) == {8},
        "all 12 texts begin with “a big tree”": lambda run: (
            [text[:11] for text in texts(run)] == [" a big tree"] * 12
        ),
    },
    "long.eab": {
        "Twenty paths, up to 100 tokens each": lambda run: (
            len(run.leaves()) == 20 and max(len(sample.token_ids) for sample in run.samples) == 100
        ),
        "10.9× as much at step 5": lambda run: (
            max(range(len(run.steps)), key=lambda step: caches_ratio(run, step)) == 5
            and round(caches_ratio(run, 5), 1) == 10.9
        ),
        "1.9× at step 65": lambda run: (
            run.peak_step == 65 and round(caches_ratio(run, 65), 1) == 1.9
        ),
    },
    "canberra.eab": {
        "Every text knows Canberra": lambda run: all("Canberra" in text for text in texts(run)),
        "the most likely one ends there, with 54%": lambda run: (
            texts(run)[0].endswith("is Canberra.") and int(100 * run.samples[0].weight) == 54
        ),
        "the Northern Territory, or in New South Wales": lambda run: (
            some_text_has(run, "Northern Territory") and some_text_has(run, "New South Wales")
        ),
    },
    "banana.eab": {
        "Two wrong answers": lambda run: len(run.leaves()) == 2,
        "“Red” with 71% and “Amaranthum” with 29%": lambda run: (
            ["Red" in texts(run)[0], "Amaranthum" in texts(run)[1]] == [True, True]
            and weights(run) == [71, 29]
        ),
        "yellow is in no text": lambda run: "yellow" not in "".join(texts(run)).lower(),
        "1.97 nats": lambda run: fork_entropy(run) == 1.97,
    },
    "tomato.eab": {
        "A fruit, a vegetable, or both: 8 texts": lambda run: (
            len(run.leaves()) == 8
            and all("fruit" in text for text in texts(run))
            and some_text_has(run, "vegetable")
        ),
        "The entropy is as high as where the model is wrong": lambda run: (
            highest_entropy(run) >= 1.97
        ),
    },
    "riddle.eab": {
        "no text has it": lambda run: "river" not in "".join(texts(run)).lower(),
        "none has more than 19%": lambda run: 0.18 < run.samples[0].weight < 0.19,
        "already unsure at the first word (1.81 nats)": lambda run: fork_entropy(run) == 1.81,
    },
    "recipe.eab": {
        "11 forks, 8 meals, and no weight stands out": lambda run: (
            len(forks(run)) == 11
            and len(run.leaves()) == 8
            and all(abs(leaf.weight - 1 / 8) < 0.01 for leaf in run.leaves())
        ),
    },
    "report.eab": {
        "a prompt of 338 tokens": lambda run: len(run.started.prompt_tokens) == 338,
        "5.3× as much at the last step": lambda run: (
            round(caches_ratio(run, len(run.steps) - 1), 1) == 5.3
        ),
        "Ada burned her furniture, but no text does": lambda run: (
            not any(some_text_has(run, word) for word in ("burn", "furniture", "chair", "table"))
        ),
    },
}


def truth(prompt: str) -> list[int]:
    """The percentages in the text that the model was trained on, for this prompt."""
    from training.choices import CHOICES, known_distributions

    return [round(100 * share) for share in known_distributions(CHOICES)[prompt].values()]


@pytest.fixture(params=bundled_runs.recordings(), ids=lambda recording: recording.file)
def recording(request: pytest.FixtureRequest) -> bundled_runs.Recording:
    found: bundled_runs.Recording = request.param
    return found


@pytest.fixture
def run(recording: bundled_runs.Recording) -> RunState:
    return fold(bundled_runs.events_of(recording))


def test_every_claim_of_a_description_is_true_of_its_run(
    recording: bundled_runs.Recording, run: RunState
) -> None:
    words = f"{recording.title}. {recording.shows}"
    for claim, holds in FACTS[recording.file].items():
        assert claim in words, "the claim is checked, but not made"
        assert holds(run), claim
        words = words.replace(claim, "")
    assert not re.search(r"\d", words), "a number that nothing checks"


def test_every_example_says_what_it_teaches_in_a_few_words() -> None:
    taught = [one.teaches for one in bundled_runs.recordings()]
    assert len(set(taught)) == len(taught)
    assert all(0 < len(words.split()) <= 5 for words in taught)


def test_the_page_offers_every_setting_of_an_example(run: RunState) -> None:
    config = run.started.config
    for name, declared in SETTINGS.items():
        value = getattr(config, name)
        widget = declared.widget
        if name == "entropy_threshold":
            widget = THRESHOLD_SCALES[config.threshold_unit].widget
        if widget is None:
            continue
        held = widget.nearest(value)
        assert (widget.read(held) if isinstance(widget, Lines) else held) == value, name
        if isinstance(widget, Slider):
            steps = (value - widget.low) / widget.step
            assert steps == pytest.approx(round(steps)), name


def test_sharing_holds_no_more_in_most_steps_and_with_most_paths(run: RunState) -> None:
    assert caches_ratio(run, run.peak_step) >= 1.0
    more = sum(caches_ratio(run, step) < 1.0 for step in range(len(run.steps)))
    assert more <= 0.25 * len(run.steps)


def test_the_first_example_shows_the_idea_within_ten_seconds() -> None:
    run = fold(bundled_runs.events_of(bundled_runs.recordings()[0]))
    assert 24 <= len(run.steps) <= 10 * STEPS_PER_SECOND
    assert 6 <= len(run.leaves()) <= 10
    assert run.started.is_chat
    assert fork_steps(run)[0] == 0, "the first word decides something"
    assert all(not path.limited_steps and len(path.weights) == 1 for path in run.paths)
    for leaf in run.leaves():
        shown = math.prod(run.paths[path].share for path in run.lineage(leaf.id))
        assert leaf.weight == pytest.approx(shown), "the shares multiply to the weights"
    assert min(ratios_from(run, 1)) >= 3, "sharing pays at every step"


def test_the_peak_step_is_the_last_one_with_the_most_live_paths(run: RunState) -> None:
    live = [len(step.kv.paths) for step in run.steps if step.kv is not None]
    assert live[run.peak_step] == max(live)
    assert max(live[run.peak_step + 1 :], default=0) < max(live)


def test_the_entropies_of_a_run_have_each_fork_once(run: RunState) -> None:
    assert len(run.entropies()) == len(tokens(run)) - sum(
        len(path.children) - 1 for path in forks(run)
    )
    above = sum(entropy >= run.started.threshold_nats for entropy in run.entropies())
    assert above == len(forks(run)) + len(unforked(run))


def test_the_first_run_says_how_likely_its_answers_are() -> None:
    """scripts/record_runs.py labels it."""
    run = fold(bundled_runs.events_of(bundled_runs.recordings()[0]))
    found = labelled(run, run.labels)
    assert str(found["the dog"]) == "15.3%, certainly between 3.8% and 42.4%"
    assert str(found["Anna"]) == "65.8%, certainly between 57.5% and 96.1%"
