# SPDX-License-Identifier: Apache-2.0
"""Screen of `trainmover demo`: a bar on a terminal, a line now and then elsewhere."""

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from trainmover.cli.console import Terminal

LINE_EVERY = 20


class DemoScreen:
    """Screen of one run. Use it as a context; lines said meanwhile stand above the bar."""

    def __init__(self, console: Terminal, title: str, steps: int) -> None:
        self._console = console
        self._live = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            console=console,
        )
        self._title = title
        self._task = self._bar.add_task(f"{title:<12}", total=steps, now="starting")

    def __enter__(self) -> "DemoScreen":
        if self._live:
            self._bar.start()
        else:
            self._console.print(f"{self._title}: starting", style="dim")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def step(self, step: int, loss: float | None, step_ms: float | None) -> None:
        """Rank 0 has committed a step."""
        now = f"loss {loss:.4f}" if loss is not None else ""
        now += f"  {step_ms:.0f} ms/step" if step_ms is not None else ""
        if self._live:
            self._bar.update(self._task, completed=step, now=now)
        elif step % LINE_EVERY == 0:
            self._console.print(f"{self._title}  step {step:<4} {now}")

    def say(self, text: str) -> None:
        """Something happened that changes the run."""
        self._console.print(text, style="bold yellow")
