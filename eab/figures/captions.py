"""Captions: a sentence with numbers for each picture of a run, and what names it elsewhere."""

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

from eab import token_text
from eab.analysis.answers import Answers
from eab.config import BY_PROBABILITY, OWN
from eab.engine.speculation.stats import speculation_stats
from eab.figures.kv_memory import memory_sentence, words_by_step
from eab.formatting import apart, counted, excerpt, shortened
from eab.run import Path, RunState, Sample, Token, least_probability
from eab.run.events import EndReason, LimitActed, RunStarted, TextScored

ENDINGS: Final[dict[EndReason, str]] = {
    "finished": "Done",
    "decided": "Decided",
    "explored": "Enough explored",
    "budget": "Token budget spent",
    "stopped": "Stopped",
    "unwatched": "Stopped (its tab was closed)",
    "failed": "Failed",
}
_LEAST_EXPLORED: Final = 0.1  # all bounds are 1 - explored apart
_MAX_QUOTE: Final = 60  # characters
_WORDS: Final = 40  # characters of the prompt in a file name
_PROMPT: Final = 120  # characters of the prompt under a picture
_NO_LETTERS: Final = re.compile(r"[\W_]+")


class _TreeSize(NamedTuple):
    """The sorted steps at which the number of forks or leaves changes. With them, the size of the
    tree at any step is found without looking at all paths.
    """

    begun: list[int]
    forked: list[int]
    ended: list[int]  # paths that stop being leaves, because they fork or are pruned
    limited: float  # the first step at which the path limit dropped branches; inf if there is none
    equal: str  # what the limit has done to the texts of an ended run, if their weights are equal

    @classmethod
    def of(cls, run: RunState) -> Self:
        limited = _limited_steps(run)
        return cls(
            sorted(path.born for path in run.paths if path.status != "given" and not path.is_rest),
            sorted(path.touched for path in run.forks()),
            sorted(
                max(path.born, path.touched)
                for path in [*run.forks(), *(p for p in run.paths if p.status == "pruned")]
            ),
            limited[0] if limited else math.inf,
            _equal_words(run) if limited and run.ended else "",
        )

    def forks(self, step: int) -> int:
        return bisect_right(self.forked, step)

    def leaves(self, step: int) -> int:
        """Paths that are live or finished after this step."""
        return bisect_right(self.begun, step) - bisect_right(self.ended, step)


def tree_sentence(run: RunState) -> str:
    """The caption of the tree."""
    return _tree_words(run, len(run.steps) - 1, _highest(run, math.inf), _TreeSize.of(run))


def entropy_sentence(run: RunState) -> str:
    """The caption of the entropy trace."""
    return _entropy_words(run, _highest(run, math.inf))


def sentences_at(run: RunState, steps: Sequence[int]) -> list[dict[str, str]]:
    """The captions of tree, entropy trace and KV bars (`memory`) after each of these steps."""
    size = _TreeSize.of(run)
    return [
        {
            "tree": _tree_words(run, step, _highest(run, step), size),
            "entropy": _entropy_words(run, _highest(run, step)),
            "memory": memory,
        }
        for step, memory in zip(steps, words_by_step(run, steps), strict=True)
    ]


def _highest(run: RunState, step: float) -> Token | None:
    """The token with the highest entropy up to this step."""
    known = bisect_right(run.peaks, step, key=lambda token: token.step)
    return run.peaks[known - 1] if known else None


def _tree_words(run: RunState, step: int, highest: Token | None, size: _TreeSize) -> str:
    if not run.steps:
        return "Nothing generated yet."
    forks = size.forks(step)
    ended = step >= len(run.steps) - 1 and run.ended is not None
    if not forks:
        return _no_fork_words(run, highest, ended)
    leaves = (ended and size.equal) or counted(size.leaves(step), "path")
    words = f"{counted(forks, 'fork')} in {counted(step + 1, 'step')}: {leaves}."
    if run.started.imported:
        words = f"{counted(run.started.imported, 'imported sample')}: {words}"
    if size.limited > step:
        return words
    limit = run.started.config.max_paths
    return f"{words} From step {size.limited} on, the path limit ({limit}) drops branches."


