"""All errors that this project raises, as one tree.

    EabError
      ConfigError       a setting is out of range, or two contradict each other (also a ValueError)
      PromptError       the prompt is empty, too long, or has ended (also a ValueError)
      ModelError        the model cannot be found, loaded, or driven by this engine
        ServerError       the server that runs the model does not give a good answer
      MemoryLimitError  the KV cache would outgrow the limit of the run
      LessonError       a lesson file cannot be used (also a ValueError)
      AssignmentError   a student's file cannot be checked (also a ValueError)
      ClassError        a class does not exist, is over or full, or only its lecturer may do this
      RunsError         runs cannot be made or finished, or runs that must agree do not
        BatchError      some prompts of a batch have no run; it has the others
      QuestionsError    questions with known answers cannot be used
      RecordError       a run file cannot be read or written
      StoreError        the saved runs cannot be read or written
      LinkError         a link names something that does not exist
      LimitError        this server does not allow the request
      ExtraError        packages of an extra are not installed (also an ImportError)
        NotebookError     packages for notebooks are not installed

Each message says what was given, what is allowed and what to do. `ApproximateWarning` warns of a
result that the model might contradict, `UnfinishedWarning` of a run that ended early.
"""

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

from eab.formatting import counted, quoted

MAX_MESSAGE: Final = 2000  # characters


class EabError(Exception):
    """Base of all errors that this project raises on purpose.

    A message may quote a file or a link. Lone surrogates are escaped so that it can always be
    displayed, and a very long message is cut off.
    """

    def __init__(self, message: str = "") -> None:
        shown = message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"
        super().__init__(shown.encode("utf-8", "backslashreplace").decode("utf-8"))


class ConfigError(EabError, ValueError):
    """A setting is out of range, or two contradict each other."""


class PromptError(EabError, ValueError):
    """The prompt is empty or does not fit the model."""


class PromptWarning(UserWarning):
    """The prompt ends in a space, or is a chat that a template has already rendered. The run goes
    on, but may not be what was meant.
    """


class ModelError(EabError):
    """The model cannot be found, loaded, or driven by this engine."""


class ServerError(ModelError):
    """The server does not give a good answer; what was generated so far stays valid.

    Args:
        retry_after: Seconds after which the same request may succeed; None if it will not.
    """

    def __init__(self, message: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class MemoryLimitError(EabError):
    """The KV cache would outgrow the run's limit; what was generated so far stays valid."""


class UnfinishedWarning(UserWarning):
    """A run ended early, at its memory limit or because its server failed; its tree is kept."""


class ApproximateWarning(UserWarning):
    """A run was computed without the model, which might give another one."""


class RunsError(EabError):
    """Runs cannot be made or finished, or runs that must give the same tokens do not."""


class BatchError(RunsError):
    """Some prompts of a batch have no run.

    Args:
        runs: A run for each prompt, in their order; None where it failed.
        errors: Why, by the index of the prompt.
    """

    def __init__(self, runs: Sequence[Any], errors: Mapping[int, Exception]) -> None:
        self.runs, self.errors = runs, errors
        first, error = next(iter(errors.items()))
        super().__init__(
            f"{len(errors)} of {counted(len(runs), 'prompt')} have no run, the first at index "
            f"{first}: {error}. The other runs are in `runs` of this error"
        )


class QuestionsError(EabError, ValueError):
    """Questions with known answers break a rule, or cannot be evaluated."""


class LessonError(EabError, ValueError):
    """A lesson file breaks a rule; the message says which, and where."""


class AssignmentError(EabError, ValueError):
    """A student's file cannot be checked."""


class ClassError(EabError):
    """A class does not exist, is over or full, or only its lecturer may do this."""


class RecordError(EabError):
    """A run file cannot be read or written."""


class StoreError(EabError):
    """The saved runs cannot be read or written, or there is no room for more."""


class LinkError(EabError):
    """A link names settings or a run that do not exist."""


class LimitError(EabError):
    """This server does not allow the request, or does not allow it now."""


class ExtraError(EabError, ImportError):
    """Packages that only one part of this project needs are not installed."""


class NotebookError(ExtraError):
    """The packages that notebooks need are not installed."""


NO_MODEL: Final = (
    "the run was imported: others made its samples, and no model on this machine is known to give "
    "the same probabilities. Run a model with the same prompt instead"
)


def need(extra: str, *packages: str, error: type[ExtraError] = ExtraError, more: str = "") -> None:
    """Raise an error that says what to install if a package of the extra is missing."""
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise error(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed: "
            f'pip install "eab-explorer[{extra}]"{more}'
        )


def check_one_of(
    names: Collection[str],
    value: object,
    subject: str,
    error: type[EabError] = ConfigError,
    more: str = "",
) -> None:
    """Refuse a value that is not one of these names; `subject` begins the message, such as "the
    dtype is", and `more` ends it.
    """
    if not isinstance(value, str) or value not in names:
        raise error(f"{subject} {quoted(value)}; it must be one of: {', '.join(names)}{more}")
