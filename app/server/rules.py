"""What the operator of this server allows its visitors.

The environment variable EAB_RULES names a TOML file with rules; EAB_RULE_MAX_PATHS is the rule
`max_paths` alone, and goes before the file. With EAB_PUBLIC=1, the defaults are those of a public
server, not of a private machine. The rules are read once, when the server starts.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final, Literal

from eab.config import AUTO, MAX_NEW_TOKENS, MAX_PATHS, PREFIX_CACHE_MIB
from eab.errors import ConfigError
from eab.formatting import quoted
from eab.run.events.fields import MAX_PROMPT_TOKENS
from eab.settings import Choice, Switch, Text, Whole, setting, settings_of

FILE_VARIABLE: Final = "EAB_RULES"
RULE_VARIABLE: Final = "EAB_RULE_"  # followed by the name of a rule
PUBLIC_VARIABLE: Final = "EAB_PUBLIC"
UNLIMITED: Final = 1_000_000
CGROUP: Final = Path("/sys/fs/cgroup")
# Microseconds of processor time in each period: of cgroup version 2, or 1.
_QUOTAS: Final = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
CHAT_CORES: Final = 2  # fewest cores for which a public server puts the chat model first

MODELS, LIMITS, SERVER = "Models and files", "Limits", "Server"
Visitor = Literal["tab", "address"]
Sharing = Literal["visitor", "everyone"]
KvTotal = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names."""

    example: str
    empty: str  # what an empty list means

    def check(self, name: str, value: object) -> None:
        """See eab.settings.Values.check."""
        if not isinstance(value, tuple) or not all(
            isinstance(each, str) and each for each in value
        ):
            raise ConfigError(
                f'{name} is {quoted(value)}; it must be a list such as ["{self.example}"]'
            )

    def __str__(self) -> str:
        return f"a list of names; empty: {self.empty}"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a server (docs/server-rules.md). Raises ConfigError if one is not allowed."""

    public: bool = setting(
        False, Switch(), SERVER, "Public", "Whether the server is open to the public."
    )
    models: tuple[str, ...] = setting(
        (),
        Names("embedded", "any"),
        MODELS,
        "Models",
        "The models that visitors can choose: smollm2, embedded, folders, GGUF files or Hub ids. "
        "The first one that can run is the default. If the list is empty, visitors can name any "
        "folder or file of this machine and any Hub id.",
        more="On a public server with two or more processor cores, the chat model comes first.",
    )
    save_runs: bool = setting(
        True,
        Switch(),
        MODELS,
        "Saved runs and sweeps",
        "Whether visitors can save runs and sweeps on the server. All visitors can see, rename "
        "and delete them.",
    )
    upload_mib: int = setting(
        32, Whole(1, 32), MODELS, "Upload", "Maximum size of an uploaded run file, in MiB."
    )
    max_prompt_tokens: int = setting(
        MAX_PROMPT_TOKENS,
        Whole(1, MAX_PROMPT_TOKENS),
        LIMITS,
        "Prompt",
        "Maximum number of prompt tokens.",
    )
    max_new_tokens: int = setting(
        MAX_NEW_TOKENS,
        Whole(2, MAX_NEW_TOKENS),
        LIMITS,
        "New tokens",
        "Maximum number of new tokens per path.",
    )
    max_paths: int = setting(
        MAX_PATHS, Whole(2, MAX_PATHS), LIMITS, "Paths", "Maximum number of paths of a run."
    )
    kv_limit_mib: int = setting(
        1024,
        Whole(1, UNLIMITED),
        LIMITS,
        "KV memory",
        "Maximum KV memory of a run, in MiB. A run that needs more ends there and keeps its text.",
    )
    kv_total_mib: KvTotal = setting(
        AUTO,
        Whole(1, UNLIMITED, or_word=AUTO),
        LIMITS,
        "KV memory, total",
        "Maximum KV memory of all runs together, in MiB. auto: a quarter of the memory of this "
        "machine, of its container, or of a GPU. When it is full, the runs that were served "
        "longest pause.",
        more="Sweeps and measurements run one at a time and need additional memory.",
    )
    prefix_cache_mib: int = setting(
        PREFIX_CACHE_MIB,
        Whole(0, UNLIMITED),
        LIMITS,
        "Prefix cache",
        "Maximum memory of the prefix cache, in MiB for each loaded model. It keeps computed texts "
        "for later runs that begin with them, and gives up memory that runs need. 0 turns it off.",
    )
    share_prefixes: Sharing = setting(
        "everyone",
        Choice(("visitor", "everyone")),
        LIMITS,
        "Shared prompts",
        "Who can reuse the prompts that a run has computed: runs of the same visitor and class, "
        "or everyone's.",
        more="Whether a prompt was computed before can be told from the time to its first token. "
        "The prompts of the bundled runs are always shared.",
    )
    runs_per_visitor: int = setting(
        UNLIMITED,
        Whole(2, UNLIMITED, hint="a tab's next run starts just before its previous run stops"),
        LIMITS,
        "Runs per visitor",
        "Maximum number of queued and running runs of a visitor.",
    )
    max_runs: int = setting(
        UNLIMITED,
        Whole(1, UNLIMITED),
        LIMITS,
        "Runs, total",
        "Maximum number of queued and running runs of all visitors.",
    )
    seconds_per_hour: int = setting(
        UNLIMITED,
        Whole(1, UNLIMITED),
        LIMITS,
        "Time per visitor",
        "Maximum number of seconds per hour for the runs of a visitor.",
    )
    max_classes: int = setting(
        20,
        Whole(0, 100),
        LIMITS,
        "Classes",
        "Maximum number of classes at the same time; 0 turns classes off.",
    )
    classes_per_visitor: int = setting(
        100,
        Whole(1, 100),
        LIMITS,
        "Classes per visitor",
        "Maximum number of classes of a visitor at the same time.",
    )
    visitor: Visitor = setting(
        "tab",
        Choice(("tab", "address")),
        LIMITS,
        "Visitor",
        "Who counts as one visitor: a browser tab, or everyone at one network address.",
        more="Use tab if a class shares one address.",
    )
    ipv6_prefix: int = setting(
        64,
        Whole(1, 128),
        LIMITS,
        "IPv6 prefix",
        "Number of leading bits of an IPv6 address that count as one network address. A home or "
        "a phone has all addresses of a /64 or a larger network.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        Names("example.org", "see the meaning"),
        SERVER,
        "Hosts",
        "Host names under which browsers may request the page, in addition to localhost and IP "
        "addresses. If the list is empty, a server that listens only on its own machine accepts "
        "no other name, and any other server accepts every name.",
    )
    frame_ancestors: str = setting(
        "'self'",
        Text(500),
        SERVER,
        "Frames",
        "Sites that may embed the page in a frame, as in the header Content-Security-Policy.",
    )
    key: str = setting(
        "",
        Text(500),
        SERVER,
        "Key",
        "Key for the Server page. If it is empty, nobody can open it.",
    )

    @property
    def most_tokens(self) -> int:
        """Token limit of a run, both for new runs and for run files."""
        return self.max_paths * self.max_new_tokens

    @property
    def is_embedded(self) -> bool:
        """Whether other sites may embed the page in a frame."""
        return not set(self.frame_ancestors.split()) <= {"'self'", "'none'"}

    def visitor_at(self, address: str) -> str:
        """The visitor at an IP address; an IPv6 address stands for its network."""
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return address
        if parsed.version == 4:
            return str(parsed)
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ip_network((parsed, self.ipv6_prefix), strict=False))

    def __post_init__(self) -> None:
        for name, declared in RULES.items():
            declared.values.check(name, getattr(self, name))
        if any(not " " < sign <= "~" for sign in self.key):
            raise ConfigError(
                "key contains spaces or unusual characters; use letters, digits and punctuation"
            )
        for host in self.hosts:
            if not re.fullmatch(r"[A-Za-z0-9.-]+", host):
                raise ConfigError(
                    f"hosts contains {quoted(host)}; write only the name, such as example.org, "
                    "without http:// and without a port"
                )
        if any(sign in ";,\r\n" for sign in self.frame_ancestors):
            raise ConfigError(
                f"frame_ancestors is {quoted(self.frame_ancestors)}; it must be 'none', 'self' "
                "or addresses separated by spaces"
            )


RULES: Final = settings_of(Rules)
PRIVATE: Final = Rules()
PUBLIC: Final = Rules(
    public=True,
    models=("smollm2", "embedded"),
    save_runs=False,
    upload_mib=2,
    max_prompt_tokens=1000,
    max_new_tokens=256,
    max_paths=64,
    kv_limit_mib=256,
    share_prefixes="visitor",
    runs_per_visitor=3,
    max_runs=100,
    seconds_per_hour=600,
    classes_per_visitor=2,
    visitor="address",
    frame_ancestors="'none'",
)


def load(environment: Mapping[str, str]) -> Rules:
    """The rules that these environment variables name. Raises ConfigError if they are invalid."""
    given = _read(environment.get(FILE_VARIABLE, "").strip()) | _single(environment)
    public = given.get("public", environment.get(PUBLIC_VARIABLE, "").strip() not in ("", "0"))
    RULES["public"].values.check("public", public)
    return replace(_public() if public else PRIVATE, **given)


def _public() -> Rules:
    """One core is too slow for a chat model that several visitors share (docs/public-server.md)."""
    return PUBLIC if cores() >= CHAT_CORES else replace(PUBLIC, models=PUBLIC.models[::-1])


def cores() -> int:
    """How many cores this server may use: those given to the process, or fewer if its container has
    a quota of their time. With more threads than that, all of them wait for the next period.
    """
    has_affinity = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    for names in _QUOTAS:
        with suppress(OSError):
            quota, period = " ".join((CGROUP / name).read_text("ascii") for name in names).split()
            if quota.isdigit():
                return max(1, min(count, int(quota) // int(period)))
    return count


@cache
def current() -> Rules:
    """The rules of this process."""
    return load(os.environ)


def _read(name: str) -> dict[str, Any]:
    if not name:
        return {}
    try:
        with Path(name).expanduser().open("rb") as file:
            given = tomllib.load(file)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"the rules in {quoted(name)} cannot be read: {error}") from error
    return {_known(rule, quoted(name)): _value(value) for rule, value in given.items()}


def _single(environment: Mapping[str, str]) -> dict[str, Any]:
    """The rules that have an environment variable of their own."""
    given = {}
    for variable, text in environment.items():
        if variable.startswith(RULE_VARIABLE):
            rule = _known(variable.removeprefix(RULE_VARIABLE).lower(), "the environment")
            given[rule] = text if isinstance(RULES[rule].values, Text) else _value(_toml(text))
    return given


def _toml(text: str) -> Any:
    """A value in TOML, or the text itself where that is none, such as a word without quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _known(rule: str, place: str) -> str:
    if rule not in RULES:
        near = get_close_matches(rule, RULES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(RULES)}"
        raise ConfigError(f"there is no rule {quoted(rule)} in {place}; {hint}")
    return rule


def _value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
