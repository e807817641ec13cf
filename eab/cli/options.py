"""The command-line options that several commands have: name, type and help; the defaults are
BranchingConfig's.
"""

from typing import Annotated, Any

import typer

Prompt = Annotated[
    str, typer.Argument(help="what the model continues; - reads it from standard input")
]
Model = Annotated[str, typer.Option(help="embedded, a local folder, or a Hub id")]
Threshold = Annotated[float, typer.Option(help="fork where the entropy reaches it")]
Unit = Annotated[str, typer.Option(help="of the threshold: nats, normalised, quantile")]
BranchFactor = Annotated[int, typer.Option(help="children per fork")]
MinForkWeight = Annotated[float, typer.Option(help="lighter paths do not fork")]
MaxPaths = Annotated[int, typer.Option(help="live and finished paths")]
MaxNewTokens = Annotated[int, typer.Option(help="per path")]
Temperature = Annotated[float, typer.Option()]
TopK = Annotated[int, typer.Option(help="0 keeps all tokens")]
TopP = Annotated[float, typer.Option(help="1 keeps all tokens")]
R = Annotated[
    Any,
    typer.Option(
        parser=lambda given: int(given) if str(given).isdecimal() else given,
        metavar="INTEGER|auto",
        help="the tree cache's tensors grow by r steps' worth of rows",
    ),
]
Attention = Annotated[
    str, typer.Option(help="of the tree cache: sliced, padded (visits the spare rows)")
]
Seed = Annotated[int, typer.Option()]
Policy = Annotated[str, typer.Option(help="fair, original, greedy, independent")]
Chat = Annotated[bool, typer.Option("--chat", help="use the model's chat template")]
System = Annotated[str, typer.Option(help="system message, with --chat")]
KvLimitMib = Annotated[int, typer.Option(help="end a run before its KV cache is larger")]
Cache = Annotated[str, typer.Option(help="tree, concat-cow, deep-copy, recompute")]
Drafter = Annotated[
    str, typer.Option(help="who guesses tokens ahead: none, model, prompt-lookup, sibling-lookup")
]
DraftLength = Annotated[int, typer.Option(help="tokens guessed at most; 0 chooses by what pays")]
Draft = Annotated[
    str,
    typer.Option(
        help="the model that guesses, with --drafter model; its vocabulary must be the same"
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16, float16, float64")]
