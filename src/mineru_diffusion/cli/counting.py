"""Progress of commands that go through samples: how many are done of how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def sample_progress(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """What to call with the number of samples done: a bar on a terminal, else a line for each tenth, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not shown:
        yield lambda done: None
        return
    if not console.is_terminal:
        said = 0

        def say(done: int) -> None:
            nonlocal said
            if done * 10 // total > said:
                said = done * 10 // total
                console.print(f"{done}/{total} samples", highlight=False)

        yield say
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("samples"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("samples", total=total)
        yield lambda done: bar.update(task, completed=done)
