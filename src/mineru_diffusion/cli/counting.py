"""Progress of commands that go through samples or settings: how many are done of how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def sample_progress(total: int, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """What to call with the number of samples done: a bar on a terminal, else a line for each tenth, on stderr."""
    with counted("samples", shown=shown) as tell:
        yield lambda done: tell(done, total)


@contextmanager
def counted(what: str, *, shown: bool = True) -> Iterator[Callable[[int, int], None]]:
    """What to call with how many things are done and how many there are: a bar on a terminal, else a line for each
    tenth, on stderr."""
    from rich.console import Console

    console = Console(stderr=True)
    if not shown:
        yield lambda done, total: None
        return
    if not console.is_terminal:
        said = 0

        def say(done: int, total: int) -> None:
            nonlocal said
            if done * 10 // total > said:
                said = done * 10 // total
                console.print(f"{done}/{total} {what}", highlight=False)

        yield say
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
