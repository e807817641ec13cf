"""The folder that a batch writes: a run file per finished run, and a table of all samples.

A run file appears as a whole when its run has finished, so the folder says what is left to do.
Until then the run is in `NAME.part.eab`, which stays if the process is killed.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from eab import record
from eab.cli.batch_lines import BatchLine
from eab.config import SETTINGS
from eab.errors import RecordError
from eab.events import Event, ModelCard
from eab.formatting import listed
from eab.record.growing_file import is_part
from eab.record.whole_file import make_folder, write_table
from eab.run import RunState, fold

TABLE: Final = "samples.parquet"
_EVERY: Final = 1.0  # seconds from one writing of a run that goes on to the next


class BatchFolder:
    """The run files and the table of a batch."""

    def __init__(self, path: Path) -> None:
        """Make the folder; RecordError if that fails, or nothing can be written into it."""
        self.path = path
        self._growing: dict[str, record.RunFile] = {}
        make_folder(path)

    def run_file(self, line: BatchLine) -> Path:
        """Where the run of a line is saved."""
        return self.path / f"{line.id}{record.SUFFIX}"

    def note(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Write what is new of a run that goes on."""
        if line.id not in self._growing:
            self._growing[line.id] = record.RunFile(self.run_file(line), _EVERY)
        self._growing[line.id].add_new(events)

    def save(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Save a finished run; RecordError if it cannot be written."""
        self.note(line, events)
        try:
            self._growing.pop(line.id).close()
        except RecordError:  # the disk was full, and may have room now
            record.save(events, self.run_file(line))

    def leave(self, line: BatchLine) -> None:
        """Leave what was written of a run that will not finish."""
        if line.id in self._growing:
            self._growing.pop(line.id).abandon()

    def close(self) -> None:
        """Leave what was written of all runs that go on."""
        for file in self._growing.values():
            file.abandon()
        self._growing.clear()

    def unfinished(
        self, lines: Iterable[BatchLine], model: ModelCard
    ) -> tuple[list[BatchLine], list[str]]:
        """The lines without a finished run, and what is wrong with the files of others."""
        left: list[BatchLine] = []
        problems: list[str] = []
        for line in lines:
            try:
                if not self._has_finished(line, model):
                    left.append(line)
            except RecordError as error:
                problems.append(f"line {line.number}: {error}")
        return left, problems

    def _has_finished(self, line: BatchLine, model: ModelCard) -> bool:
        file = self.run_file(line)
        if not file.exists():
            return False
        run = fold(record.load(file))
        other = _other_than_asked(run, line, model)
        if other:
            raise RecordError(
                f"{file} was made with another {listed(other)}. Choose another folder or id, or "
                "delete the file to make it again"
            )
        return run.ended is not None and run.ended.reason == "finished"

    def save_table(self) -> int:
        """Write the samples of all runs, in the order of their names; returns how many."""
        from eab.figures.tables import samples_of_runs_table

        table = samples_of_runs_table(self._runs())
        write_table(self.path / TABLE, table)
        return len(table)

    def _runs(self) -> Iterator[tuple[str, RunState]]:
        for file in sorted(self.path.glob(f"*{record.SUFFIX}")):
            if not is_part(file):
                yield file.stem, fold(record.load(file))


def _other_than_asked(run: RunState, line: BatchLine, model: ModelCard) -> list[str]:
    started, request = run.started, line.request
    own = (started.prompt, started.messages, started.continued, started.what_if)
    other = [] if own == (request.prompt, request.messages, 0, "") else ["prompt"]
    other += [
        name for name in SETTINGS if getattr(started.config, name) != getattr(request.config, name)
    ]
    return other if started.model == model else [*other, "model"]
