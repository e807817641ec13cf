"""What each fork of a finished run decides, and which texts give the same answer, for the board.

An answer is the first sentence of a text; texts are compared by the rule `exact`.
"""

from typing import Any

from eab import token_text
from eab.analysis.answers import group_answers
from eab.analysis.uncertainty import attribute_to_forks
from eab.figures.uncertainty import effect_words, forks_sentence
from eab.run import RunState


def deciding_forks(run: RunState) -> dict[str, Any] | None:
    """Which forks decide the answer; None during the run, and if there is no fork to judge.

    Returns:
        JSON values. `sentence` names the fork that decides most. `forks`: [path that forks, its
        share (0 to 1) of the semantic entropy, what it decides, in words that follow "The fork"].
        `answers`: [answer, paths] for each answer that several texts give.
    """
    if run.ended is None or run.started.config.policy == "independent":
        return None
    answers = group_answers(run, "sentence")
    forks = attribute_to_forks(run, answers)
    if not forks:
        return None
    total = sum(fork.contribution for fork in forks) or 1.0
    shared = [answer for answer in answers.ranked if len(answer.leaves) > 1]
    return {
        "sentence": forks_sentence(run, forks, "the first sentence"),
        "forks": [
            [fork.path, round(fork.contribution / total, 4), effect_words(fork, forks)]
            for fork in forks
        ],
        "answers": [[token_text.visible(answer.text), list(answer.leaves)] for answer in shared],
    }
