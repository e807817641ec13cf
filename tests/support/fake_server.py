"""A server that answers like llama.cpp or vLLM, with the probabilities of the embedded model, until
a test tells it to misbehave.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from eab.engine.caches.factory import make_cache
from eab.engine.models.huggingface import HuggingFaceModel

Change = Callable[[Any], Any]
Tops = list[dict[int, float]]  # for each token, the most likely tokens with ln p


class FakeServer(ThreadingHTTPServer):
    """Serves the embedded model in both dialects.

    Attributes:
        change: Changes each answer to a request for tokens.
        change_tops: Changes the log-probabilities of each text before a dialect formats them.
        respond: If set, answers requests for tokens instead.
        requests: The bodies of the requests for tokens.
        own: Its generation config: the values of what a request leaves out.
        keys: The `Authorization` headers received.
        abandoned: Set when a client disconnected before its answer.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, model: HuggingFaceModel) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.begin(model)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._lock = threading.Lock()

    def __enter__(self) -> "FakeServer":
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.shutdown()
        self.server_close()

    def begin(self, model: HuggingFaceModel) -> None:
        """Serve this model, and forget what was asked before."""
        self.model = model
        self.answer_well()
        self.requests: list[Any] = []
        self.keys: set[str] = set()
        self.abandoned = threading.Event()
        self.max_top = 4096

    def answer_well(self) -> None:
        self.change: Change = lambda answer: answer
        self.change_tops: Callable[[Tops], object] = lambda tops: None
        self.respond: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.own: dict[str, float] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that have disconnected."""

    def next(self, text: list[int], top: int) -> dict[int, float]:
        """The most likely next tokens, with ln p."""
        with self._lock:
            values, ids = _log_probs(self.model, tuple(text)).topk(top)
        return dict(zip(ids.tolist(), values.tolist(), strict=True))

    def continuation(
        self, text: list[int], top: int, length: int, penalty: float
    ) -> tuple[list[int], Tops]:
        """The most likely tokens after a text with this repetition penalty, and the predictions
        for each without it.
        """
        tokens: list[int] = []
        tops: Tops = []
        for _ in range(length):
            before = [*text, *tokens]
            tops.append(self.next(before, top))
            scores = {t: p * penalty if t in before else p for t, p in tops[-1].items()}
            tokens.append(max(scores, key=scores.__getitem__))
        self.change_tops(tops)
        return tokens, tops

    def wait_for_the_client_to_leave(self, handler: BaseHTTPRequestHandler) -> None:
        """Send no answer, and note when the client closes its connection."""
        handler.connection.settimeout(20)
        if not handler.connection.recv(1):
            self.abandoned.set()


@cache  # tests ask for the same few texts again and again
@torch.inference_mode()
def _log_probs(model: HuggingFaceModel, text: tuple[int, ...]) -> torch.Tensor:
    """Of the next token, (V,)."""
    recompute = make_cache("recompute", model.kv_shape, 1, 2**40)
    return model.forward([recompute.prepare([0], [text])]).log_softmax(-1)[0]


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        meta = {"n_vocab": self.server.model.card.vocab_size}
        if self.path == "/metrics":
            self.send(b'vllm:cache_config_info{block_size="32",x="y"} 1.0\n')
        elif self.path == "/props":
            self.send_json({"default_generation_settings": {"n_ctx": 512}})
        else:
            self.send_json({"data": [{"id": "embedded", "max_model_len": 512, "meta": meta}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.keys.add(self.headers.get("Authorization", ""))
        if self.path == "/tokenize":
            text = body.get("content") or body.get("prompt")
            self.send_json({"tokens": list(self.server.model._tokenizer.encode(text))})
            return
        self.server.requests.append(body)
        if self.server.respond is not None:
            self.server.respond(self)
            return
        llama = self.path == "/completion"
        if body["n_probs" if llama else "logprobs"] > self.server.max_top:
            self.send(b'{"error": "too many log-probabilities"}', 400)
            return
        self.send_json(self.server.change(self.llama(body) if llama else self.vllm(body)))

    def answers(self, body: Any, top: str, length: str, penalty: str) -> Iterator[Any]:
        """Each text of a request with its continuation; the names are those of its settings."""
        factor = (self.server.own | body).get(penalty, 1.0)
        forced = [token for token, _ in body.get("logit_bias", ())]
        for text in body["prompt"]:
            tokens, tops = self.server.continuation(text, body[top], body[length], factor)
            yield text, forced or tokens, tops

    def llama(self, body: Any) -> Any:
        found = self.answers(body, "n_probs", "n_predict", "repeat_penalty")
        return [
            {
                "index": index,
                "model": "embedded",
                "tokens": tokens,
                "tokens_evaluated": len(text),
                "timings": {"cache_n": len(text) - 1},
                "completion_probabilities": [
                    {"id": token, "top_logprobs": [{"id": t, "logprob": p} for t, p in top.items()]}
                    for token, top in zip(tokens, tops, strict=True)
                ],
            }
            for index, (text, tokens, tops) in enumerate(found)
        ]

    def vllm(self, body: Any) -> Any:
        choices = []
        found = self.answers(body, "logprobs", "max_tokens", "repetition_penalty")
        for index, (_, tokens, tops) in enumerate(found):
            named = [{f"token_id:{one}": p for one, p in top.items()} for top in tops]
            own = {"tokens": [f"token_id:{token}" for token in tokens], "top_logprobs": named}
            choices.append({"index": index, "logprobs": own})
        usage = {"prompt_tokens_details": {"cached_tokens": 16}}
        return {"model": "embedded", "choices": choices, "usage": usage}

    def send_json(self, value: Any) -> None:
        self.send(json.dumps(value).encode())

    def send(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def send_slowly(self, content: bytes) -> None:
        """Send the content byte by byte, again and again."""
        self.send_response(200)
        self.end_headers()
        while True:
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.05)
