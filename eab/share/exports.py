"""A run for other programs: its tree as a graph and as GraphML, and the Python program that
reproduces it.
"""

import io
from dataclasses import fields
from typing import TYPE_CHECKING, Final

from eab import token_text
from eab.config import BranchingConfig
from eab.engine.branching.presets import START, starting_values
from eab.figures.captions import file_stem
from eab.run import RunState
from eab.run.events import RunStarted
from eab.run.events.chat import as_json
from eab.weight_formats import AS_LOADED, PLAIN

if TYPE_CHECKING:
    import networkx as nx

_ALWAYS: Final = frozenset(starting_values())
_PRINTED: Final = """\
for sample in run.samples:
    print(f"{sample.weight:.3f} {sample.text!r}")
"""


def tree_graph(run: RunState) -> "nx.DiGraph[int]":
    """The tree of a run: one node per path, and an edge to each child with its share of the weight.

    Nodes have text, weight, status, number of tokens and, if they fork, fork entropy (nats).
    """
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(name=token_text.visible(run.started.prompt))
    for path in run.paths:
        text = token_text.visible_join(token.kept for token in path.tokens)
        graph.add_node(
            path.id, text=text, weight=path.weight, status=path.status, tokens=len(path.tokens)
        )
        if path.fork_entropy is not None:
            graph.nodes[path.id]["fork_entropy"] = path.fork_entropy
        if path.parent >= 0:
            graph.add_edge(path.parent, path.id, share=path.share)
    return graph


def to_graphml(run: RunState) -> bytes:
    """The tree as a GraphML file."""
    import networkx as nx

    buffer = io.BytesIO()
    nx.write_graphml_xml(tree_graph(run), buffer)
    return buffer.getvalue()


def as_python(started: RunStarted) -> str:
    """The program, with model, device, dtype, weights, every setting that differs from its default,
    and those that presets and sampling set.

    On the same kind of machine it gives the same events, except for the timings. An imported run
    can only be read from its file.
    """
    if started.imported:
        return f'import eab\n\nrun = eab.load("{file_stem(started)}.eab")\n{_PRINTED}'
    card = started.model
    given: dict[str, object] = {"device": card.device, "dtype": card.dtype}
    given |= {"weights": card.weights} if card.weights != AS_LOADED else {}
    given |= {"layout": card.layout} if card.layout != PLAIN else {}
    given |= {"draft": started.draft.name} if started.draft is not None else {}
    given |= {
        field.name: getattr(started.config, field.name)
        for field in fields(BranchingConfig)
        if field.name in _ALWAYS
        or getattr(started.config, field.name) != getattr(START, field.name)
    }
    arguments = "".join(f"    {name}={value!r},\n" for name, value in given.items())
    tokens = started.continued_tokens
    more = f", continued={tokens!r}" if tokens else ""
    more += ", parse_special=True" if started.parse_special else ""
    text = as_json(started.messages) or started.prompt
    prompt = repr([*started.own_tokens] if started.by_token_ids else text)
    note = f"# The run used {started.own_parts}: add them.\n" if started.own_parts else ""
    return note + (
        "from eab import EntropyAdaptiveBranching\n\n"
        f"explorer = EntropyAdaptiveBranching(\n    {card.name!r},\n{arguments})\n"
        f"run = explorer.run({prompt}{more})\n"
        f"{_PRINTED}"
    )
