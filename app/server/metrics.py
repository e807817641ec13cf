"""Counts of what this server does, for Prometheus (app/server/http.py) and the Server page.

They contain no prompts or texts.
"""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from app.server.worker import Worker

PREFIX: Final = "eab_"
RUNS: Final = Counter("eab_runs", "Ended runs, sweeps and measurements, by reason", ["reason"])
RESTARTS: Final = Counter("eab_worker_restarts", "Restarts of the worker after an error")
TOKENS: Final = Counter("eab_generated_tokens", "Tokens that were appended to paths")
FIRST_TOKEN: Final = Histogram(
    "eab_first_token_seconds",
    "Time from pressing Run to the first token, including the time in the queue",
    buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
)
ACTIVE: Final = Gauge("eab_active", "Runs, sweeps and measurements that are queued or running")
WAITING: Final = Gauge("eab_waiting_runs", "Runs waiting for a slot")
KV_BYTES: Final = Gauge("eab_kv_bytes", "KV memory of the active runs")
KV_LIMIT: Final = Gauge("eab_kv_limit_bytes", "Limit of the KV memory of all runs")


def watch(worker: "Worker") -> None:
    """Let the gauges read this worker through a weak reference, so they do not keep it alive."""
    known = weakref.ref(worker)

    def show(gauge: Gauge, read: Callable[["Worker"], int]) -> None:
        gauge.set_function(lambda: float(read(alive)) if (alive := known()) else 0.0)

    show(ACTIVE, lambda worker: worker.active)
    show(WAITING, lambda worker: worker.waiting)
    show(KV_BYTES, lambda worker: worker.kv_bytes)
    show(KV_LIMIT, lambda worker: worker.kv_limit_bytes)


def exposition() -> bytes:
    """All metrics, including those of the process, in Prometheus's text format."""
    return generate_latest(REGISTRY)


def counts() -> dict[str, float]:
    """This project's metrics, by name and label, without histogram buckets."""
    return {
        " ".join((sample.name.removeprefix(PREFIX), *sample.labels.values())): sample.value
        for metric in REGISTRY.collect()
        if metric.name.startswith(PREFIX)
        for sample in metric.samples
        if not sample.name.endswith(("_bucket", "_created"))
    }
