"""What tells a model that was given loaded from another, and from itself before it was changed."""

import hashlib
import os
from typing import Final

import torch
from torch import nn

# Attributes of PEFT's layers that decide what they compute
_OF_ADAPTERS: Final = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")


def fingerprint(model: nn.Module, exact: bool = True) -> str:
    """A hash of the weights and of the adapters in use. With hooks or replaced methods, which may
    do anything, it is another one each time.

    Args:
        exact: Whether to read all weights. Otherwise weights count as changed if they were replaced
            or changed in place, other than through `.data`.
    """
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        adapters = [vars(module).get(attribute) for attribute in _OF_ADAPTERS]
        digest.update(repr((name, type(module).__qualname__, adapters)).encode())
        if is_watched(module):
            digest.update(os.urandom(16))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        version = 0 if exact or tensor.is_inference() else tensor._version
        place = 0 if exact else tensor.data_ptr()
        digest.update(repr((name, tensor.shape, tensor.dtype, place, version)).encode())
        if exact:
            digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_watched(module: nn.Module) -> bool:
    """Whether code of others runs in the module."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    ours = all(str(getattr(hook, "__module__", "")).startswith("eab.") for hook in hooks)
    return not ours or ("forward" in vars(module) and not hasattr(module, "_hf_hook"))
