"""Load a model by its name: `embedded`, `embedded-draft`, a local folder, or a Hub id.

Only weights in safetensors are loaded, and no code from the Hub is run.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as progress

from eab.assets import ASSETS
from eab.errors import ModelError
from eab.formatting import human_bytes, quoted
from eab.models.checkpoint import refuse_missing_weights, refuse_other_shards
from eab.models.huggingface import HuggingFaceModel
from eab.models.machine import CPU, free_memory, total_memory
from eab.models.model_size import read_config, refuse_absurd_size
from eab.models.out_of_memory import is_out_of_memory
from eab.models.quantized.formats import refuse_if_unusable
from eab.models.quantized_checkpoint import quantized_by
from eab.models.stored_weights import StoredWeights, store_weights
from eab.weight_formats import AS_LOADED, AUTO, check_names

EMBEDDED: Final = "embedded"
EMBEDDED_FOLDER: Final = ASSETS / "model"
# A smaller model with the same vocabulary, which proposes draft tokens
EMBEDDED_DRAFT: Final = "embedded-draft"
BUNDLED: Final = {EMBEDDED: EMBEDDED_FOLDER, EMBEDDED_DRAFT: EMBEDDED_FOLDER.parent / "draft"}
_NAMES: Final = f"'{EMBEDDED}', a folder, or an id on the Hugging Face Hub"
HUB_SECONDS: Final = 10  # to wait for the Hub
DTYPES: Final = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(
    name: str = EMBEDDED,
    device: str = "auto",
    dtype: str = "auto",
    weights: str = AS_LOADED,
    layout: str = AUTO,
) -> HuggingFaceModel:
    """Load a model and its tokenizer.

    Args:
        name: `embedded`, `embedded-draft`, a folder, or a Hub id.
        device: A device of PyTorch; `auto` chooses CUDA if there is one.
        dtype: A name in `DTYPES`; `auto` is float32 on the CPU, and bfloat16 on CUDA, or float16
            where the GPU has no bfloat16.
        weights: The format of the weights, a name in `eab.weight_formats.WEIGHT_FORMATS`. It
            changes the tokens.
        layout: The layout of weights that are as loaded, a name in `eab.weight_formats.LAYOUTS`;
            `auto` chooses the fastest.

    Raises:
        ModelError: Says what is missing: the folder, the network, safetensors, support for the
            model family, or for the weights on this machine.
    """
    check_names(weights, layout)
    target = _device(device)
    if weights != AS_LOADED:
        refuse_if_unusable(weights, target)
    source, local = _source(name)
    free = {place: free_memory(place) for place in (CPU, target)}
    try:
        if not local:
            _check_hub(source)
        return _loaded(name, source, local, _dtype(dtype, target), target, weights, layout)
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        if not is_out_of_memory(error):
            raise ModelError(_explain(name, Path(source).is_dir(), error)) from error
        full = target if isinstance(error, torch.OutOfMemoryError) else CPU
    # Outside of the handler, whose error would keep the model in memory.
    raise ModelError(_does_not_fit(name, full, free[full]))


def _loaded(
    name: str,
    source: str,
    local: bool,
    dtype: torch.dtype,
    target: torch.device,
    weights: str,
    layout: str,
) -> HuggingFaceModel:
    """Load from `source`; see `load_model`. No frame but this one holds the model."""
    holds_all = target if weights == AS_LOADED else CPU
    tokenizer, model = _load(name, source, dtype, holds_all, local)
    model, stored = _placed(model, target, weights, layout)
    return HuggingFaceModel(model, tokenizer, name, stored)


def load_tokenizer(name: str) -> tuple[PreTrainedTokenizerBase, PreTrainedConfig, Any]:
    """Load what is known of a model without its weights.

    Args:
        name: `embedded`, a folder, or a Hub id.

    Returns:
        Its tokenizer, its configuration, and its generation config; None if it has none.

    Raises:
        ModelError: Says what is missing.
    """
    source, local = _source(name)
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    try:
        if not local:
            _check_hub(source)
        config = read_config(name, source, options)
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        with suppress(OSError):
            return tokenizer, config, GenerationConfig.from_pretrained(source, **options)
        return tokenizer, config, None
    except ModelError:
        raise
    except Exception as error:  # transformers raises anything for a damaged or hostile folder
        raise ModelError(_explain(name, Path(source).is_dir(), error)) from error


def _load(
    name: str, source: str, dtype: torch.dtype, holds_all: torch.device, local: bool
) -> tuple[Any, Any]:
    """The tokenizer, and the model on the CPU; `holds_all` is the device that will hold all of it
    as loaded.
    """
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    bars = progress.is_progress_bar_enabled()
    progress.disable_progress_bar()  # for the weights; downloads keep theirs
    try:
        refuse_other_shards(source)
        refuse_absurd_size(
            name, read_config(name, source, options), _folder(source), dtype, holds_all
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **options)
        options |= {"dtype": dtype, "use_safetensors": True, "output_loading_info": True}
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, **options)
        model, found = loaded
        refuse_missing_weights(source, found)
        return tokenizer, model
    finally:
        if bars:
            progress.enable_progress_bar()


def _placed(
    model: Any, target: torch.device, weights: str, layout: str
) -> tuple[Any, StoredWeights]:
    """Move the model to the device, and store its weights there.

    Weights that are quantized move one by one, so that the device never holds all of them as
    loaded. The libraries of quantized checkpoints place their tensors themselves.
    """
    if quantized_by(model):
        return model, store_weights(model, weights, layout)
    if weights != AS_LOADED:
        stored = store_weights(model, weights, layout, target)
        return _apart_from_file(model.to(target)), stored
    model = _apart_from_file(model.to(target))
    return model, store_weights(model, weights, layout)


def _apart_from_file(model: Any) -> Any:
    """Copy the weights that are pages of the file: if it was written again while the model is in
    use, they would change, and if it became shorter, the process would be killed (SIGBUS).
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and not tensor.is_mkldnn:  # those are made of copies
            tensor.data = tensor.data.clone()
    return model


