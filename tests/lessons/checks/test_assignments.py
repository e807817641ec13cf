"""`eab check`: a correct solution of each assignment passes, and those with a student's mistake
fail, with the property that is violated and a small example.
"""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from command_line import eab_here

from eab.engine.caches.baselines import ConcatCowCache, DeepCopyCache, Recompute
from eab.engine.caches.per_path import PagedCache
from eab.lessons.checks import cache, outcome_of
from eab.lessons.checks.sampler import chi_square_p

SOLUTIONS = Path(__file__).parent / "solutions"
ASSIGNMENTS = ("policy", "cache", "drafter", "sampler")
# The mistake: the assignment, what is replaced and by what, and what the check must say of it.
MISTAKES = {
    "two equally heavy children": (
        "policy",
        "(first, share), (other, 1 - share)",
        "(first, 0.5), (other, 0.5)",
        r"unbiased.*their probability is(.|\n)*steps=1, max_paths=2",
    ),
    "the rest forgotten": (
        "policy",
        "[(first, share), (other, 1 - share)]",
        "[(token, p) for token, p in zip(predictions.top_tokens[index][:2], predictions.top_probabilities[index])]",
        r"FAILED  the weights of a run sum to 1: .* = 0\.(.|\n)*tokens=3, steps=1, max_paths=2",
    ),
    "the rest left out, and renormalised": (
        "policy",
        "(first, share), (other, 1 - share)",
        "(first, share / (share + p2)), (predictions.top_tokens[index][1], p2 / (share + p2))] if (p2 := predictions.top_probabilities[index][1]) else [",
        r"FAILED  weights are unbiased(.|\n)*tokens=3, steps=1, max_paths=1",
    ),
    "the drawn token decides whether to fork": (
        "policy",
        "predictions.entropies[index] < self._threshold",
        "drawn == first",
        r"FAILED  weights are unbiased(.|\n)*tokens=2, steps=1, max_paths=1",
    ),
    "no path limit": (
        "policy",
        "len(weights) <= limit",
        "True",
        r"a run has 2 texts, but max_paths is 1",
    ),
    "the lightest paths dropped": (
        "policy",
        "        return [count / limit if count else None for count in kept]",
        "        least = sorted(weights)[-limit]\n        kept = [weight if weight >= least else None for weight in weights]\n        return [weight and weight / sum(filter(None, kept)) for weight in kept]",
        r"FAILED  weights are unbiased",
    ),
    "random numbers without the seed": (
        "policy",
        "number = uniform(self._config.seed, leaf.stream_key, step, Purpose.TOKEN, 1)",
        "number = __import__('random').random()",
        r"FAILED  the same seed gives the same run: seed \d+ gave",
    ),
    "rows shared after a fork": (
        "cache",
        "list(rows) for child",
        "rows for child",
        r"FAILED  attention(.|\n)*fork\(0, \[1, 2\]\)\n *prepare\(\[",
    ),
    "positions off by one row": (
        "cache",
        "starts = [len(self._rows[path])",
        "starts = [max(0, len(self._rows[path]) - 1)",
        r"FAILED  attention.*away from(.|\n)*prepare\(\[0\].*\n *prepare\(\[0\]",
    ),
    "one row too few trimmed": (
        "cache",
        "[length:]",
        "[length + 1:]",
        r"FAILED  attention(.|\n)*trim\(",
    ),
    "every layer writes to the first": (
        "cache",
        "row[layer, 0], row[layer, 1]",
        "row[0, 0], row[0, 1]",
        r"FAILED  attention",
    ),
    "bytes counted for each path": (
        "cache",
        "len(seen) * self._shape.row_bytes",
        "seen.total() * self._shape.row_bytes",
        r"passed  attention(.|\n)*FAILED  the reported bytes.*the tensors hold(.|\n)*fork\(",
    ),
    "memory of ended paths kept": (
        "cache",
        "rows = self._rows.pop(path)",
        "rows = self._kept = self._rows.pop(path)",
        r"FAILED  the reported bytes.*the tensors hold(.|\n)*(trim|release)\(",
    ),
    "every draft token accepted": (
        "drafter",
        "draft[count] == drawn[count]",
        "True",
        r"accept returned 1 instead of 0(.|\n)*accept\(draft=\[0\], drawn=\[1, 0\]\)",
    ),
    "draft tokens after a rejected one accepted": (
        "drafter",
        "    return count",
        "    return sum(a == b for a, b in zip(draft, drawn))",
        r"accept returned 1 instead of 0(.|\n)*accept\(draft=\[0, 0\], drawn=\[1, 0, 0\]\)",
    ),
    "the children of a fork forgotten": (
        "drafter",
        "for child in children:",
        "for child in children[:1]:",
        r"greedy, sampled and branching.*KeyError: \d+ \(line \d+\)(.|\n)*max_new_tokens=1, draft_length=1",
    ),
    "more tokens than the limit": (
        "drafter",
        "start : start + request.limit]",
        "start:]",
        r"propose returns \d+ tokens, but limit is [01](.|\n)*max_new_tokens=[12],",
    ),
    "tokens of the run changed": (
        "drafter",
        "        return list(tokens",
        "        tokens.append(0)\n        return list(tokens",
        "propose changes the tokens of a request",
    ),
    "drafts that start one token too late": (
        "drafter",
        "= place + 1",
        "= place + 2",
        r"FAILED  some draft tokens are accepted|acceptance rate [0-9]%",
    ),
    "temperature after softmax": (
        "sampler",
        "logits = logits / temperature\n",
        "logits = (logits.softmax(dim=0) / temperature).log()\n",
        r"FAILED  shares(.|\n)*temperature=(0\.5|1\.7|0\.6|1\.4), top_k=0, top_p=1\.0",
    ),
    "top-p without the token that crosses it": (
        "sampler",
        "falling.cumsum(dim=0) - falling >= top_p",
        "(falling.cumsum(dim=0) >= top_p) & (falling < falling[0])",
        r"FAILED  shares(.|\n)*temperature=1\.0, top_k=0, top_p=0\.8",
    ),
    "not renormalised": (
        "sampler",
        "probabilities = probabilities / probabilities.sum()",
        "pass",
        r"sample returned \d, which is not|0\.000\)",
    ),
    "one token too many in top-k": (
        "sampler",
        "topk(top_k)",
        "topk(top_k + 1)",
        r"FAILED  shares(.|\n)*top_k=3",
    ),
    "top-p before temperature and top-k": (
        "sampler",
        "    logits = logits / temperature\n",
        "    falling, order = logits.softmax(dim=0).sort(descending=True)\n    logits[order[falling.cumsum(dim=0) - falling >= top_p]] = -torch.inf\n    logits = logits / temperature\n    top_p = 1\n",
        r"FAILED  shares(.|\n)*top_p=0\.7",
    ),
    "the generator ignored": (
        "sampler",
        "generator=generator, ",
        "",
        r"FAILED  the same seed gives the same tokens",
    ),
}


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    "assignment",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "policy" else [])
        for name in ASSIGNMENTS
    ],
)
def test_a_correct_solution_passes_and_gives_a_line_to_hand_in(assignment, tmp_path):
    checked = eab_here("check", assignment, str(SOLUTIONS / f"{assignment}.py"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    *passed, line = checked.stdout.splitlines()
    assert all(one.startswith("passed  ") for one in passed)
    count = len(passed)
    shape = rf"Hand in: eab check {assignment}, version \S+, seed 0: {count} of {count}, file [0-9a-f]{{16}}, result [0-9a-f]{{16}}"
    assert re.fullmatch(shape, line)


# Checks of these take long where they fail, because smaller examples are searched; a quick one
# is in every test run.
SLOW = ("policy", "sampler")
QUICK = ("the generator ignored",)


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(name, marks=[pytest.mark.slow] if one[0] in SLOW and name not in QUICK else [])
        for name, one in MISTAKES.items()
    ],
)
def test_a_solution_with_a_mistake_fails_with_a_small_example(mistake, tmp_path):
    assignment, right, wrong, said = MISTAKES[mistake]
    source = (SOLUTIONS / f"{assignment}.py").read_text()
    assert source.count(right) == 1
    file = tmp_path / "solution.py"
    file.write_text(source.replace(right, wrong))
    checked = eab_here("check", assignment, str(file))
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert re.search(said, checked.stdout), checked.stdout


