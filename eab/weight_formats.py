"""How the weights of a model can be stored: the names and their meanings.

The formats round the weights, so they change the tokens; the layouts only reorder them for speed.
"""

from collections.abc import Mapping
from typing import Final, Literal, get_args

from eab.errors import ModelError, check_one_of

WeightFormat = Literal[
    "as-loaded", "bfloat16", "int8", "int8-weight-only", "int4", "nf4", "nf4-double-quant"
]
LayoutName = Literal["plain", "tiled", "prepacked"]

AS_LOADED: Final = "as-loaded"
PLAIN: Final = "plain"
TILED: Final = "tiled"
PREPACKED: Final = "prepacked"
AUTO: Final = "auto"
LAYOUTS: Final[tuple[LayoutName, ...]] = get_args(LayoutName)
LARGEST_INT8: Final = 127  # -128 is not used, so that the integers are symmetric
# The values in the appendix of Dettmers et al., QLoRA, 2023 (arXiv 2305.14314).
NF4: Final = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
    *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941),
    *(0.7229568362236023, 1.0),
)

WEIGHT_FORMATS: Final[Mapping[WeightFormat, str]] = {
    "as-loaded": "the number format of the model (dtype)",
    "bfloat16": "16 bits; multiplied in bfloat16",
    "int8": (
        "8 bits, one scale per output; the input of each layer is also rounded to 8 bits, with "
        "one scale per row"
    ),
    "int8-weight-only": "8 bits, one scale per output; multiplied in bfloat16",
    "int4": "4 bits, a scale and a zero point per group of 32 weights; bfloat16 input",
    "nf4": "4 bits, the 16 values of NF4, one scale per block of 64 weights; bfloat16 input",
    "nf4-double-quant": "nf4 whose scales are stored in 8 bits",
}
_MARK: Final = "@"


def full_name(model: str, weights: str) -> str:
    """A model with its weight format, such as `embedded@int8`; only the name if as loaded."""
    return model if weights == AS_LOADED else f"{model}{_MARK}{weights}"


def split_name(name: str) -> tuple[str, str]:
    """The model and the weight format in a name made by `full_name`."""
    model, _, weights = name.rpartition(_MARK)
    return (model, weights) if model and weights in WEIGHT_FORMATS else (name, AS_LOADED)


def check_names(weights: str, layout: str) -> None:
    """Refuse unknown names, and a layout for weights whose format has its own."""
    check_one_of(WEIGHT_FORMATS, weights, "the format of the weights is", ModelError)
    check_one_of((AUTO, *LAYOUTS), layout, "the layout is", ModelError)
    if layout != AUTO and weights != AS_LOADED:
        raise ModelError(
            f"the layout is {layout!r} and the weights are {weights!r}; a layout can be chosen "
            f"only for {AS_LOADED}, so leave it at {AUTO}"
        )
