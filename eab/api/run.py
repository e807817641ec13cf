"""A run as a value: its events, its tree, and all that can be derived without the model."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import numpy as np

from eab.analysis.answer_rules import RULES, TEXT, GivenPart, SameAnswer, exact
from eab.analysis.answers import Answers, group_answers
from eab.analysis.label_rules import Rule, labelled, labelled_by, probability
from eab.analysis.labels import Label, Labels
from eab.analysis.uncertainty import Uncertainty, uncertainty
from eab.config import SETTINGS, AllocationStep
from eab.engine.branching.own import takes
from eab.errors import ApproximateWarning, ConfigError, RecordError, check_one_of
from eab.formatting import quoted
from eab.labs.tuning.measure import load_rule
from eab.run import RunFold, RunState, record
from eab.run.events import Event
from eab.settings import THRESHOLD_SCALES
from eab.text_values import as_plain_number, is_iterable

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor


AnyPart: TypeAlias = GivenPart | Callable[[str], str | None]


def checked_rule(same: Any) -> SameAnswer:
    """The rule; ConfigError if it is no function of three texts, or later returns no bool."""
    if same in RULES.values():
        return same  # type: ignore[no-any-return]
    if not callable(same) or not takes(same, 3):
        raise ConfigError(
            f"the rule of same answers is {quoted(same)}; give one of {', '.join(RULES)}, or a "
            "function of a question and two texts"
        )
    return _returning(bool | np.bool_, same, "True or False, such as score > 0.5")


def answers_by(run: RunState, part: Any, same: SameAnswer) -> Answers:
    """`group_answers` by what a function finds in the texts."""
    return group_answers(
        run, _returning(str | None, part, "a text, or None if there is no answer"), same
    )


def _returning(kind: Any, function: Callable[..., Any], allowed: str) -> Callable[..., Any]:
    def checked(*texts: str) -> Any:
        found = function(*texts)
        if not isinstance(found, kind):
            raise ConfigError(f"a function for answers returned {quoted(found)}; return {allowed}")
        return found

    return checked


TableName: TypeAlias = Literal["texts", "tokens", "steps"]
_SHOWN: Final = 5  # texts in a notebook


class Run(RunState):
    """A run, read from its events: prompt, tree, texts, measurements.

        run = Run.load("coin.eab")
        for sample in run.samples:
            print(f"{sample.weight:.0%} {sample.text}")
        run.what_if(threshold=1.2).save("fewer.eab")

    Any prefix of the events is also a run: one that was stopped there.

    Args:
        events: The events from RunStarted on, or from the probe before it, as
            `EntropyAdaptiveBranching.stream` yields them; or another run, which is copied, or the
            path of a run file.

    Attributes:
        logits: The model's logits that `EntropyAdaptiveBranching.run` was asked to keep, (V,) by
            path and step. They are not saved.

    Raises:
        RecordError: The events are not those of one run.
        MemoryLimitError: The run failed before it started.
    """

    logits: "Mapping[tuple[int, int], Tensor]"

    def __init__(self, events: "RunLike") -> None:
        if isinstance(events, str | Path):
            events = record.load(_path(events))
        if not isinstance(events, RunState) and not is_iterable(events):
            raise RecordError(
                f"the run is a {type(events).__name__}; give a Run, its events, or the path of a "
                "run file"
            )
        given, start = iter(events.events if isinstance(events, RunState) else events), RunFold()
        for event in given:
            start.apply(_checked(event))
            if start.run is not None:
                break
        begun = start.started_run()
        super().__init__(begun.started, begun.probe)
        self.logits = {}
        for event in given:
            self.apply(_checked(event))

    @classmethod
    def load(cls, path: Path | str) -> "Run":
        """Read a run file; RecordError says why it cannot be read."""
        return cls(_path(path))

    def save(self, path: Path | str) -> None:
        """Write a run file (`.eab`); RecordError if that fails."""
        record.save(self.events, _path(path))

    def what_if(self, threshold: float | None = None, *, r: AllocationStep | None = None) -> "Run":
        """The run at other settings, without the model (see `eab.engine.what_if`). Where the model
        might give another run, it is `is_approximate`, and an ApproximateWarning says why.

        Args:
            threshold: The new entropy threshold, in nats.
            r: The new growth step of the KV cache.

        Raises:
            ConfigError: A value is out of range, or the policy allows no other threshold.
        """
        from eab.engine.what_if.resimulate import resimulate  # it needs torch
        from eab.figures.run_comparison import exactness_sentence

        threshold, r = as_plain_number(threshold), as_plain_number(r)
        if threshold is not None:
            THRESHOLD_SCALES["nats"].values.check("threshold", threshold)
        if r is not None:
            SETTINGS["r"].values.check("r", r)
        found = resimulate(self.events, threshold, r)
        run = Run(found.events)
        if run.is_approximate:
            words = exactness_sentence(run, found.unknowns)
            warnings.warn(words, ApproximateWarning, stacklevel=2)
        return run

    def answers(self, part: AnyPart = TEXT, same: SameAnswer | str = exact) -> Answers:
        """The texts, grouped by their answer (see `eab.analysis.answers`).

        Args:
            part: The part of a text that is its answer: `text`, `sentence`, `after-thinking`, a
                pattern with one group, such as `re.compile("answer is (.)")`, or a function of the
                text that returns the answer, or None if there is none.
            same: `exact`, `spelling`, `content` or `nli:MODEL`, or a function of a question and two
                texts that says whether they are the same answer.

        Raises:
            ConfigError: There is no such part or rule, or a function returns something else.
            ModelError: The NLI model cannot be used.
        """
        rule = load_rule(same) if isinstance(same, str) else checked_rule(same)
        if callable(part):
            return answers_by(self, part, rule)
        return group_answers(self, part, rule)

    def labelled(
        self, rules: Mapping[str, Rule] | Callable[[str], str | None] | None = None
    ) -> Labels:
        """How likely each label is, with certain bounds (see `eab.analysis.labels`).

            run.labelled({"Paris": "Paris", "another city": re.compile("London|Rome")})
            run.labelled(lambda text: "short" if len(text) < 40 else None)["short"]

        Args:
            rules: For each label a text that such texts contain, a pattern, or a function that
                returns whether a text has it; later ones override. Or a function that returns the
                label of a text. None: the labels that the run itself has.

        Raises:
            ConfigError: A rule is none of these, or a function returns something else.
        """
        return labelled(self, self.labels) if rules is None else labelled_by([self], rules)

    def probability(self, of: Rule) -> Label:
        """How likely it is that a text has a property, with certain bounds.

            print(run.probability("Paris"))  # that it contains this text
            print(run.probability(lambda text: len(text.split()) < 10))

        Raises:
            ConfigError: `of` is not a text, a pattern, or a function that returns True or False.
        """
        return probability(self, of)

    def uncertainty(self, part: AnyPart = TEXT, same: SameAnswer | str = exact) -> Uncertainty:
        """Semantic entropy and other scores, in nats, over the `answers` with these arguments."""
        return uncertainty(self, self.answers(part, same))

    def to_pandas(self, rows: TableName = "texts") -> "DataFrame":
        """A table with a row for each of the `texts` (heaviest first), `tokens` or `steps`. Its
        columns are in docs/library.md; entropies and log-probabilities are in nats.

        Raises:
            ConfigError: There is no such table.
        """
        from eab.figures import tables

        check_one_of(get_args(TableName), rows, "the rows of the table are")
        if rows == "texts":
            return tables.samples_table(self)
        return tables.tokens_table(self) if rows == "tokens" else tables.steps_table(self)

    def to_html(self, live: bool = False) -> str:
        """A page that replays the run in any browser, without a server.

        Args:
            live: Add the story model, which runs there on a prompt: 10 MB more.
        """
        from eab.share.exports import to_html

        return to_html(self, live)

    def to_graphml(self) -> str:
        """The tree as GraphML, for networkx, Gephi and other programs."""
        from eab.share.exports import to_graphml

        return to_graphml(self).decode("utf-8")

    def _repr_html_(self) -> str:
        from eab.board.still import picture, tree_svg
        from eab.figures.captions import tree_sentence

        texts = "".join(
            f"<li>{sample.weight:.1%} {escape(sample.text)}</li>"
            for sample in self.samples[:_SHOWN]
        )
        more = len(self.samples) - _SHOWN
        rest = f"<p>and {more} more in <code>run.samples</code></p>" if more > 0 else ""
        shown = picture(tree_svg(self), tree_sentence(self)) if self.steps else ""
        own = self.started.model.memory_words if self.steps else ""
        memory = f"<p>{escape(own)}</p>" if own else ""
        return f"<p>{escape(repr(self))}</p>{memory}{shown}<ol>{texts}</ol>{rest}"


RunLike: TypeAlias = RunState | Iterable[Event] | Path | str


def as_run(given: RunLike) -> Run:
    """Convert a run, its events, or the path of its file to a Run.

    Raises:
        RecordError: `given` is none of these, or the file cannot be read.
    """
    return given if isinstance(given, Run) else Run(given)


def load(path: Path | str) -> Run:
    """Read a run file, like `Run.load`: `run = eab.load("coin.eab")`."""
    return Run.load(path)


def save(run: RunLike, path: Path | str) -> None:
    """Write a run or its events to a run file: `eab.save(run, "coin.eab")`.

    Raises:
        RecordError: The file cannot be written.
    """
    as_run(run).save(path)


def save_html(run: RunLike, path: Path | str, live: bool = False) -> None:
    """Write a page that replays the run in any browser: `eab.save_html(run, "coin.html")`.

    Args:
        live: Add the story model, which runs there on a prompt: 10 MB more.

    Raises:
        RecordError: The page cannot be written.
    """
    from eab.share.exports import save_html

    save_html(as_run(run), _path(path), live)


def _checked(event: Any) -> Event:
    if not isinstance(event, get_args(Event)):
        raise RecordError(
            f"an event of the run is a {type(event).__name__}; give the events of one run, a Run, "
            "or the path of a run file"
        )
    return event  # type: ignore[no-any-return]


def _path(given: Any) -> Path:
    if not isinstance(given, str | Path):
        raise RecordError(
            f"the path is a {type(given).__name__}; give the path of a run file as text or as a "
            "pathlib.Path"
        )
    if "\0" in str(given):
        raise RecordError(f"the path {quoted(str(given))} has a null character; leave it out")
    return Path(given)