def limit_sentence(run: RunState) -> str:
    """Why a text's weight is not the product of its shares; empty if it is."""
    if run.started.config.policy == "stochastic-beam":
        return (
            "With the policy stochastic-beam, the weight of a text depends on its probability "
            "and on the chance of drawing it, so it is not the product of its shares."
        )
    if run.started.config.policy in BY_PROBABILITY:
        return (
            f"With the policy {run.started.config.policy}, the weight of a text is its "
            "probability. That of dropped texts is not passed on, so the weights sum to less than "
            "100%."
        )
    if run.started.config.policy == "original":
        return (
            "With the policy original, all texts have equal weight, so a weight is not the "
            "product of its shares."
        )
    steps = _limited_steps(run)
    if not steps:
        return ""
    first, last = steps[0], steps[-1]
    when = f"at step {first}" if first == last else f"from step {first} to step {last}"
    return (
        f"The path limit ({run.started.config.max_paths}) dropped branches {when}; their weight "
        "passed to the paths that were kept, so the weight of a text is not the product of its "
        "shares."
    )


def _limited_steps(run: RunState) -> list[int]:
    """The first and last steps at which the path limit dropped branches of each path, in order."""
    steps = [path.touched for path in run.paths if path.status == "pruned"]
    for path in run.paths:
        steps += (*path.limited_steps[:1], *path.limited_steps[-1:])
    return sorted(steps)


def _equal_words(run: RunState) -> str:
    """How many texts of equal weight were drawn, from how many; empty if their weights differ."""
    weights = [leaf.weight for leaf in run.leaves()]
    if len(weights) < 2 or not math.isclose(min(weights), max(weights), rel_tol=1e-6):
        return ""
    seen = len(weights) + sum(path.status == "pruned" for path in run.paths)
    for event in run.events:
        if isinstance(event, LimitActed):
            seen += sum(len(dropped.tokens) for dropped in event.dropped)
    return f"{len(weights)} texts of equal weight, drawn from {seen} seen"


def _no_fork_words(run: RunState, highest: Token | None, complete: bool) -> str:
    if run.started.imported:
        return f"{counted(run.started.imported, 'imported sample')}: no fork."
    if highest is None:
        return "No fork yet."
    threshold, config = run.started.threshold_nats, run.started.config
    if config.policy.startswith(OWN):
        return f"No fork: the policy {config.policy} made none."
    if config.policy not in ("fair", "original"):
        return f"No fork: the policy {config.policy} does not use the threshold."
    entropy = highest.entropy or 0.0
    reached = f"{entropy:.2f} nats"
    if entropy >= threshold and run.is_what_if:
        return (
            f"No fork was recorded, but the entropy reached {reached} (threshold {threshold:.2f}). "
            "Run the model to see these forks."
        )
    if entropy >= threshold:
        return (
            f"No fork, although the entropy reached {reached} (threshold {threshold:.2f}): the "
            f"policy ({config.policy}), the path limit ({config.max_paths}) or the "
            f"minimum weight to fork ({config.min_fork_weight:.1%}) prevented it."
        )
    below, above = apart(entropy, threshold)
    compared = f"the highest entropy was {below} nats, the threshold is {above}."
    if not complete:
        return f"No fork so far: {compared}"
    return f"No fork: {compared} Lower the threshold to get forks."


def _entropy_words(run: RunState, highest: Token | None) -> str:
    if run.started.imported:
        return _imported_entropy_words(highest)
    if highest is None:
        return "No entropy measured yet."
    entropy = highest.entropy or 0.0
    return (
        f"Highest entropy {entropy:.2f} nats, {_options(entropy)}, at "
        f"step {highest.step}; the threshold is {run.started.threshold_nats:.2f} nats."
        f"{_whole_words(highest)}"
    )