def _folder(source: str) -> str | None:
    """Where the files of the model are; None if they are not on this machine."""
    if os.path.isdir(source):
        return source
    config = try_to_load_from_cache(source, "config.json")
    return os.path.dirname(config) if isinstance(config, str) else None


def _check_hub(source: str) -> None:
    """Ask the Hub once before the download, so that a wrong id or a missing network is reported at
    once, without retries.
    """
    try:
        HfApi().model_info(source, timeout=HUB_SECONDS)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hugging Face Hub has no model {source!r}, or it needs a login. Check the id, or "
            f"choose '{EMBEDDED}' or a local folder"
        ) from error
    except (HfHubHTTPError, OfflineModeIsEnabled) as error:
        raise ModelError(_explain(source, False, error)) from error
    except Exception as error:  # the network library can raise anything
        raise ModelError(
            f"the model {source!r} is not on this machine, and the Hugging Face Hub cannot be "
            f"reached. Check the network, or choose '{EMBEDDED}' or a local folder"
        ) from error


def wrap_model(model: Any, tokenizer: Any, name: str | None = None) -> HuggingFaceModel:
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
    return HuggingFaceModel(
        model, tokenizer, name or str(model.config.name_or_path or type(model).__name__)
    )


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
    if name not in DTYPES:
        raise ModelError(
            f"the dtype is {quoted(name)}; it must be one of: auto, {', '.join(DTYPES)}"
        )
    return DTYPES[name]


def _source(name: str) -> tuple[str, bool]:
    """What transformers should open, and whether it is on this machine."""
    if name in BUNDLED:
        if not BUNDLED[name].is_dir():
            raise ModelError(
                f"the model {name!r} is missing at {BUNDLED[name]}; "
                "install the project from a checkout"
            )
        return str(BUNDLED[name]), True
    if not name.strip():
        raise ModelError(f"no model is named; give {_NAMES}")
    folder = os.path.expanduser(name)  # these functions of os.path take any text without an error
    if os.path.isdir(folder):
        if not os.path.isfile(os.path.join(folder, "config.json")):
            raise ModelError(f"the folder {name!r} holds no model: its config.json is missing")
        return folder, True
    try:
        return name, _folder(name) is not None
    except HFValidationError as error:  # so it can only be meant as a folder
        raise ModelError(
            f"the model {quoted(name)} cannot be found: there is no such folder. Give {_NAMES}"
        ) from error


def _does_not_fit(name: str, full: torch.device, free: int) -> str:
    """What to do when this device had no room, with so many bytes free before."""
    where = "this machine" if full == CPU else f"the device {full}"
    return (
        f"the model {quoted(name)} does not fit into the memory of {where}: {human_bytes(free)} of "
        f"{human_bytes(total_memory(full))} are free. Choose a smaller model or fewer bits "
        "(weights nf4)" + ("" if full == CPU else ", or device cpu")
    )


def _explain(name: str, local: bool, error: Exception) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if local:
        return f"the model folder {name!r} cannot be loaded: {reason}"
    return (
        f"the model {name!r} cannot be loaded from the Hub: {reason.rstrip('.')}. Check the id and "
        f"the network, or choose '{EMBEDDED}' or a local folder"
    )
