"""Numbers for Prometheus, in a registry of the server's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mineru_diffusion.engine.types import Result
from mineru_diffusion.serving.worker import EngineWorker

PREFIX = "mineru_diffusion_"
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """Counts what passes the door, and reads the worker and the job runner when asked.

    Args:
        worker: of the server.
        jobs: gives the number of jobs by state.
    """

    def __init__(self, worker: EngineWorker, jobs: Callable[[], dict[str, int]]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{PREFIX}requests", "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            f"{PREFIX}request_seconds",
            "Time to the end of the answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._tokens = Counter(
            f"{PREFIX}chat_tokens", "Tokens of answered chat requests.", ["kind"], registry=self._registry
        )
        self._endings = Counter(
            f"{PREFIX}chat_endings", "Answered chat requests by ending.", ["reason"], registry=self._registry
        )
        self._registry.register(_Live(worker, jobs))

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request is over."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def answered(self, result: Result) -> None:
        """A chat request got its answer."""
        self._tokens.labels("prompt").inc(result.prompt_tokens)
        self._tokens.labels("generated").inc(len(result.tokens))
        self._endings.labels(result.finish_reason).inc()

    def text(self) -> bytes:
        """All of them in Prometheus' text format."""
        return generate_latest(self._registry)


class _Live(Collector):
    """What is read at the moment of asking."""

    def __init__(self, worker: EngineWorker, jobs: Callable[[], dict[str, int]]) -> None:
        self._worker = worker
        self._jobs = jobs

    def collect(self) -> Iterable[Metric]:
        waiting, running = self._worker.depth()
        used, pages = self._worker.cache_pages
        counters = self._worker.counters
        gauges = {
            "engine_requests_waiting": ("Engine requests that wait for a place.", waiting),
            "engine_requests_running": ("Engine requests that the engine has.", running),
            "cache_pages_used": ("Cache pages in use.", used),
            "cache_pages": ("Cache pages in all.", pages),
            "healthy": ("1 if the engine works.", int(self._worker.healthy)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(PREFIX + name, text, value)
        totals = {
            "engine_passes": ("Forward passes.", counters.passes),
            "engine_tokens": ("Tokens decoded.", counters.tokens),
            "engine_finished": ("Engine requests that came to their end.", counters.finished),
            "engine_cancelled": ("Engine requests that were given up.", counters.cancelled),
            "engine_failed": ("Engine requests that failed.", counters.failed),
        }
        for name, (text, value) in totals.items():
            yield CounterMetricFamily(PREFIX + name, text, value)
        jobs = GaugeMetricFamily(PREFIX + "jobs", "Jobs by state.", labels=["state"])
        for state, number in self._jobs().items():
            jobs.add_metric([state], number)
        yield jobs
