"""What a run is asked for, as one value. Imports no torch."""

from dataclasses import dataclass

from eab.config import BranchingConfig


@dataclass(frozen=True, slots=True)
class Request:
    """The prompt and the settings of one run.

    Attributes:
        prompt: The text to continue.
        config: The settings.
        continued: Token ids that follow the prompt's own ids, taken from another run (see
            `eab.run.Run.continuation`).
    """

    prompt: str
    config: BranchingConfig
    continued: tuple[int, ...] = ()
