"""Builds a `Generation` from a request: the only place where the parts of a run are assembled. What
is found out before: the KV memory that the run needs, and the entropies of a greedy probe of its
prompt, from which a rank threshold is taken.
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from eab import token_text
from eab.config import AUTO, BranchingConfig
from eab.engine.branching.filters import penalties
from eab.engine.branching.own import check_is_there, plain_name
from eab.engine.branching.policies import make_policy
from eab.engine.caches.base import KVCache
from eab.engine.caches.factory import make_cache
from eab.engine.caches.prefix_cache import Prefixes
from eab.engine.generation import Generation
from eab.engine.models.base import LanguageModel
from eab.engine.models.stopping import Stopped
from eab.engine.request import Request
from eab.engine.speculation.speculator import make_speculator
from eab.errors import ConfigError, PromptError
from eab.formatting import quoted
from eab.run.events import Event, Predicted, Probed, RunStarted, TokensAppended
from eab.run.events.chat import read_messages
from eab.run.threshold import probe_config
from eab.settings import MAX_TEXT


def build(
    model: LanguageModel,
    request: Request,
    threshold_nats: float,
    draft: LanguageModel | None = None,
    prefixes: Prefixes | None = None,
) -> Generation:
    """Build a run from its cache, policy and speculator. Only the drafter `model` uses `draft`.

    Raises:
        PromptError: The prompt is empty or too long, or a token is unknown or ends the text.
        ConfigError: The drafter is `model` and there is no draft model, the settings name a custom
            policy that is not given, or the logits processors cannot be applied.
        ModelError: The vocabulary of the draft model differs from the model's.
    """
    tokens, config = encode(model, request), request.config
    check_processors(model, request)
    policy = make_policy(config, threshold_nats, request.policy)
    cache = new_cache(model, config, prefixes)
    started = RunStarted(
        request.prompt or token_text.join(map(model.text, request.token_ids)),
        tokens,
        tuple(map(model.text, tokens)),
        model.card,
        config,
        threshold_nats,
        draft=draft.card if draft is not None and config.drafter == "model" else None,
        continued=len(request.continued),
        messages=request.messages,
        logits_processors=tuple(map(plain_name, request.logits_processors)),
        parse_special=request.parse_special,
        by_token_ids=bool(request.token_ids) and not request.prompt,
    )
    speculator = make_speculator(config, model, draft, policy, cache)
    processors = (*penalties(config), *request.logits_processors)
    reader = request.logits_reader
    return Generation(model, started, cache, policy, speculator, processors, reader)


def check_request(model: LanguageModel, request: Request) -> None:
    """Run the checks of `build` that may fail, before a run is queued."""
    check_processors(model, request)
    check_is_there(request.config, request.policy)
    encode(model, request)


def check_processors(model: LanguageModel, request: Request) -> None:
    """Raise ConfigError if the request has logits processors that cannot be applied."""
    if not request.logits_processors:
        return
    drafter = request.config.drafter
    if drafter != "none":
        raise ConfigError(
            f"logits processors are given, and drafter is {drafter!r}, whose draft tokens they "
            "would not see; leave out one of them"
        )
    if model.kv_shape.blocks is not None:
        raise ConfigError(
            f"logits processors are given, but {model.card.name} runs on a server, which names "
            "only its most likely tokens; load the model on this machine"
        )


def new_cache(
    model: LanguageModel, config: BranchingConfig, prefixes: Prefixes | None = None
) -> KVCache:
    """An empty KV cache for these settings. On CUDA, attention is padded, because only shapes that
    recur can be captured (see `eab.engine.models.cuda_graphs`).
    """
    return make_cache(
        config.cache,
        model.kv_shape,
        config.r,
        config.kv_limit_mib * 2**20,
        config.attention == "padded" or model.kv_pool is not None,
        config.top_k,
        prefixes,
        config.block_size,
        model.kv_pool,
    )


def encode(model: LanguageModel, request: Request) -> tuple[int, ...]:
    """The token ids that the run starts from: the prompt's, then `request.continued`.

    Raises:
        PromptError: The prompt or the messages are empty, not valid text, or too long for the
            model, or a token is unknown, or a continued token ends the text.
        ConfigError: There are messages, but chat is off.
    """
    _check_tokens(model, request.token_ids)
    _check_continued(model, request.continued)
    tokens = (*_encoded_prompt(model, request), *request.continued)
    if len(tokens) == len(request.continued):
        raise PromptError("the tokenizer returns no tokens for this prompt; write a few words")
    config, new_tokens = request.config, request.config.max_new_tokens
    if len(tokens) > model.context - new_tokens:
        raise PromptError(
            f"the prompt has {len(tokens):,} tokens and max_new_tokens is {new_tokens}, but "
            f"the context of {model.card.name} is {model.context:,} tokens. Shorten the prompt or "
            "lower max_new_tokens"
        )
    switch = model.kv_shape.rope_switch
    if not config.by_step and len(tokens) <= switch < len(tokens) + new_tokens:
        raise ConfigError(
            f"{model.card.name} reads texts of up to {switch} tokens in one way and longer ones in "
            "another, and under the policy best-first short and long texts share a pass; lower "
            f"max_new_tokens to {switch - len(tokens)}, or choose another policy"
        )
    return tokens


def _encoded_prompt(model: LanguageModel, request: Request) -> tuple[int, ...]:
    if request.token_ids:
        return request.token_ids
    if request.messages:
        _check_messages(request)
    else:
        _check_prompt(request.prompt)
    return model.encode(request.messages or request.prompt, request.config, request.parse_special)


def _check_prompt(prompt: str) -> None:
    if not isinstance(prompt, str):
        raise PromptError(f"the prompt is {quoted(prompt)}; give a text")
    if not prompt.strip():
        raise PromptError("the prompt is empty; write a few words for the model to continue")
    if len(prompt) > MAX_TEXT:
        raise PromptError(
            f"the prompt has {len(prompt):,} characters; at most {MAX_TEXT:,} are allowed. "
            "Shorten it"
        )
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the prompt is not valid text at character {error.start + 1}; type it again"
        ) from error


def _check_messages(request: Request) -> None:
    first = read_messages(request.messages)[0]
    if request.config.chat is False:
        raise ConfigError(
            "messages require the chat template of the model, but chat is off; turn it on"
        )
    if request.config.system and first.role == "system":
        raise PromptError(
            "system is set, and messages[0] is a system message; give only one of them"
        )


def _check_tokens(model: LanguageModel, tokens: tuple[int, ...]) -> None:
    known = range(model.card.vocab_size)
    unknown = [token for token in tokens if not isinstance(token, int) or token not in known]
    if unknown:
        raise PromptError(
            f"there is no token {quoted(unknown[0])}; {model.card.name} has 0 to {known[-1]}"
        )


def _check_continued(model: LanguageModel, continued: tuple[int, ...]) -> None:
    _check_tokens(model, continued)
    if any(token in model.stop_ids for token in continued):
        raise PromptError(
            "that token ends the text, so it cannot be continued. Choose another token"
        )


@dataclass(frozen=True, slots=True)
class KVNeed:
    """Bytes of KV memory that a run needs."""

    first: int  # at the start: for the prompt and one step, or all steps if the settings say so
    fixed: int  # of these, for caches whose rows are never freed, at their largest


def kv_need(model: LanguageModel, draft: LanguageModel | None, request: Request) -> KVNeed:
    """The bytes that a run needs, from its settings. Only a tree cache can be freed; any other
    cache, a model's own memory, and the cache of a draft model, counts at its largest from the
    start.
    """
    config, prompt = request.config, len(encode(model, request))
    limit, steps = config.kv_limit_mib * 2**20, config.max_new_tokens
    freed = config.cache == "tree" and model.kv_shape.own is None
    models = [model] * (not freed) + [draft] * (draft is not None and config.drafter == "model")
    fixed = sum(
        min(_kv_bytes(llm, config, prompt, steps), limit) for llm in models if llm is not None
    )
    at_once = config.r != AUTO and config.r >= steps
    first = _kv_bytes(model, config, prompt, steps if at_once else 1)
    return KVNeed(fixed + (min(first, limit) if freed else 0), fixed)


def _kv_bytes(model: LanguageModel, config: BranchingConfig, prompt: int, steps: int) -> int:
    """Bytes that a cache holds after this many steps of all paths."""
    shape = model.kv_shape
    has_rows = shape.own is None or bool(shape.own.shared_layers)
    shared = config.cache in ("tree", "paged", "concat-cow") and has_rows
    rows = prompt * (1 if shared else config.max_paths) + config.max_paths * steps
    held = rows * shape.row_bytes + config.max_paths * shape.state_bytes
    # A memory of its own is copied before it reads draft tokens.
    return 2 * held if shape.own is not None and config.drafter != "none" else held


_REMEMBERED: Final = 64  # probes per model

_Probes: TypeAlias = dict[Request, tuple[Probed, ...]]
PROBED: Final[WeakKeyDictionary[LanguageModel, _Probes]] = WeakKeyDictionary()


def probe(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None = None
) -> Generator[Generation, list[Event], list[float]]:
    """The entropies (nats) of a few greedy steps, computed once per model, prompt and settings.
    Logits processors, and a model that was given loaded, may change between two runs, so with them
    every run has its own probe.
    """
    greedy = replace(request, config=probe_config(request.config), policy=None, logits_reader=None)
    if greedy.logits_processors or getattr(model, "is_given", False):
        return [
            event.entropy for event in (yield from _continue_probe(model, greedy, events, prefixes))
        ]
    known = PROBED.setdefault(model, {})
    if greedy in known:
        events += known[greedy]
    else:
        known[greedy] = tuple((yield from _continue_probe(model, greedy, events, prefixes)))
        if len(known) > _REMEMBERED:
            del known[next(iter(known))]
    return [event.entropy for event in known[greedy]]


def _continue_probe(
    model: LanguageModel, request: Request, events: list[Event], prefixes: Prefixes | None
) -> Generator[Generation, list[Event], list[Probed]]:
    """Do the greedy run; meanwhile, the reader of `events` may empty the list."""
    probed: list[Probed] = []
    generation = build(model, request, threshold_nats=0.0, prefixes=prefixes)
    try:
        while generation.live:
            entropy = 0.0
            for event in (yield generation):
                if isinstance(event, Predicted):
                    entropy = event.predictions[0].entropy or 0.0
                elif isinstance(event, TokensAppended):
                    [token] = event.tokens
                    text = "" if token.special else token.text
                    probed.append(Probed(event.step, entropy, text))
                    events.append(probed[-1])
    except Stopped:
        generation.keep_texts()
        raise
    finally:
        generation.cache.let_go()
    return probed
