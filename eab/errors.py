"""Everything that can go wrong, as one tree.

    EabError
      ConfigError      a parameter is out of its range, or two of them contradict each other (also a
      ValueError) PromptError      the prompt is empty, too long for the model, or has ended (also a
      ValueError) ModelError       the model cannot be found, loaded, or driven by this engine
      MemoryLimitError the KV cache would outgrow the limit of the run
      SweepError  caches that must agree do not, or one of them could not finish
      RecordError      a run file cannot be read or written
      StoreError       the saved runs cannot be read or written
      LinkError        a link asks for what there is not
      NotebookError    what notebooks need is not installed (also an ImportError)

Each message says what was given, what is allowed and what to do.
"""


class EabError(Exception):
    """Base of all errors that this project raises on purpose."""


class ConfigError(EabError, ValueError):
    """A parameter is outside its range."""


class PromptError(EabError, ValueError):
    """The prompt is empty or does not fit the model."""


class ModelError(EabError):
    """The model cannot be found, loaded, or driven by this engine."""


class MemoryLimitError(EabError):
    """The KV cache would outgrow the run's limit; what was generated so far stays valid."""


class SweepError(EabError):
    """Caches that must give the same tokens do not, or one of them could not finish."""


class RecordError(EabError):
    """A run file cannot be read or written."""


class StoreError(EabError):
    """The saved runs cannot be read or written, or there is no room."""


class LinkError(EabError):
    """A link asks for settings, or for a run, that there are not."""


class NotebookError(EabError, ImportError):
    """What notebooks need is not installed."""