def _imported_entropy_words(highest: Token | None) -> str:
    if highest is None:
        return "No entropy is known: the samples do not name the most likely tokens."
    entropy, at = highest.entropy or 0.0, f"at step {highest.step}"
    if highest.whole is None:
        return f"Highest entropy {entropy:.2f} nats, {_options(entropy)}, {at}."
    return (
        f"Highest entropy {at}: certainly between {highest.whole.low:.2f} and "
        f"{highest.whole.high:.2f} nats, because the samples name only the most likely tokens."
    )


def _whole_words(highest: Token) -> str:
    if highest.whole is None:
        return ""
    low, high = highest.whole
    return (
        " The server returned only its most likely tokens. Over all tokens, before temperature, "
        f"this entropy is certain to be between {low:.2f} and {high:.2f} nats (the band)."
    )


def _options(entropy: float) -> str:
    number = math.exp(entropy)
    if number < 1.05:
        return "like a single option"
    return f"like {number:.{1 if number < 10 else 0}f} equally likely options"


def cost_sentence(run: RunState) -> str:
    """What the run cost, and how it ended."""
    if run.started.imported:
        return "The samples were imported, and what they cost is not known."
    seconds = run.seconds
    time = "" if seconds is None else f" in {seconds:.1f} s"
    message = token_text.visible(run.ended.message) if run.ended else ""
    return (
        f"{counted(run.tokens_through_model, 'token')} through the model{time}{_reuse(run)}"
        f"{_drafted(run)}. {memory_sentence(run)}{_ending(run)}{message}"
    )


def _reuse(run: RunState) -> str:
    if not run.tokens_reused:
        return ""
    return f"; {counted(run.tokens_reused, 'token')} of the prompt were in the prefix cache"


def _ending(run: RunState) -> str:
    if run.ended is None:
        return " Unfinished."
    if run.ended.stopped or run.ended.early:
        return f" {ENDINGS[run.ended.reason]}."
    return " Failed: " if run.ended.reason == "failed" else ""


def _drafted(run: RunState) -> str:
    stats = speculation_stats(run)
    if run.started.config.drafter == "none" or stats.steps_per_pass is None:
        return ""
    return (
        f"; {stats.accepted} of {counted(stats.draft_tokens, 'draft token')} accepted, "
        f"{stats.steps_per_pass:.2f} steps per forward pass (measured)"
    )


def has_bounds(answers: Answers) -> bool:
    """Whether the certain bounds of an answer's probability say anything."""
    return answers.explored >= _LEAST_EXPLORED


def answers_sentence(answers: Answers) -> str:
    """How many answers there are, and the probability and bounds of the most likely one seen."""
    undecided = (
        f" ({counted(len(answers.undecided), 'path')} without an answer yet, with "
        f"{answers.unfinished:.1%} of the weight)"
        if answers.undecided
        else ""
    )
    if not answers.ranked:
        return f"No answer yet{undecided}."
    first, winner = answers.ranked[0], answers.winner
    is_counted = {answer.log_prob for answer in answers.decided.values()} == {None}
    bounds = (
        ", its share of the samples, whose probabilities are not known."
        if is_counted
        else f"; its true probability is certainly between {first.low:.1%} and {first.high:.1%}."
        if has_bounds(answers)
        else f". The texts seen have {answers.explored:.1%} of all probability, too little for "
        "certain bounds of an answer; fewer new tokens, a pattern for the answer or more texts "
        "would help."
    )
    certain = (
        f" No other answer can be more likely than “{_quoted(winner.name)}”."
        if winner is not None
        else ""
    )
    return (
        f"{counted(len(answers.ranked), 'answer')}{undecided}: the most likely one seen, "
        f"“{_quoted(first.name)}”, has {first.estimate:.1%} (estimated){bounds}{certain}"
    )