@pytest.mark.parametrize(
    "assignment", [pytest.param("policy", marks=pytest.mark.slow), *ASSIGNMENTS[1:]]
)
def test_a_template_runs_and_fails(assignment, tmp_path):
    template = eab_here("check", assignment, "--template")
    assert template.returncode == 0
    file = tmp_path / f"my_{assignment}.py"
    file.write_text(template.stdout)
    checked = eab_here("check", assignment, str(file))
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "FAILED" in checked.stdout


def test_the_same_file_gives_the_same_line_and_another_file_or_seed_another(tmp_path):
    source = (SOLUTIONS / "cache.py").read_text()
    first, renamed, changed = (tmp_path / name for name in ("one.py", "random.py", "two.py"))
    first.write_text(source)
    renamed.write_text(source)
    changed.write_text(source + "# mine")
    asked = ((first,), (renamed,), (changed,), (first, "--seed", "1"))
    lines = [eab_here("check", "cache", *map(str, one)).stdout.splitlines()[-1] for one in asked]
    assert lines[0] == lines[1]
    assert len({line.split("result")[1] for line in lines}) == 3


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "There is no Python file"),
        ("x = (", "does not run: SyntaxError: '(' was never closed (solution.py, line 1)"),
        ("\nraise SystemExit(3)", "does not run: SystemExit: 3 (line 2)"),
        ("x = 1", "must define a class MyDrafter(Drafter); --template prints a beginning"),
        ("class MyDrafter: pass", "must define a class MyDrafter(Drafter)"),
        (
            "from eab.engine.speculation.drafter import NgramLookup as MyDrafter\naccept = 3",
            "must define a function accept",
        ),
    ],
)
def test_a_file_that_cannot_be_checked_is_refused_with_exit_code_2(source, said, tmp_path):
    file = tmp_path / "solution.py"
    if source is not None:
        file.write_text(source)
    refused = eab_here("check", "drafter", str(file))
    assert refused.returncode == 2
    is_run = f"Running {file} as a program on this machine." in refused.stderr
    assert is_run == (source is not None)
    assert said in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize("kind", [ConcatCowCache, DeepCopyCache, PagedCache, Recompute])
def test_the_caches_of_the_project_pass(kind):
    student = SimpleNamespace(MyCache=kind)
    outcomes = [outcome_of(one, Path("x.py")) for one in cache.properties(student, seed=5)]
    assert [outcome.fault for outcome in outcomes] == ["", ""]


def test_chi_square_gives_the_values_of_its_table():
    even = torch.full((4,), 0.25, dtype=torch.float64)
    assert chi_square_p(torch.tensor([25, 25, 25, 25]), even) == 1.0
    # 11.345 is the quantile 0.99 for three degrees of freedom
    off = (11.345 / 4 * 100 / 4) ** 0.5
    counts = torch.tensor([25 + off, 25 - off, 25 + off, 25 - off], dtype=torch.float64)
    assert chi_square_p(counts, even) == pytest.approx(0.01, abs=1e-5)
    never = torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64)
    assert chi_square_p(torch.tensor([50, 49, 1]), never) == 0.0
