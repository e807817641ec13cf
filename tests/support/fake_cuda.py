"""A fake CUDA device, for machines without one. Its tensors live in host memory, but claim to be
on `cuda:0` and refuse what CUDA refuses.

With it, tests on the CPU run the code that otherwise needs a GPU. An operation on tensors of both
devices is an error, a tensor of the device cannot become a NumPy array, and everything that makes
the host wait for the device is counted. It cannot test kernels, dtypes, speed, streams and CUDA
graphs (see tests/test_gpu.py for these).
"""

import ctypes
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# With an index, because PyTorch would ask the driver for the current device without one.
DEVICE: Final = torch.device("cuda", 0)
FREE_BYTES: Final = 6 * 2**30
TOTAL_BYTES: Final = 8 * 2**30
aten = torch.ops.aten
_CONVERSIONS: Final = {"aten::to", "aten::cpu"}  # decomposed into _to_copy, which names the device
_COPIES: Final = {aten.copy_.default, aten._to_copy.default}
_INDEXED: Final = {aten.index.Tensor} | {
    packet.default for packet in (aten.index_put, aten.index_put_, aten._index_put_impl_)
}
_READ_BY_HOST: Final = {
    packet.default
    for packet in (aten._local_scalar_dense, aten.item, aten.is_nonzero, aten.nonzero, aten.equal)
}
_CUDA, _META = 1, 14  # of c10::DeviceType
_GUARDS: Final = "_ZN3c104impl26device_guard_impl_registryE"


class OnDevice(Tensor):
    """A tensor on the fake device; `held` contains its values."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnDevice":
        # Views of a tensor from outside inference mode must not become inference tensors.
        with torch.inference_mode(False):
            layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
            made = torch.Tensor._make_wrapper_subclass(
                cls, held.shape, dtype=held.dtype, device=DEVICE, **layout
            )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # inside _FakeMode
        raise AssertionError(f"{func} after the fake device has gone")

    def tolist(self):
        """The values as a list; PyTorch's own method does not support subclasses."""
        return self.cpu().tolist()

    def numpy(self, *args, **kwargs):
        """Raise the error that a real GPU raises."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    __array__ = numpy

    def __repr__(self):
        return f"OnDevice({self.held!r})"


class _FakeMode(TorchDispatchMode):
    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func._schema.name in _CONVERSIONS:
            with self:
                return func.decompose(*args, **kwargs)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        _refuse_both_devices(func, args, given)
        goes_to = _device_of_result(func, args, kwargs, given)
        if reason := _why_the_host_waits(func, args, kwargs, given, goes_to):
            self._waits[reason] += 1
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        args, kwargs = tree_map(_held, (args, kwargs))
        result = func(*args, **kwargs)
        if goes_to != "cuda":
            return result
        if func is aten.scaled_dot_product_attention.default:
            # (batch, heads, tokens, size) in the memory layout of CUDA kernels
            result = result.transpose(1, 2).contiguous().transpose(1, 2)
        same = {id(leaf.held): leaf for leaf in given if isinstance(leaf, OnDevice)}
        return tree_map(lambda leaf: _on_device(leaf, same), result)


def _held(leaf: Any) -> Any:
    return leaf.held if isinstance(leaf, OnDevice) else leaf


def _on_device(leaf: Any, same: dict[int, OnDevice]) -> Any:
    """Wrap a result; an in-place operation returns the tensor that it was given."""
    if not isinstance(leaf, Tensor):
        return leaf
    return same[id(leaf)] if id(leaf) in same else OnDevice(leaf)


def _refuse_both_devices(func: Any, args: Any, given: list[Tensor]) -> None:
    """Raise an error for mixed devices; CUDA takes only 0-d tensors and indices from the host."""
    if func in _COPIES or not any(isinstance(one, OnDevice) for one in given):
        return
    compared = [args[0], *args[2:3]] if func in _INDEXED else given
    on_host = [one for one in compared if not isinstance(one, OnDevice) and one.dim()]
    if on_host:
        devices = ", ".join(f"{tuple(one.shape)} on {one.device}" for one in given)
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, not {devices}")


def _device_of_result(func: Any, args: Any, kwargs: Any, given: list[Tensor]) -> str:
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type
    if func is aten.copy_.default:
        return args[0].device.type
    return "cuda" if any(isinstance(one, OnDevice) for one in given) else "cpu"


def _why_the_host_waits(
    func: Any, args: Any, kwargs: Any, given: list[Tensor], goes_to: str
) -> str | None:
    devices = {one.device.type for one in given} | {goes_to}
    if func in _COPIES and len(devices) == 2:
        free = kwargs.get("non_blocking") or (func is aten.copy_.default and len(args) > 2)
        return None if free else f"copied to {goes_to}"
    if "cuda" not in devices:
        return None
    if func in _READ_BY_HOST:
        return f"read by {func}"
    indices = [one for one in args[1] if one is not None] if func in _INDEXED else []
    if any(one.dtype in (torch.bool, torch.uint8) for one in indices):
        return "index of booleans"
    return None if all(isinstance(one, OnDevice) for one in indices) else "index on the host"


def _instead(waits: Counter[str]) -> dict[str, Any]:
    """Replacements for functions and classes of torch.cuda, by name."""
    finished = [0.0]  # when the host last waited for all work

    class Stream:
        def synchronize(self) -> None:
            waits["synchronize"] += 1
            finished[0] = time.perf_counter()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.time = 0.0

        def record(self, stream: object) -> None:
            self.time = time.perf_counter()

        def synchronize(self) -> None:
            waits["an event"] += self.time > finished[0]

        def elapsed_time(self, later: "Event") -> float:
            return 1000 * (later.time - self.time)

    return {
        "is_available": lambda: True,
        "_lazy_init": lambda: None,
        "current_stream": lambda device=None: Stream(),
        "Event": Event,
        "get_device_name": lambda device=None: "Fake GPU",
        "is_bf16_supported": lambda including_emulation=True: True,
        "device": lambda device: nullcontext(),
        "mem_get_info": lambda device=None: (FREE_BYTES, TOTAL_BYTES),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
    }


@contextmanager
def fake_cuda() -> Iterator[Counter[str]]:
    """A fake CUDA device while the context lasts.

    Yields:
        How often the host waited for the device, by reason.
    """
    waits: Counter[str] = Counter()
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, _GUARDS)
    before = guards[_CUDA]
    replaced = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        for name, fake in _instead(waits).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, fake))
        capture = "eab.engine.models.huggingface.new_graph_capture"
        stack.enter_context(mock.patch(capture, return_value=None))  # it has no CUDA graphs
        guards[_CUDA] = guards[_META]  # which guards nothing
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            with _FakeMode(waits):
                yield waits
        finally:
            torch._C._set_only_lift_cpu_tensors(False)
            torch.__future__.set_overwrite_module_params_on_conversion(replaced)
            guards[_CUDA] = before
