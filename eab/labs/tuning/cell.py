"""The result of one cell of a sweep: what one prompt gave under one setting with one seed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from eab.config import SETTINGS, BranchingConfig
from eab.errors import ConfigError, RecordError
from eab.formatting import quoted
from eab.record import SUFFIX
from eab.settings import Choice, Real, Text, Values, Whole

if TYPE_CHECKING:
    import pandas as pd

Made = Literal["run", "resimulated"]
_KEY: Final = re.compile("[0-9a-f]{24}")


@dataclass(frozen=True, slots=True)
class Cell:
    """One prompt under one setting with one seed. In a table, the settings are columns, too.

    Attributes:
        key: Identifies it: a hash of model, prompt and settings, with the seed.
        prompt_id: The prompt's id in its set.
        group: The kind of prompt; may be empty.
        prompt: The prompt.
        config: The settings, with the seed.
        made: `run` by the model, or `resimulated` from the run of another cell, exactly.
        seconds: Its part of the time of its passes, which it shares with other cells (measured; by
            tokens); None if it is resimulated.
        tokens: Tokens through the model, with the prompt and pruned paths.
        forks: Forks of the tree.
        paths: Live and finished paths at the end: the texts.
        kv_bytes: The most KV bytes alive at once.
        distinct_texts: Different texts.
        distinct_answers: Different answers.
        probability_seen: Probability (0 to 1) of all texts seen that give an answer.
        semantic_entropy: Weighted semantic entropy of the answers, in nats.
        semantic_entropy_error: Its standard error; None for a tree, see
            `eab.analysis.uncertainty.Uncertainty`.
        distribution_error: Root mean square difference between the estimated and the known
            probability of the known answers and of all others together; None if no distribution is
            known.
        correct: Weight of the right answers; None if none is known.
        brier: Brier score of the answers' weights, 0 (best) to 2, see
            `eab.labs.tuning.brier.brier_score`; None if no right answer is known.
        run_file: Name of the file with its run; None if there is none.
    """

    key: str
    prompt_id: str
    group: str
    prompt: str
    config: BranchingConfig
    made: Made
    seconds: float | None
    tokens: int
    forks: int
    paths: int
    kv_bytes: int
    distinct_texts: int
    distinct_answers: int
    probability_seen: float
    semantic_entropy: float
    semantic_entropy_error: float | None
    distribution_error: float | None
    correct: float | None
    brier: float | None
    run_file: str | None

    @property
    def seed(self) -> int:
        """The seed of its settings."""
        return self.config.seed

    def row(self) -> dict[str, Any]:
        """Its columns."""
        own: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            settings = {name: getattr(value, name, None) for name in SETTINGS}
            own |= settings if each.name == "config" else {each.name: value}
        return own


COLUMNS: Final = tuple(
    name for each in fields(Cell) for name in (SETTINGS if each.name == "config" else (each.name,))
)
_COUNT, _SHARE = Whole(0, 2**50), Real(0.0, 1.001)  # rounding may lift a sum slightly above 1
_NATS: Final = Real(-1e-3, 100.0)  # ... or an entropy slightly below 0
_VALUES: Final[dict[str, Values]] = {
    **dict.fromkeys(("prompt_id", "group", "prompt"), Text()),
    "made": Choice(get_args(Made)),
    "seconds": Real(0.0, 1e9),
    **dict.fromkeys(
        ("tokens", "forks", "paths", "kv_bytes", "distinct_texts", "distinct_answers"), _COUNT
    ),
    **dict.fromkeys(("probability_seen", "distribution_error", "correct"), _SHARE),
    **dict.fromkeys(("semantic_entropy", "semantic_entropy_error"), _NATS),
    "brier": Real(0.0, 2.001),
}
_MAY_LACK: Final = ("seconds", "semantic_entropy_error", "distribution_error", "correct", "brier")
# Columns that older sweeps do not have
_LATER: Final = {"brier": None, "chat_template_kwargs": "", "stop": ()}


def run_file_name(key: str) -> str:
    """The name of the run file of the cell with this key."""
    return f"{key}{SUFFIX}"


def cell_from_row(row: Mapping[str, Any]) -> Cell:
    """The cell with these columns. A value that older sweeps did not measure is None.

    Raises:
        RecordError: A column is missing, or has a value that is not allowed.
    """
    row = _LATER | dict(row)
    missing = [name for name in COLUMNS if name not in row]
    if missing:
        raise RecordError(f"the cell has no column {missing[0]!r}; it has {quoted([*row])}")
    # The name of its run file is taken for a file in the folder, and for nothing else.
    key, run_file = row["key"], row["run_file"]
    if not (
        isinstance(key, str) and _KEY.fullmatch(key) and run_file in (None, run_file_name(key))
    ):
        raise RecordError(
            f"the cell has key {quoted(key)} and run_file {quoted(run_file)}; that is not allowed"
        )
    try:
        for name, values in _VALUES.items():
            if row[name] is not None or name not in _MAY_LACK:
                values.check(name, row[name])
        config = BranchingConfig.from_settings({name: row[name] for name in SETTINGS})
    except ConfigError as error:
        raise RecordError(f"the cell has a value that is not allowed: {error}") from error
    own = {one.name: row[one.name] for one in fields(Cell) if one.name != "config"}
    return Cell(config=config, **own)


def cells_table(cells: Iterable[Cell]) -> "pd.DataFrame":
    """A row per cell; the columns are `COLUMNS`. A setting that is a word in some cells (r = auto),
    or several texts, is text in all.
    """
    import pandas as pd

    table = pd.DataFrame([cell.row() for cell in cells], columns=list(COLUMNS))
    for name in SETTINGS:
        if any(isinstance(value, str | tuple) for value in table[name]):
            table[name] = table[name].map(str)
    return table
