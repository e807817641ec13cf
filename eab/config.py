"""The settings of one run: a frozen value that checks itself, in words."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, get_args

from eab.errors import ConfigError

PolicyName = Literal["fair", "original", "greedy", "independent"]
ThresholdUnit = Literal["nats", "normalised", "quantile"]
CacheName = Literal["tree", "concat-cow", "deep-copy", "recompute"]
AttentionName = Literal["sliced", "padded"]
AllocationStep = int | Literal["auto"]
DrafterName = Literal["none", "model", "prompt-lookup", "sibling-lookup"]

MAX_PATHS: Final = 256
MAX_NEW_TOKENS: Final = 4096
AUTO: Final = "auto"
MAX_SEED: Final = 2**63 - 1
MAX_DRAFT: Final = 16


@dataclass(frozen=True, slots=True)
class BranchingConfig:
    """What decides a run; the same config, model and prompt give the same tree.

    entropy_threshold: fork where the entropy of the processed next-token distribution reaches it.
    threshold_unit: `nats`; `normalised` (a share of ln V, as in the first EAB implementation); or
        `quantile` (the q-quantile of the entropies of one greedy probe of the prompt, at least 0.3
        nats).
    branch_factor: children per fork (k): the k-1 most likely tokens and one drawn from the rest.
    min_fork_weight: `fair`: only a path that weighs at least this forks, so that unlikely texts do
        not fill the tree. 0 lets every path fork; only then is the tree at a higher threshold a
        sub-tree of the one at a lower.
    max_paths: `fair`: bounds live and finished paths together; `original`: live paths alone, as
        published;
        `independent`: so many texts.
    temperature, top_k, top_p: the processed distribution; top_k = 0 and top_p = 1 switch the
    filters off.
    r: the tree cache's tensors grow by r decode steps' worth of rows (BMC, arXiv 2511.12031). r = 1
        reallocates at every step, r >= max_new_tokens allocates all rows up front; "auto" chooses
        at every growth (see eab.caches.growth). It changes time and bytes, never the tokens.
    attention: of the tree cache. `sliced` ends at the last row in use, so spare rows cost memory
        only; `padded` visits them under the mask, as passes of fixed shapes must, and r is then a
        balance of copies and spare rows; on CUDA such passes are captured as graphs where they keep
        coming (see eab.models.cuda_graphs; no GPU has run it yet).
    cache: how K and V are kept: `tree` (shared rows, written once), `concat-cow` (shared segments,
        concatenated at every step), `deep-copy` (a copy for each path), `recompute` (not at all).
        Like r, it never changes the tokens.
    kv_limit_mib: the run ends, keeping its tree, before its KV tensors hold more than this. A draft
        model's own cache has the same limit; where it is reached, guessing ends. A path that
        guesses took ahead of the others holds rows of steps to come, so with a drafter a run may
        come to the limit earlier.
    drafter: who guesses the next tokens, so that one forward pass can confirm several (speculative
        decoding): nobody, a small draft `model`, `prompt-lookup` (what followed the same words
        earlier in this text), or `sibling-lookup` (also in the other paths). It changes time, never
        the tokens.
    draft_length: tokens guessed per path and pass, at most; 0 chooses by what the run itself shows
    to pay.
    chat: render the prompt as a user message with the model's chat template; `system` goes before
    it.
    """

    entropy_threshold: float = 0.65
    threshold_unit: ThresholdUnit = "nats"
    branch_factor: int = 3
    min_fork_weight: float = 0.0
    max_paths: int = 20
    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    r: AllocationStep = 16
    seed: int = 0
    policy: PolicyName = "fair"
    chat: bool = False
    system: str = ""
    kv_limit_mib: int = 4096
    cache: CacheName = "tree"
    attention: AttentionName = "sliced"
    drafter: DrafterName = "none"
    draft_length: int = 0

    def __post_init__(self) -> None:
        self._check_threshold()
        _whole("branch_factor", self.branch_factor, 2, 16)
        _real("min_fork_weight", self.min_fork_weight, 0.0, 1.0, hint="0 lets every path fork")
        _whole("max_paths", self.max_paths, 1, MAX_PATHS)
        _whole("max_new_tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _real("temperature", self.temperature, 0.01, 10.0)
        _whole("top_k", self.top_k, 0, 1_000_000, hint="0 keeps all tokens")
        _real("top_p", self.top_p, 0.01, 1.0, hint="1 keeps all tokens")
        if self.r != AUTO:
            _whole("r", self.r, 1, MAX_NEW_TOKENS, hint=f"1 reallocates at every step; or {AUTO!r}")
        _whole("seed", self.seed, 0, MAX_SEED)
        _whole("kv_limit_mib", self.kv_limit_mib, 1, 1_000_000)
        _one_of("policy", self.policy, get_args(PolicyName))
        _one_of("cache", self.cache, get_args(CacheName))
        _one_of("attention", self.attention, get_args(AttentionName))
        _one_of("drafter", self.drafter, get_args(DrafterName))
        _whole("draft_length", self.draft_length, 0, MAX_DRAFT, hint="0 chooses by itself")
        if not isinstance(self.chat, bool):
            raise ConfigError(f"chat is {self.chat!r}; it must be true or false")
        if not isinstance(self.system, str):
            raise ConfigError(f"system is {self.system!r}; it must be text")
        if self.system and not self.chat:
            raise ConfigError("system is set but chat is off; a system message needs chat=True")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "BranchingConfig":
        """The config with these settings; ConfigError also for a name that no setting has."""
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                raise ConfigError(
                    f"there is no setting {name!r}; the settings are: {', '.join(known)}"
                )
        return cls(**settings)

    def _check_threshold(self) -> None:
        _one_of("threshold_unit", self.threshold_unit, get_args(ThresholdUnit))
        if self.threshold_unit == "nats":
            _real(
                "entropy_threshold",
                self.entropy_threshold,
                0.0,
                20.0,
                hint="nats; 0.65 is about two live options",
            )
        else:
            _real(
                "entropy_threshold",
                self.entropy_threshold,
                0.0,
                1.0,
                hint=f"as threshold_unit={self.threshold_unit}",
            )


def _whole(name: str, value: object, low: int, high: int, hint: str = "") -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(
            f"{name} is {value!r}; it must be a whole number from {low} to {high}{_bracket(hint)}"
        )


def _real(name: str, value: object, low: float, high: float, hint: str = "") -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[operator, arg-type]
        raise ConfigError(
            f"{name} is {value!r}; it must be a number from {low:g} to {high:g}{_bracket(hint)}"
        )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}; it must be one of: {', '.join(allowed)}")


def _bracket(hint: str) -> str:
    return f" ({hint})" if hint else ""
