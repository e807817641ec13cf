"""requirements.lock and THIRD_PARTY.md: complete, hashed and up to date."""

import re
import tomllib
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, requires, version

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from places import ROOT

from scripts.write_docs import LICENCES, applies, licence, locked

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APP = PROJECT["optional-dependencies"]["app"]
PINNED = [
    line
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith(("#", "-e"))
]


def versions() -> dict[str, list[Version]]:
    """The locked versions for Linux by name; several where they depend on the Python version."""
    found = defaultdict(list)
    for requirement, _ in locked():
        [pin] = requirement.specifier
        assert pin.operator == "=="
        found[canonicalize_name(requirement.name)].append(Version(pin.version))
    return found


def unmet(requirement: Requirement) -> bool:
    """Whether the lock has no version that satisfies this requirement."""
    return not any(
        requirement.specifier.contains(version, prereleases=True)
        for version in versions().get(canonicalize_name(requirement.name), [])
    )


def test_every_entry_has_a_hash_and_no_url() -> None:
    entries = list(locked())
    assert len(entries) > 50
    for requirement, hashes in entries:
        assert requirement.url is None
        assert hashes, f"{requirement.name} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement.name
    assert "//" not in (ROOT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", [*PROJECT["dependencies"], *APP, *PINNED])
def test_the_lock_satisfies_every_requirement(line: str) -> None:
    requirement = Requirement(line)
    assert not unmet(requirement), f"{line}: run `make lock`"


def test_the_lock_contains_all_that_its_packages_require() -> None:
    missing, compared = [], 0
    for name, known in versions().items():
        try:
            installed, lines = Version(version(name)), requires(name) or []
        except PackageNotFoundError:  # only for another system
            continue
        if installed not in known:  # a newer version is installed, and may require other packages
            continue
        compared += 1
        needed = [one for one in map(Requirement, lines) if applies(one) and unmet(one)]
        missing += [f"{name} {known[0]} requires {one}" for one in needed]
    assert not missing, missing
    assert compared > 20


def test_pytorch_is_locked_to_the_cpu_build() -> None:
    assert [version.local for version in versions()["torch"]] == ["cpu"]
    assert not any(name.startswith(("nvidia", "cuda", "triton")) for name in versions())


def test_the_list_of_licences_names_every_package() -> None:
    text = LICENCES.read_text(encoding="utf-8")
    rows = text[text.index("<!-- packages -->") : text.index("<!-- /packages -->")].splitlines()[3:]
    named = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    needed = {one.name for one, _ in locked() if applies(one)}
    assert named == sorted(needed), "run `make lock`"
    assert all(len(row.split(" | ")) == 2 and row.split(" | ")[1].strip(" |") for row in rows)


def test_a_package_that_states_no_licence_stops_the_script() -> None:
    from email.message import Message

    stated = Message()
    stated["Name"] = "nameless"
    with pytest.raises(ValueError, match="nameless states no licence"):
        licence(stated)  # type: ignore[arg-type]
    stated["License"] = "MIT\nPermission is hereby granted"
    assert licence(stated) == "MIT"  # type: ignore[arg-type]
    stated["License-Expression"] = "MIT-0"
    assert licence(stated) == "MIT-0"  # type: ignore[arg-type]