def weight_sentence(run: RunState) -> str:
    """The text with the most weight, and its weight."""
    samples = run.samples
    if not samples:
        return "No text yet."
    first = run.started.kept_text + samples[0].text
    return f"{_weight_words(samples, run.started.config.policy)}: “{_quoted(first)}”"


def _weight_words(samples: Sequence[Sample], policy: str) -> str:
    texts, most = counted(len(samples), "text"), f"{samples[0].weight:.1%}"
    if len(samples) == 1:
        return "The only text"
    if policy == "beam":
        return f"First of {texts} by score (probability {samples[0].weight:.1%})"
    if policy == "original":
        return f"The {texts} have equal weight ({most} each); the first is"
    if policy == "best-first":
        return f"Most likely of {texts} (probability {most})"
    if math.isclose(samples[0].weight, samples[-1].weight):
        return f"The {texts} have equal weight (about {most} each, estimated); the first is"
    return f"Most likely of {texts} (about {most}, estimated weight)"


def _quoted(text: str) -> str:
    return shortened(token_text.visible(text).strip(), _MAX_QUOTE)


def file_stem(started: RunStarted) -> str:
    """The start of the prompt and six digits for the run: its prompt, model and settings."""
    words = _NO_LETTERS.sub("-", started.prompt.lower()[:_WORDS]).strip("-")
    return f"{words or 'run'}-{hashlib.sha256(repr(started).encode()).hexdigest()[:6]}"


def origin_words(started: RunStarted) -> str:
    """The prompt, the model and the settings that shape a tree, in one line."""
    config = started.config
    threshold = started.threshold_nats
    prompt = f"“{excerpt(token_text.visible(started.prompt), _PROMPT)}”"
    if started.imported:
        count = counted(started.imported, "imported sample")
        return f"{prompt} {started.model.full_name}, {count}."
    settings = [
        started.model.full_name,
        f"policy {config.policy}",
        *([f"threshold {threshold:.2f} nats"] if threshold is not None else []),
        f"branch factor {config.branch_factor}",
        f"at most {counted(config.max_paths, 'path')}",
        f"{counted(config.max_new_tokens, 'new token')}",
        f"temperature {config.temperature:g}",
        f"seed {config.seed}",
    ]
    return f"{prompt} {', '.join(settings)}."


_MAX_TEXT = 60  # characters
_LEFT_OUT = 1e-300  # a token with less is left out by the filters


def given_sentences(run: RunState) -> Iterator[tuple[int, str]]:
    """Of each such text the id of its path, and the sentence."""
    events = [each for each in run.events if isinstance(each, TextScored) and each.model_log_probs]
    given = [path for path in run.paths if path.status == "given" and not path.is_rest]
    for path, event in zip(given, events, strict=True):
        yield path.id, _sentence(run, path, event)


def _sentence(run: RunState, path: Path, event: TextScored) -> str:
    first, *others = event.tokens
    before = list(run.tokens(path.parent))[: path.born]
    shown = [token.shown for token in before] + [token.text for token in event.tokens]
    text = shortened(token_text.visible_join(shown).strip(), _MAX_TEXT)
    where = f"“{text}” leaves the tree at step {path.born + 1}"
    word = f"“{token_text.visible(first.text)}”"
    had, own = math.exp(first.log_prob or 0.0), math.exp(event.model_log_probs[0])
    if had < _LEFT_OUT:
        return (
            f"{where}: {word} has {_percent(own)} there, and top-p or another filter leaves it out."
        )
    whole = (
        had
        * least_probability(before)
        * math.prod(math.exp(each.log_prob or 0.0) for each in others)
    )
    if whole < _LEFT_OUT:
        return f"{where}, where {word} had {_percent(had)}; a later token is never chosen."
    return f"{where}, where {word} had {_percent(had)}; the whole text has {_percent(whole)}."


def _percent(share: float) -> str:
    return "less than 0.1%" if share < 0.0005 else f"{share:.1%}"
