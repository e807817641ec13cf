"""The rules of a server: how they are read and checked, and what counts as one visitor."""

import string
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.server import rules
from app.server.rules import PRIVATE, PUBLIC, RULES, Rules, load
from eab.errors import ConfigError


def written(folder: Path, text: str) -> dict[str, str]:
    file = folder / "eab.toml"
    file.write_text(text, encoding="utf-8")
    return {"EAB_RULES": str(file)}


def test_without_a_file_the_rules_are_those_of_a_private_or_public_server():
    assert load({}) == PRIVATE
    assert load({"EAB_PUBLIC": "0"}) == PRIVATE
    assert load({"EAB_PUBLIC": "1"}) == PUBLIC


QUOTAS = [
    ({}, 8),
    ({"cpu.max": "max 100000\n"}, 8),
    ({"cpu.max": "250000 100000\n"}, 2),
    ({"cpu.max": "50000 100000\n"}, 1),
    ({"cpu.max": "1600000 100000\n"}, 8),
    ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
]


@pytest.mark.parametrize(("files", "expected"), QUOTAS)
def test_a_server_uses_no_more_cores_than_its_container_may(monkeypatch, tmp_path, files, expected):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(rules, "CGROUP", tmp_path)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert rules.cores() == expected


def test_a_public_server_with_one_core_starts_with_the_small_model(monkeypatch):
    monkeypatch.setattr(rules, "cores", lambda: 1)
    assert load({"EAB_PUBLIC": "1"}) == replace(PUBLIC, models=("embedded", "smollm2"))
    assert load({}) == PRIVATE


def test_a_file_changes_single_rules(tmp_path):
    file = written(tmp_path, 'models = ["embedded", "./mine"]\nmax_paths = 12\n')
    assert load(file | {"EAB_PUBLIC": "1"}).models == ("embedded", "./mine")
    assert load(file).max_paths == 12
    assert load(file).max_new_tokens == PRIVATE.max_new_tokens
    assert load(written(tmp_path, "public = true\nupload_mib = 4")).kv_limit_mib == 256


def test_a_rule_has_an_environment_variable_which_goes_before_the_file(tmp_path):
    single = {
        "EAB_RULE_MAX_PATHS": "12",
        "EAB_RULE_FRAME_ANCESTORS": "'self' https://example.org",
        "EAB_RULE_MODELS": '["embedded", "./mine"]',
        "EAB_RULE_VISITOR": "address",
        "EAB_RULE_KEY": "007",
        "EAB_RULE_SAVE_RUNS": "false",
    }
    rules = load(written(tmp_path, "max_paths = 20\nupload_mib = 4") | single)
    assert (rules.max_paths, rules.upload_mib, rules.visitor) == (12, 4, "address")
    assert rules.frame_ancestors == "'self' https://example.org"
    assert (rules.models, rules.key, rules.save_runs) == (("embedded", "./mine"), "007", False)
    assert load({"EAB_RULE_PUBLIC": "true"}) == PUBLIC


@given(
    st.sampled_from(sorted(RULES)),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()).map(tuple),
)
def test_any_value_is_kept_or_refused_with_a_config_error(rule, value):
    with suppress(ConfigError):
        assert getattr(Rules(**{rule: value}), rule) == value


# Lines as in docs/server-rules.md, and pieces to insert into them
LINES = [
    "public = true",
    'models = ["embedded", "./mine"]',
    "max_paths = 12",
    "upload_mib = 4",
    'visitor = "address"',
    "frame_ancestors = \"'none'\"",
    'hosts = ["example.org"]',
    'key = "secret"',
]
SIGNS = ["[[", "]]", "'''", '"""', "\\u0000", "=", ".", "nan", "-1"]
PIECES = st.text(string.printable, max_size=12) | st.sampled_from(
    [*SIGNS, *(5000 * sign for sign in ("9", "[", "a."))]
)


@settings(max_examples=150)
@given(
    st.permutations(LINES),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20), PIECES), max_size=3),
    st.binary(max_size=3),
)
def test_any_file_is_read_or_refused_with_a_short_message(tmp_path_factory, lines, changes, more):
    text = "\n".join(lines)
    for place, length, piece in changes:
        text = text[:place] + piece + text[place + length :]
    file = tmp_path_factory.mktemp("rules") / "eab.toml"
    file.write_bytes(text.encode() + more)
    said = ""
    try:
        assert isinstance(load({"EAB_RULES": str(file)}), Rules)
    except ConfigError as error:
        said = str(error)
    assert len(said.encode("utf-8")) < 1000


@pytest.mark.parametrize(
    ("address", "prefix", "visitor"),
    [
        ("203.0.113.7", 64, "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", 64, "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", 64, "2001:db8:1:3::/64"),
        ("2001:db8:1:3::1", 48, "2001:db8:1::/48"),
        ("2001:db8::1", 128, "2001:db8::1/128"),
        ("::ffff:203.0.113.7", 64, "203.0.113.7"),
        ("fe80::1%eth0", 64, "fe80::/64"),
        ("unix:", 64, "unix:"),
    ],
)
def test_an_ipv6_network_is_one_visitor(address: str, prefix: int, visitor: str) -> None:
    assert replace(PUBLIC, ipv6_prefix=prefix).visitor_at(address) == visitor
