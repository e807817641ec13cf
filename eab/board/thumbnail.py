"""The tree of a run as a small SVG without text, to tell runs apart at a glance."""

from typing import Final
from xml.etree import ElementTree as Xml

from eab.board.layout import tidy
from eab.run import RunState

WIDTH: Final = 150.0
HEIGHT: Final = 64.0
DOT: Final = 2.2  # radius
_COLOUR: Final = "#7f8792"  # visible on white and on black
_HEAVIEST: Final = 4.0  # line width of a path with weight 1


def thumbnail(run: RunState) -> str:
    """All paths as lines, wider for heavier paths, with a dot where a text ends."""
    layout = tidy(run)
    across = (WIDTH - 2 * DOT) / max(1.0, layout.width)
    down = (HEIGHT - 2 * DOT) / max(1.0, layout.height)
    svg = Xml.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}",
            "width": f"{WIDTH:g}",
            "height": f"{HEIGHT:g}",
            "fill": "none",
            "stroke": _COLOUR,
        },
    )
    for path in run.paths:
        if path.status == "pruned":
            continue
        begin, y = DOT + layout.x[path.id] * across, DOT + layout.y[path.id] * down
        end = begin + layout.box_widths[path.id] * across
        if path.parent < 0:
            start_x, start_y = DOT, y
        else:
            parent = path.parent
            start_x = DOT + (layout.x[parent] + layout.box_widths[parent]) * across
            start_y = DOT + layout.y[parent] * down
        drawn = f"M{start_x:.1f} {start_y:.1f}L{begin:.1f} {y:.1f}L{end:.1f} {y:.1f}"
        width = f"{max(0.6, _HEAVIEST * path.weight):.2f}"
        Xml.SubElement(svg, "path", {"d": drawn, "stroke-width": width, "opacity": "0.6"})
        if path.status != "forked":
            place = {"cx": f"{end:.1f}", "cy": f"{y:.1f}", "r": f"{DOT:g}"}
            Xml.SubElement(svg, "circle", place | {"fill": _COLOUR, "stroke": "none"})
    return Xml.tostring(svg, encoding="unicode")
