"""Loads a model by name: `embedded`, `smollm2`, a folder, a GGUF file, or a Hub id.

Only weights in safetensors and GGUF are loaded, and no code from the Hub is run.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging import Filter, LogRecord
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as progress

from eab.engine.models import pretrained
from eab.engine.models.gguf import checkpoint as gguf
from eab.engine.models.machine import CPU, free_memory, is_out_of_memory, total_memory
from eab.engine.models.own_cache import with_cache
from eab.engine.models.quantized.formats import refuse_if_unusable
from eab.engine.models.sources import EMBEDDED, Source, find_source, weights_sha256
from eab.engine.models.transformers_model import TransformersModel
from eab.engine.models.weights import StoredWeights, store_weights
from eab.errors import ModelError, check_one_of
from eab.formatting import human_bytes, quoted
from eab.weight_formats import AS_LOADED, AUTO, check_names

DTYPES: Final = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


_REPORTS: Final = "transformers.modeling_utils"  # the logger of transformers' load reports
# transformers changes classes and torch defaults while it loads. If two threads load at the same
# time, weights seem to be missing (transformers 5.23).
_ONE_AT_A_TIME: Final = threading.Lock()


def load_model(
    name: str = EMBEDDED,
    device: str = "auto",
    dtype: str = "auto",
    weights: str = AS_LOADED,
    layout: str = AUTO,
) -> TransformersModel:
    """Load a model and its tokenizer.

    Args:
        name: `embedded`, `embedded-draft`, a packaged model such as `smollm2`, a folder, a GGUF
            file, `ollama:` and a name, or a Hub id.
        device: A PyTorch device; `auto` chooses CUDA if available.
        dtype: A name in `DTYPES`; `auto` is float32 on the CPU, and bfloat16 on CUDA, or float16 if
            the GPU lacks bfloat16.
        weights: The format of the weights, a name in `eab.weight_formats.WEIGHT_FORMATS`. It
            changes the tokens.
        layout: The layout of as-loaded weights, a name in `eab.weight_formats.LAYOUTS`; `auto`
            chooses the fastest.

    Raises:
        ModelError: Says what is missing: the folder, the network, safetensors, or support for the
            model family or for the weights on this machine.
    """
    check_names(weights, layout)
    target = _device(device)
    if weights != AS_LOADED:
        refuse_if_unusable(weights, target)
    source = find_source(name)
    free = {place: free_memory(place) for place in (CPU, target)}
    try:
        return _loaded(name, source, _dtype(dtype, target), target, weights, layout)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        if not is_out_of_memory(error):
            raise ModelError(_explain(name, source, error)) from error
        full = target if isinstance(error, torch.OutOfMemoryError) else CPU
    # Raised outside the handler, because the handled error would keep the model in memory.
    raise ModelError(_does_not_fit(name, full, free[full]))


def _loaded(
    name: str, source: Source, dtype: torch.dtype, target: torch.device, weights: str, layout: str
) -> TransformersModel:
    """Load from `source`. No other frame holds a reference to the model."""
    holds_all = target if weights == AS_LOADED else CPU
    tokenizer, model = _load(name, source, dtype, holds_all)
    model, stored = _placed(model, target, weights, layout, mapped=source.kind != "gguf")
    return with_cache(model, tokenizer, name, stored, weights_sha256(source))


def load_tokenizer(name: str) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, Any]:
    """Load a model's tokenizer, configuration and generation config (None if it has none) without
    its weights. ModelError if something is missing.
    """
    source = find_source(name)
    try:
        describe = gguf.describe if source.kind == "gguf" else pretrained.describe
        return describe(name, source)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        raise ModelError(_explain(name, source, error)) from error


def _load(
    name: str, source: Source, dtype: torch.dtype, holds_all: torch.device
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer, and the model on the CPU. `holds_all` is the device that will hold all weights
    as loaded.
    """
    with _ONE_AT_A_TIME, _quiet_transformers():
        load = gguf.load if source.kind == "gguf" else pretrained.load
        return load(name, source, dtype, holds_all)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Hide transformers' progress bar for weights (downloads keep theirs) and its table of weights
    that do not fit. Where these matter, we raise an error of our own.
    """
    bars, log = progress.is_progress_bar_enabled(), progress.get_logger(_REPORTS)
    no_report = _NoReport()
    progress.disable_progress_bar()
    log.addFilter(no_report)
    try:
        yield
    finally:
        log.removeFilter(no_report)
        if bars:
            progress.enable_progress_bar()


class _NoReport(Filter):
    def filter(self, record: LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()


def _placed(
    model: Any, target: torch.device, weights: str, layout: str, mapped: bool
) -> tuple[Any, StoredWeights]:
    """Move the model to the device and store its weights. If `mapped`, they are pages of a file.

    Weights to be quantized are moved one by one, so that the device never holds all of them as
    loaded.
    """
    if weights != AS_LOADED:
        stored = store_weights(model, weights, layout, target)
        model = model.to(target)
        return _apart_from_file(model) if mapped else model, stored
    model = model.to(target)
    model = _apart_from_file(model) if mapped else model
    return model, store_weights(model, weights, layout)


def _apart_from_file(model: Any) -> Any:
    """Copy weights that are pages of the file. If the file were rewritten while the model is in
    use, they would change; if it were truncated, the process would be killed (SIGBUS).
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and not tensor.is_mkldnn:  # mkldnn tensors are copies
            tensor.data = tensor.data.clone()
    return model


def wrap_model(model: Any, tokenizer: Any, name: str | None = None) -> TransformersModel:
    """Wrap a model and a tokenizer that the caller has already loaded.

    The model's attention function is replaced by ours. The model stays usable elsewhere: without
    our cache, our function is transformers' own SDPA.

    Raises:
        ModelError: They are not a model and a tokenizer of transformers, or the engine cannot
            drive the model.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(tokenizer, PreTrainedTokenizerBase):
        given = f"a {type(model).__name__} and a {type(tokenizer).__name__}"
        raise ModelError(
            f"model and tokenizer are {given}; give a model and a tokenizer of transformers"
        )
    name = name or str(model.config.name_or_path or type(model).__name__)
    return with_cache(model, tokenizer, name)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ModelError(
            f"the device is {quoted(name)}; this machine cannot use it. Choose auto or cpu"
        ) from error
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        if device.type != "cuda":
            return torch.float32
        with torch.cuda.device(device):
            native = torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float16
    check_one_of(("auto", *DTYPES), name, "the dtype is", ModelError)
    return DTYPES[name]


def _does_not_fit(name: str, full: torch.device, free: int) -> str:
    """The error text for a device that had no room, with `free` bytes available before loading."""
    where = "this machine" if full == CPU else f"the device {full}"
    return (
        f"the model {quoted(name)} does not fit into the memory of {where}: {human_bytes(free)} of "
        f"{human_bytes(total_memory(full))} are free. Choose a smaller model or fewer bits "
        "(weights nf4)" + ("" if full == CPU else ", or device cpu")
    )


def _explain(name: str, source: Source, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if source.kind == "gguf":
        return f"the GGUF file {quoted(name)} cannot be loaded: {reason}"
    if Path(source.place).is_dir():
        return f"the model folder {name!r} cannot be loaded: {reason}"
    return pretrained.hub_failure(name, reason)
