"""What each picture of a run shows, in a sentence with its numbers."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from eab import token_text
from eab.analysis.answers import Answers
from eab.analysis.sweep import Agreement, Sweep
from eab.events import EndReason, KVUsage
from eab.formatting import counted, human_bytes
from eab.run import Run, Token
from eab.speculation.stats import speculation_stats

ENDINGS: Final[dict[EndReason, str]] = {
    "finished": "Done",
    "stopped": "Stopped",
    "unwatched": "Stopped (no open tab watched it)",
    "failed": "Ended",
}


def tree_sentence(run: Run) -> str:
    """What the tree shows."""
    return _tree_words(run, len(run.steps) - 1, _highest(_rising(run), math.inf))


def entropy_sentence(run: Run) -> str:
    """What the entropy trace shows."""
    return _entropy_words(run, _highest(_rising(run), math.inf))


def memory_sentence(run: Run) -> str:
    """What the KV bars show, at the step with the most rows in use."""
    return _memory_words(run, run.peak_kv(), "at the peak")


def sentences_at(run: Run, steps: Sequence[int]) -> list[dict[str, str]]:
    """What tree, entropy trace and KV bars (`memory`) show once each of these steps is done."""
    rising = _rising(run)
    return [
        {
            "tree": _tree_words(run, step, _highest(rising, step)),
            "entropy": _entropy_words(run, _highest(rising, step)),
            "memory": _memory_words(run, run.steps[step].kv, f"at step {step}"),
        }
        for step in steps
    ]


def _rising(run: Run) -> list[Token]:
    """The tokens, by step, of a higher entropy than all before them."""
    found: list[Token] = []
    for token in sorted(
        (token for path in run.paths for token in path.tokens), key=lambda token: token.step
    ):
        if not found or token.entropy > found[-1].entropy:
            found.append(token)
    return found


def _highest(rising: Sequence[Token], step: float) -> Token | None:
    known = bisect_right(rising, step, key=lambda token: token.step)
    return rising[known - 1] if known else None


def _tree_words(run: Run, step: int, highest: Token | None) -> str:
    if not run.steps:
        return "Nothing generated yet."
    forks = sum(path.status == "forked" and path.touched <= step for path in run.paths)
    if not forks:
        return _no_fork_words(
            run, highest, "so far" if step < len(run.steps) - 1 or not run.ended else ""
        )
    leaves = counted(sum(path.stands_at(step) for path in run.paths), "path")
    return f"{counted(forks, 'fork')} in {counted(step + 1, 'step')}: {leaves}.{_limit_words(run, step)}"


def _limit_words(run: Run, step: int) -> str:
    first = min((path.limited_steps[0] for path in run.paths if path.limited_steps), default=None)
    if first is None or first > step:
        return ""
    return (
        f" The limit of {counted(run.started.config.max_paths, 'path')} acts from step {first} on."
    )


def _no_fork_words(run: Run, highest: Token | None, so_far: str) -> str:
    if highest is None:
        return "No fork yet."
    threshold, config = run.started.threshold_nats, run.started.config
    if highest.entropy >= threshold:
        return (
            f"No fork, although the entropy reached {highest.entropy:.2f} nats (threshold {threshold:.2f}): the policy "
            f"({config.policy}), the limit of {counted(config.max_paths, 'path')} or the lowest weight that may fork "
            f"({config.min_fork_weight:.1%}) left no room."
        )
    if so_far:
        return f"No fork so far: the highest entropy was {highest.entropy:.2f} nats, the threshold is {threshold:.2f}."
    return (
        f"No fork: the highest entropy was {highest.entropy:.2f} nats, the threshold is {threshold:.2f}. Lower the "
        "threshold to see the tree branch."
    )


def _entropy_words(run: Run, best: Token | None) -> str:
    if best is None:
        return "No entropy measured yet."
    return (
        f"Highest entropy {best.entropy:.2f} nats, like {math.exp(best.entropy):.0f} equal options, at step "
        f"{best.step}; the threshold is {run.started.threshold_nats:.2f} nats."
    )


def _memory_words(run: Run, kv: KVUsage | None, when: str) -> str:
    used = kv.rows_shared + kv.rows_private if kv is not None else 0
    if kv is None:
        return "No KV cache yet."
    if not used:
        return f"No KV cache: each step reads the whole text of {counted(len(kv.paths), 'path')} again."
    row = run.started.model.row_bytes
    use = "uses" if len(kv.paths) == 1 else "use"
    return (
        f"{counted(len(kv.paths), 'path')} {use} {human_bytes(used * row)} of the {human_bytes(kv.bytes_held)} held "
        f"({source(run)}) {when}; a cache each would take {human_bytes(kv.rows_independent * row)} (computed), "
        f"{kv.rows_independent / used:.1f} times what is used."
    )


def cost_sentence(run: Run) -> str:
    """What the run cost, and how it ended."""
    seconds = run.seconds()
    time = "" if seconds is None else f" in {seconds:.1f} s"
    ending = _ending(run)
    message = token_text.visible(run.ended.message) if run.ended else ""
    tokens = run.tokens_through_model()
    words = f"{tokens} tokens through the model{time}."
    return f"{words}{guess_sentence(run)} {memory_sentence(run)}{traffic_sentence(run)}{ending}{message}"


def _ending(run: Run) -> str:
    if run.ended is None:
        return " Unfinished."
    if run.ended.stopped:
        return f" {ENDINGS[run.ended.reason]}."
    return " Failed: " if run.ended.reason == "failed" else ""


def guess_sentence(run: Run) -> str:
    """How often the drafter was right, and what that saved; empty if nobody guessed."""
    found = speculation_stats(run)
    if run.started.config.drafter == "none" or found.steps_per_pass is None:
        return ""
    return (
        f" Drafter {run.started.config.drafter}: {found.accepted} of {counted(found.draft_tokens, 'guess')} right; "
        f"{counted(found.steps, 'step')} in {counted(found.forward_passes, 'forward pass')}, "
        f"{found.steps_per_pass:.2f} each (measured)."
    )


def traffic_sentence(run: Run) -> str:
    """What the cache copied and held at its worst moment; empty for runs recorded before that was
    measured.
    """
    kv = run.last_kv()
    if kv is None or not kv.peak_bytes:
        return ""
    return (
        f" Cache {run.started.config.cache}: {human_bytes(kv.bytes_copied)} copied in "
        f"{counted(kv.allocations, 'allocation')}, {human_bytes(kv.peak_bytes)} at the worst moment ({source(run)})."
    )


def source(run: Run) -> str:
    """Where the bytes of a run come from."""
    return "computed" if run.is_what_if else "measured"


def sweep_sentence(sweep: Sweep) -> str:
    """Whether all variants say the same, and what became of those that did not finish."""
    agreements = sweep.agreements()
    parted = [one for one in agreements if one.first_difference is not None or not one.explained]
    words = [_parting(agreement) for agreement in parted]
    if agreements and not parted:
        words.append(f"The same tokens under {counted(len(agreements) + 1, sweep.kind)}.")
    ended = [(name, run.ended) for name, run in sweep.pairs if run.ended is not None]
    words += [
        f"{name} failed: {token_text.visible(end.message)}."
        for name, end in ended
        if end.reason == "failed"
    ]
    return " ".join(words) or "Nothing to compare yet."


def _parting(agreement: Agreement) -> str:
    same = f"up to there the entropies agree to {agreement.entropy_gap:.1g} nats"
    if agreement.explained:
        return f"{agreement.variant} takes another token at step {agreement.first_difference}, by rounding: {same}."
    gap = f"{agreement.entropy_gap:.2g} nats"
    return f"{agreement.variant} reads the text differently: its entropies differ by up to {gap}."


def answers_sentence(answers: Answers, policy: str) -> str:
    """What the answers come to, and how much of it is certain."""
    left_out = (
        f" {counted(len(answers.undecided), 'path')} had not come to an answer yet."
        if answers.undecided
        else ""
    )
    if not answers.ranked:
        return f"No answer yet.{left_out}"
    first, winner = answers.ranked[0], answers.winner
    share = "of the paths" if policy == "original" else "estimated"
    count = counted(len(answers.ranked), "answer")
    known = f"{count}. The heaviest, “{_quoted(first.text)}”, has {first.weight:.1%} ({share})"
    explored = (
        f"; what was seen holds {answers.explored:.1%} of all probability, so for certain it has at least "
        f"{first.low:.1%} and at most {first.high:.1%}."
    )
    certain = (
        f" No other answer can be more likely than “{_quoted(winner.text)}”."
        if winner is not None
        else ""
    )
    return f"{known}{explored}{certain} {_answer_entropy_sentence(answers)}{left_out}"


def _answer_entropy_sentence(answers: Answers) -> str:
    low, high = answers.entropy_bounds
    return (
        f"Entropy over the answers: {answers.entropy:.2f} nats, like {math.exp(answers.entropy):.1f} equal answers "
        f"(for certain from {low:.2f} to {high:.2f} nats, if all unseen answers count as one)."
    )


def weight_sentence(run: Run) -> str:
    """What the heaviest text weighs."""
    samples = run.samples()
    if not samples:
        return "No text yet."
    shown = _quoted(samples[0].text)
    if run.started.config.policy == "original":
        return f"Each of the {len(samples)} texts counts the same; the first is: “{shown}”"
    return f"The heaviest of {len(samples)} texts stands for {samples[0].weight:.1%} (estimated weight): “{shown}”"


def _quoted(text: str) -> str:
    text = token_text.visible(text).strip()
    return text if len(text) <= 60 else text[:59] + "…"
