"""The settings of one run, each declared once (see eab.settings)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from eab.errors import ConfigError
from eab.settings import (
    THRESHOLD_SCALES,
    Buttons,
    Choice,
    Lines,
    Menu,
    NumberBox,
    Real,
    Setting,
    Slider,
    Steps,
    Switch,
    Text,
    TextArea,
    TextLine,
    ThresholdUnit,
    Whole,
    naming_the_nearest,
    setting,
    settings_of,
)
from eab.text_values import JsonObject, Texts, as_object_text, as_plain_number, as_texts

PolicyName = Literal[
    "fair",
    "original",
    "arithmetic",
    "stochastic-beam",
    "beam",
    "best-first",
    "greedy",
    "independent",
]
CacheName = Literal["tree", "paged", "concat-cow", "deep-copy", "recompute"]
AttentionName = Literal["sliced", "padded"]
AllocationStep = int | Literal["auto"]
EarlyStopping = Literal["off", "on", "never"]
StopWhen = Literal["ended", "decided", "explored"]
ChatTemplate = bool | Literal["auto"]
DrafterName = Literal["none", "model", "prompt-lookup", "sibling-lookup", "run-ahead"]

MAX_PATHS: Final = 256
PREFIX_CACHE_MIB: Final = 512  # of prefixes that later runs can reuse
MAX_NEW_TOKENS: Final = 4096
AUTO: Final = "auto"
OWN: Final = "own:"  # prefix of the name of a policy that a program passed in
MAX_SEED: Final = 2**63 - 1
MAX_DRAFT: Final = 16
MAX_STOP_STRINGS: Final = 4
MAX_LABEL_WORDS: Final = 6
MAX_LABEL: Final = 40  # characters
# Variables that the engine and transformers pass to a chat template
_OF_THE_ENGINE: Final = (
    *("messages", "conversation*", "tools", "documents", "chat_template", "add_generation_prompt"),
    *("continue_final_message", "tokeniz*", "sanitize_control_tokens", "padding", "truncation"),
    *("max_length", "return_*"),
)
R_STEPS: Final = (AUTO, 1, 2, 4, 8, 16, 32, 64, 128, 256)  # the choices on the page

BRANCHING: Final = "Branching"
SAMPLING: Final = "Sampling"
CHAT: Final = "Chat"
KV_CACHE: Final = "KV cache"
SPECULATIVE: Final = "Speculative decoding"


@naming_the_nearest
@dataclass(frozen=True, slots=True)
class BranchingConfig:
    """The settings of a run. The same config, model and prompt give the same tree.

        BranchingConfig(entropy_threshold=0.65, max_new_tokens=12)

    docs/settings.md lists all settings; it is generated from the declarations below.

    Raises:
        ConfigError: A value is not allowed; the message says what is.
    """

    entropy_threshold: float = setting(
        0.65,
        THRESHOLD_SCALES["nats"].values,
        BRANCHING,
        "Entropy threshold",
        "A path forks where the entropy of the next-token distribution reaches this value. A "
        "lower threshold gives more forks.",
        more="The entropy is that of the distribution that is drawn from, after temperature and "
        "filters. 0.65 nats is about two equally likely tokens.",
        option="threshold",
        advanced=False,
    )
    threshold_unit: ThresholdUnit = setting(
        "nats",
        Choice(get_args(ThresholdUnit)),
        BRANCHING,
        "Threshold unit",
        "nats: the entropy itself. normalised: its share of the largest possible entropy. "
        "rank: the entropy of this rank along a greedy continuation of the prompt.",
        more="The largest possible entropy is ln V for a vocabulary of V tokens; the first "
        "implementation of EAB used this unit. With rank, 3 is the third-highest entropy of one "
        "greedy probe of the prompt; the threshold is at least 0.3 nats, and at most the first "
        "entropy of the probe that reaches 0.3 nats.",
        widget=Menu(get_args(ThresholdUnit)),
        option="unit",
    )
    branch_factor: int = setting(
        3,
        Whole(2, 16),
        BRANCHING,
        "Branch factor",
        "Children per fork, at most (k): the k - 1 most likely tokens and one drawn from the rest.",
        widget=Slider(2, 8),
        advanced=False,
    )
    max_paths: int = setting(
        20,
        Whole(1, MAX_PATHS),
        BRANCHING,
        "Max paths",
        "Maximum number of paths. fair and stochastic-beam: live and finished paths together. "
        "original: live paths only, as published. arithmetic: the number of codes. beam: "
        "the number of beams, and of finished texts that are kept. best-first: live and finished "
        "paths together. independent: the number of texts.",
        widget=Slider(1, 64),
        advanced=False,
    )
    min_fork_weight: float = setting(
        0.0,
        Real(0.0, 1.0, hint="0 lets every path fork"),
        BRANCHING,
        "Minimum weight to fork",
        "A path forks only if its weight is at least this, so that unlikely texts do not fill "
        "the tree (policy fair). The weights stay unbiased; 0 lets every path fork.",
        more="Only with 0 is the tree at a higher threshold a subtree of the tree at a lower "
        "threshold.",
        widget=Steps(
            (0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5),
            {0.0: "any weight"},
            number="{:.1%}",
        ),
    )
    branch_min_p: float = setting(
        0.0,
        Real(0.0, 1.0, hint="0 takes the k - 1 most likely tokens"),
        BRANCHING,
        "Min-p of children",
        "At a fork, a token becomes a child by itself only if it has at least this share of the "
        "largest probability; all other tokens share one child, drawn from them (policy fair).",
        more="The weights stay unbiased: a rest with less than this share is kept at random, and "
        "then weighs as much. 0 takes the k - 1 most likely tokens and always one of the rest.",
        widget=Slider(0.0, 0.5, 0.01),
    )
    policy: str = setting(
        "fair",
        Choice(get_args(PolicyName), OWN),
        BRANCHING,
        "Policy",
        "fair: weights are unbiased and sum to 1. original: the published rule; all texts have "
        "equal weight. arithmetic: max_paths evenly spaced codes over the tree; unbiased. "
        "stochastic-beam: max_paths different texts, drawn without replacement. beam: beam search "
        "with max_paths beams. best-first: the most probable texts, whatever their length, first. "
        "greedy: the most likely token, no forks. independent: ordinary sampling of max_paths "
        "texts, for comparison. Only fair and original use the threshold.",
        more="In Python also [one of your own](library.md#a-policy-of-your-own).",
        widget=Menu(tuple(name for name in get_args(PolicyName) if name != "greedy")),
    )
    length_penalty: float = setting(
        1.0,
        Real(-10.0, 10.0, hint="0 ranks texts by their probability"),
        BRANCHING,
        "Length penalty",
        "Beam search ranks finished texts by ln p / tokens to this power (policy beam): above 0, "
        "long texts rank higher, below 0, short ones; 0 ranks by probability.",
        more="As in transformers.",
        widget=Slider(-2.0, 2.0, 0.1),
    )
    early_stopping: EarlyStopping = setting(
        "off",
        Choice(get_args(EarlyStopping)),
        BRANCHING,
        "Early stopping",
        "When beam search ends, once max_paths texts are finished (policy beam). on: at once. off: "
        "if no live path scores higher at its present length. never: if none could at its best "
        "length.",
        more="As in transformers; in Python also its True and False.",
        widget=Menu(get_args(EarlyStopping)),
    )
    paths_per_pass: int = setting(
        4,
        Whole(1, MAX_PATHS),
        BRANCHING,
        "Paths per pass",
        "How many paths, the most probable ones, each forward pass continues (policy best-first). "
        "1 computes no token too many; more share the time of a pass.",
        widget=Slider(1, 16),
    )

    temperature: float = setting(
        1.0,
        Real(0.01, 10.0),
        SAMPLING,
        "Temperature",
        "Divides the logits before sampling. Values below 1 favour likely tokens, values above 1 "
        "unlikely ones. The entropy is measured afterwards.",
        more="In Python and on the command line, 0 stands for the policy greedy.",
        widget=Slider(0.1, 2.0, 0.05),
    )
    top_k: int = setting(
        0,
        Whole(0, 1_000_000, hint="0 keeps all tokens"),
        SAMPLING,
        "Top-k",
        "Sample only from the k most likely tokens; 0 keeps all tokens. The entropy is measured "
        "afterwards.",
        widget=Slider(0, 100),
    )
    top_p: float = setting(
        1.0,
        Real(0.01, 1.0, hint="1 keeps all tokens"),
        SAMPLING,
        "Top-p",
        "Sample only from the most likely tokens that together have this probability; 1 keeps "
        "all tokens. The entropy is measured afterwards.",
        widget=Slider(0.05, 1.0, 0.05),
    )
    min_p: float = setting(
        0.0,
        Real(0.0, 1.0, hint="0 keeps all tokens"),
        SAMPLING,
        "Min-p",
        "Sample only from tokens with at least this share of the largest probability, after top-p; "
        "0 keeps all tokens. The entropy is measured afterwards.",
        widget=Slider(0.0, 0.5, 0.01),
    )
    repetition_penalty: float = setting(
        1.0,
        Real(0.01, 10.0, hint="1 is off"),
        SAMPLING,
        "Repetition penalty",
        "For tokens that occur in the prompt or the text, divides logits above 0 and multiplies "
        "logits below 0, before the temperature: above 1, they become less likely; 1 is off.",
        more="As in transformers, whether a token is there once or often (arXiv 1909.05858).",
        widget=Slider(1.0, 2.0, 0.05),
    )
    max_new_tokens: int = setting(
        64,
        Whole(1, MAX_NEW_TOKENS),
        SAMPLING,
        "Max new tokens",
        "Maximum number of tokens generated per path.",
        widget=Slider(1, 256),
        advanced=False,
    )
    stop_when: StopWhen = setting(
        "ended",
        Choice(get_args(StopWhen)),
        SAMPLING,
        "End of the run",
        "ended: when all texts have ended. decided: as soon as no other first sentence, seen or "
        "not, can be more likely than the one that leads; this is certain. explored: as soon as "
        "the texts whose first sentence is complete have the probability explored_goal together, "
        "so that the bounds of every answer are at most the rest apart.",
        more="With label_words, labels take the place of first sentences. The run keeps its "
        "unfinished texts. Their weights are as in a stopped run.",
        widget=Buttons(
            {
                "ended": "all texts have ended",
                "decided": "the answer is decided",
                "explored": "enough is explored",
            }
        ),
    )
    label_words: tuple[str, ...] = setting(
        (),
        Texts(MAX_LABEL_WORDS, MAX_LABEL),
        SAMPLING,
        "Words as labels",
        "Texts that contain one of these words have it as their label, the last one if there are "
        "several; how likely each label is, is shown with certain bounds.",
        more="The last word decides as soon as a text contains it, the others when the text has "
        "ended. Upper and lower case are the same. A list in Python and JSON; on the command "
        "line, repeat the option. On the page, write one per line.",
        widget=Lines("Paris"),
    )
    explored_goal: float = setting(
        0.9,
        Real(0.0, 1.0),
        SAMPLING,
        "Explored probability",
        "The probability of the texts seen at which a run ends (End of the run: explored).",
        widget=Slider(0.5, 1.0, 0.01),
    )
    token_budget: int = setting(
        0,
        Whole(0, MAX_PATHS * MAX_NEW_TOKENS, hint="0 sets no limit"),
        SAMPLING,
        "Token budget",
        "The run ends when it has predicted this many tokens, over all paths and those that were "
        "dropped; 0 sets no limit.",
        more="Under best-first, 0 allows max_paths x max_new_tokens, the most that other policies "
        "compute.",
        widget=NumberBox(0, MAX_PATHS * MAX_NEW_TOKENS),
    )
    stop: tuple[str, ...] = setting(
        (),
        Texts(MAX_STOP_STRINGS, 100),
        SAMPLING,
        "Stop strings",
        "A path ends when its text contains one of these strings. The text is cut before the "
        "string.",
        more="Only generated text is searched, not the prompt. A list in Python and JSON; on the "
        "command line, repeat the option. On the page, write one per line, with `\\n` for a "
        "line break.",
        widget=Lines("\\n\\n"),
    )
    seed: int = setting(
        0,
        Whole(0, MAX_SEED),
        SAMPLING,
        "Seed",
        "Seed of the random numbers. The same seed gives the same run.",
        widget=NumberBox(0, 2**31 - 1),
    )

    chat: ChatTemplate = setting(
        AUTO,
        Switch(or_word=AUTO),
        CHAT,
        "Chat template",
        "Send the prompt as a user message in the model's chat template. auto: if the model has "
        "one.",
        more="On requires a model with a chat template. Off sends the plain text.",
        widget=Buttons({AUTO: "if the model has one", True: "on", False: "off"}),
    )
    system: str = setting(
        "",
        Text(),
        CHAT,
        "System message",
        "System message before the prompt. Requires a chat template.",
        widget=TextArea("You are a helpful assistant."),
    )
    chat_template_kwargs: str = setting(
        "",
        JsonObject(1000, 4, _OF_THE_ENGINE),
        CHAT,
        "Arguments of the chat template",
        'A JSON object with variables for the chat template, such as {"enable_thinking": false}.',
        more="The template defines which arguments exist and ignores others. In Python, a dict.",
        widget=TextLine('{"enable_thinking": false}'),
    )

    cache: CacheName = setting(
        "tree",
        Choice(get_args(CacheName)),
        KV_CACHE,
        "Cache",
        "tree: shared rows, written once. paged: shared blocks of rows, as in vLLM. concat-cow: "
        "shared segments, concatenated at every step. deep-copy: a full copy for each path. "
        "recompute: no KV cache.",
        more="A row is the K and V of one token in all layers. The cache changes no tokens, except "
        "by rounding, and only [where caches round differently](kv-caches.md#the-same-tokens).",
        widget=Menu(get_args(CacheName)),
    )
    r: AllocationStep = setting(
        AUTO,
        Whole(1, MAX_NEW_TOKENS, hint=f"1 reallocates at every step; or {AUTO!r}", or_word=AUTO),
        KV_CACHE,
        "r: steps of spare room per allocation",
        "When the tree cache is full, it grows by the rows of r decode steps. 1 copies the cache "
        "at every step; max_new_tokens or more allocates all rows at the start; auto adds a "
        "quarter of the rows in use, at least those of 4 steps.",
        more="This is the r of BMC (arXiv 2511.12031). It changes time and bytes, never the "
        "tokens. With auto, short runs reserve little, and what a long run copies stays "
        "proportional to its length.",
        widget=Steps(R_STEPS),
    )
    attention: AttentionName = setting(
        "sliced",
        Choice(get_args(AttentionName)),
        KV_CACHE,
        "Attention reads",
        "Which rows of the tree cache attention reads. sliced: the used rows. padded: all rows, "
        "with the spare rows masked, which fixed shapes require.",
        more="With sliced, spare rows cost only memory. With padded, they also cost time, and r "
        "balances copies and spare rows. The two round differently, so texts can differ. On CUDA, "
        "attention is always padded, so that passes can be captured as CUDA graphs (see "
        "eab.engine.models.cuda_graphs).",
        widget=Buttons({"sliced": "used rows", "padded": "all rows"}),
    )
    block_size: int = setting(
        16,
        Whole(1, MAX_NEW_TOKENS),
        KV_CACHE,
        "Block size",
        "Rows of a block of the paged cache. Small blocks leave less memory unused at the ends of "
        "texts; large ones need fewer allocations.",
        widget=Steps((1, 2, 4, 8, 16, 32, 64, 128)),
    )
    kv_limit_mib: int = setting(
        4096,
        Whole(1, 1_000_000),
        KV_CACHE,
        "KV limit (MiB)",
        "The run ends before its KV cache exceeds this many MiB. Its tree is kept.",
        more="The cache of a draft model has the same limit; drafting ends when it is reached. "
        "With a drafter, a run may reach the limit earlier, because a path ahead of the "
        "others needs rows of later steps.",
    )

    drafter: DrafterName = setting(
        "none",
        Choice(get_args(DrafterName)),
        SPECULATIVE,
        "Drafter",
        "Proposes draft tokens that one forward pass verifies. none: no drafts. model: a small "
        "draft model. prompt-lookup: the tokens that followed the same tokens earlier in this "
        "text. sibling-lookup: the same, also in the other paths. run-ahead: the most likely "
        "tokens of the server, several per request.",
        more="Drafting changes no tokens, except by rounding, and only [where passes of other "
        "sizes round differently](kv-caches.md#the-same-tokens). Under stochastic-beam, beam and "
        "best-first, where any path may fork or be dropped at any token, no draft token is "
        "accepted. run-ahead requires a model on a server (see [Models on a server](remote.md)).",
        widget=Menu(get_args(DrafterName)),
    )
    draft_length: int = setting(
        0,
        Whole(0, MAX_DRAFT, hint="0 adapts it"),
        SPECULATIVE,
        "Draft length",
        "Maximum number of draft tokens per path and forward pass; 0 adapts it to save the most "
        "time in this run.",
        widget=Slider(0, MAX_DRAFT),
    )

    def __post_init__(self) -> None:
        for name, value in self._in_one_form().items():
            object.__setattr__(self, name, value)
        for name, declared in SETTINGS.items():
            if name != "entropy_threshold":
                declared.values.check(f"the setting {name}", getattr(self, name))
        scale = THRESHOLD_SCALES[self.threshold_unit].values
        scale.check("the setting entropy_threshold", self.entropy_threshold)
        argument = "an argument of the chat template"
        of_chat = {"system": "a system message", "chat_template_kwargs": argument}
        for name, what in of_chat.items():
            if self.chat is False and getattr(self, name):
                text = f"{name} is set, but chat is off; {what} requires chat=True or chat='auto'"
                raise ConfigError(text)

    def _in_one_form(self) -> dict[str, Any]:
        """All settings as they are stored; some can be given in several forms."""
        given: dict[str, Any] = {name: as_plain_number(getattr(self, name)) for name in SETTINGS}
        said, heat = given["threshold_unit"], given["temperature"]
        if isinstance(said, str) and said == "normalized":
            given["threshold_unit"] = "normalised"
        if isinstance(given["early_stopping"], bool):
            given["early_stopping"] = "on" if given["early_stopping"] else "off"
        given |= {name: SETTINGS[name].default for name in _OFF_AS_NONE if given[name] is None}
        if isinstance(heat, int | float) and heat == 0 and self.policy in ("fair", "greedy"):
            given |= {"temperature": 1.0, "policy": "greedy"}
        given |= {name: as_texts(given[name]) for name in ("stop", "label_words")}
        given["chat_template_kwargs"] = as_object_text(given["chat_template_kwargs"])
        return given

    @property
    def by_step(self) -> bool:
        """Whether all live paths take each step together, so that a step is a moment of the run."""
        return self.policy != "best-first"

    @property
    def most_tokens(self) -> int:
        """How many tokens a run may compute (`token_budget`); 0 if there is no limit."""
        if self.by_step:
            return self.token_budget
        most = self.max_paths * self.max_new_tokens
        return min(self.token_budget or most, most)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "BranchingConfig":
        """The config with these settings, and defaults for all others.

        Raises:
            ConfigError: A value is not allowed, or no setting has that name.
        """
        return cls(**settings)


# Settings that only these policies have
OF_POLICIES: Final[Mapping[str, tuple[str, ...]]] = {
    "beam": ("length_penalty", "early_stopping"),
    "best-first": ("paths_per_pass",),
}
# Policies whose weights are the probabilities of the texts, so they sum to less than 1
BY_PROBABILITY: Final = ("beam", "best-first")
DETERMINISTIC: Final = (*BY_PROBABILITY, "greedy")  # the same for every seed
SETTINGS: Final[Mapping[str, Setting]] = settings_of(BranchingConfig)
# Settings that other libraries turn off with None
_OFF_AS_NONE: Final = ("top_k", "top_p", "min_p", "repetition_penalty", "stop", "label_words")
# Settings of the next-token distribution that depend on the logits alone,
WARPERS: Final = ("temperature", "top_k", "top_p", "min_p")
# and all of them
OF_DISTRIBUTION: Final = ("repetition_penalty", *WARPERS)
