"""The output folder of a batch: a run file per finished run, and a table of all samples.

A complete run file appears when its run has finished, so the folder shows which runs are left.
Until then the run is in `NAME.part.eab`, which remains if the process is killed.
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
_EVERY: Final = 1.0  # seconds between two writes of an unfinished run


class BatchFolder:
    """The run files and the table of a batch."""

    def __init__(self, path: Path) -> None:
        """Make the folder; RecordError if that fails or it is not writable."""
        self.path = path
        self._growing: dict[str, record.RunFile] = {}
        make_folder(path)

    def run_file(self, line: BatchLine) -> Path:
        """The file to which the run of a line is saved."""
        return self.path / f"{line.id}{record.SUFFIX}"

    def note(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Write the new events of a run that continues."""
        if line.id not in self._growing:
            self._growing[line.id] = record.RunFile(self.run_file(line), _EVERY)
        self._growing[line.id].add_new(events)

    def save(self, line: BatchLine, events: Sequence[Event]) -> None:
        """Save a finished run; RecordError if it cannot be written."""
        self.note(line, events)
        try:
            self._growing.pop(line.id).close()
        except RecordError:  # the disk was full but may have room now
            record.save(events, self.run_file(line))

    def leave(self, line: BatchLine) -> None:
        """Keep the partial file of a run that will not finish."""
        if line.id in self._growing:
            self._growing.pop(line.id).abandon()

    def close(self) -> None:
        """Keep the partial files of all runs that have not finished."""
        for file in self._growing.values():
            file.abandon()
        self._growing.clear()

    def unfinished(
        self, lines: Iterable[BatchLine], model: ModelCard
    ) -> tuple[list[BatchLine], list[str]]:
        """The lines without a finished run, and the problems with the files of other lines."""
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
        """Write the samples of all runs, in order of file name, and return how many there are."""
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
