"""The settings that a call takes, for type checkers, completion and help in an editor."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from eab.config import (
    AllocationStep,
    AttentionName,
    CacheName,
    ChatTemplate,
    DrafterName,
    EarlyStopping,
    PolicyName,
    StopWhen,
)
from eab.engine.branching.own import GivenPolicy
from eab.engine.request import GivenProcessors
from eab.settings import ThresholdUnit


class OtherSettings(TypedDict, total=False):
    """Settings of a run by name; those that are left out keep their values."""

    preset: Literal["focused", "balanced", "wide"]
    """Settings that together shape the tree; others override them."""
    logits_processor: GivenProcessors
    """A LogitsProcessor of transformers, or several, for every path before its entropy is measured.
    Allowed: none with a drafter or a model on a server. Default: none.
    """
    parse_special: bool
    """Whether the text of a control token in the prompt or a message, such as <|im_end|>, becomes
    that token. Otherwise it is ordinary text. Default: False.
    """
    # The rest is written by scripts/write_docs.py from eab/config.py.
    threshold_unit: ThresholdUnit
    """nats: the entropy itself. normalised: its share of the largest possible entropy. rank: the
    entropy of this rank along a greedy continuation of the prompt. Allowed: nats, normalised,
    rank. Default: rank.
    """
    min_fork_weight: float
    """A path forks only if its weight is at least this, so that unlikely texts do not fill the
    tree (policy fair). The weights stay unbiased; 0 lets every path fork. Allowed: 0 to 1.
    Default: 0.3.
    """
    branch_min_p: float
    """At a fork, a token becomes a child by itself only if it has at least this share of the
    largest probability; all other tokens share one child, drawn from them (policy fair).
    Allowed: 0 to 1. Default: 0.15.
    """
    policy: PolicyName | GivenPolicy
    """fair: weights are unbiased and sum to 1. original: the published rule; all texts have equal
    weight. arithmetic: max_paths evenly spaced codes over the tree; unbiased. stochastic-beam:
    max_paths different texts, drawn without replacement. beam: beam search with max_paths
    beams. best-first: the most probable texts, whatever their length, first. greedy: the most
    likely token, no forks. independent: ordinary sampling of max_paths texts, for comparison.
    Only fair and original use the threshold. Allowed: fair, original, arithmetic, stochastic-
    beam, beam, best-first, greedy, independent. Default: fair.
    """
    length_penalty: float
    """Beam search ranks finished texts by ln p / tokens to this power (policy beam): above 0, long
    texts rank higher, below 0, short ones; 0 ranks by probability. Allowed: -10 to 10. Default:
    1.
    """
    early_stopping: EarlyStopping | bool
    """When beam search ends, once max_paths texts are finished (policy beam). on: at once. off: if
    no live path scores higher at its present length. never: if none could at its best length.
    Allowed: off, on, never. Default: off.
    """
    paths_per_pass: int
    """How many paths, the most probable ones, each forward pass continues (policy best-first). 1
    computes no token too many; more share the time of a pass. Allowed: 1 to 256. Default: 4.
    """
    temperature: float
    """Divides the logits before sampling. Values below 1 favour likely tokens, values above 1
    unlikely ones. The entropy is measured afterwards. Allowed: 0.01 to 10. Default: 0.5.
    """
    top_k: int | None
    """Sample only from the k most likely tokens; 0 keeps all tokens. The entropy is measured
    afterwards. Allowed: 0 to 1000000. Default: 0.
    """
    top_p: float | None
    """Sample only from the most likely tokens that together have this probability; 1 keeps all
    tokens. The entropy is measured afterwards. Allowed: 0.01 to 1. Default: 0.9.
    """
    min_p: float | None
    """Sample only from tokens with at least this share of the largest probability, after top-p; 0
    keeps all tokens. The entropy is measured afterwards. Allowed: 0 to 1. Default: 0.
    """
    repetition_penalty: float | None
    """For tokens that occur in the prompt or the text, divides logits above 0 and multiplies
    logits below 0, before the temperature: above 1, they become less likely; 1 is off. Allowed:
    0.01 to 10. Default: 1.
    """
    max_new_tokens: int
    """Maximum number of tokens generated per path. Allowed: 1 to 4096. Default: 48."""
    stop_when: StopWhen
    """ended: when all texts have ended. decided: as soon as no other first sentence, seen or not,
    can be more likely than the one that leads; this is certain. explored: as soon as the texts
    whose first sentence is complete have the probability explored_goal together, so that the
    bounds of every answer are at most the rest apart. Allowed: ended, decided, explored.
    Default: ended.
    """
    label_words: str | Sequence[str] | None
    """Texts that contain one of these words have it as their label, the last one if there are
    several; how likely each label is, is shown with certain bounds. Allowed: at most 6 texts of
    at most 40 characters. Default: empty.
    """
    explored_goal: float
    """The probability of the texts seen at which a run ends (End of the run: explored). Allowed: 0
    to 1. Default: 0.9.
    """
    token_budget: int
    """The run ends when it has predicted this many tokens, over all paths and those that were
    dropped; 0 sets no limit. Allowed: 0 to 1048576. Default: 0.
    """
    stop: str | Sequence[str] | None
    """A path ends when its text contains one of these strings. The text is cut before the string.
    Allowed: at most 4 texts of at most 100 characters. Default: empty.
    """
    seed: int
    """Seed of the random numbers. The same seed gives the same run. Allowed: 0 to
    9223372036854775807. Default: 0.
    """
    chat: ChatTemplate
    """Send the prompt as a user message in the model's chat template. auto: if the model has one.
    Allowed: on, off, auto. Default: auto.
    """
    system: str
    """System message before the prompt. Requires a chat template. Allowed: text of at most 200,000
    characters. Default: empty.
    """
    chat_template_kwargs: str | Mapping[str, Any]
    """A JSON object with variables for the chat template, such as {"enable_thinking": false}.
    Allowed: a JSON object of at most 1,000 characters. Default: empty.
    """
    cache: CacheName
    """tree: shared rows, written once. paged: shared blocks of rows, as in vLLM. concat-cow:
    shared segments, concatenated at every step. deep-copy: a full copy for each path.
    recompute: no KV cache. Allowed: tree, paged, concat-cow, deep-copy, recompute. Default:
    tree.
    """
    r: AllocationStep
    """When the tree cache is full, it grows by the rows of r decode steps. 1 copies the cache at
    every step; max_new_tokens or more allocates all rows at the start; auto adds a quarter of
    the rows in use, at least those of 4 steps. Allowed: 1 to 4096, or auto. Default: auto.
    """
    attention: AttentionName
    """Which rows of the tree cache attention reads. sliced: the used rows. padded: all rows, with
    the spare rows masked, which fixed shapes require. Allowed: sliced, padded. Default: sliced.
    """
    block_size: int
    """Rows of a block of the paged cache. Small blocks leave less memory unused at the ends of
    texts; large ones need fewer allocations. Allowed: 1 to 4096. Default: 16.
    """
    kv_limit_mib: int
    """The run ends before its KV cache exceeds this many MiB. Its tree is kept. Allowed: 1 to
    1000000. Default: 4096.
    """
    drafter: DrafterName
    """Proposes draft tokens that one forward pass verifies. none: no drafts. model: a small draft
    model. prompt-lookup: the tokens that followed the same tokens earlier in this text.
    sibling-lookup: the same, also in the other paths. run-ahead: the most likely tokens of the
    server, several per request. Allowed: none, model, prompt-lookup, sibling-lookup, run-ahead.
    Default: none.
    """
    draft_length: int
    """Maximum number of draft tokens per path and forward pass; 0 adapts it to save the most time
    in this run. Allowed: 0 to 16. Default: 0.
    """


class Settings(OtherSettings, total=False):
    """All settings of a run by name."""

    entropy_threshold: float
    """A path forks where the entropy of the next-token distribution reaches this value. A lower
    threshold gives more forks. In nats, unless threshold_unit says otherwise. Default: 3.
    """
    branch_factor: int
    """Children per fork, at most (k): the k - 1 most likely tokens and one drawn from the rest.
    Allowed: 2 to 16. Default: 4.
    """
    max_paths: int
    """Maximum number of paths. fair and stochastic-beam: live and finished paths together.
    original: live paths only, as published. arithmetic: the number of codes. beam: the number
    of beams, and of finished texts that are kept. best-first: live and finished paths together.
    independent: the number of texts. Allowed: 1 to 256. Default: 12.
    """
