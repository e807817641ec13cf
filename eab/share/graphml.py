"""The tree of a run as a networkx graph, and as GraphML for other programs."""

import io

import networkx as nx

from eab import token_text
from eab.run import RunState


def tree_graph(run: RunState) -> "nx.DiGraph[int]":
    """The tree of a run: one node per path, and an edge to each child with its share of the weight.

    Nodes have text, weight, status, number of tokens and, if they fork, fork entropy (nats).
    """
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
    buffer = io.BytesIO()
    nx.write_graphml_xml(tree_graph(run), buffer)
    return buffer.getvalue()
