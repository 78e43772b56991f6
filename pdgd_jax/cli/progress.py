"""The progress of a sweep as bars or lines."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from pdgd_jax._internal.text import count_in_words, duration_in_words, size_in_words
from pdgd_jax.cli.cost import cost_in_words
from pdgd_jax.cli.output import plain_table, print_table
from pdgd_jax.simulation import local_devices
from pdgd_jax.sweeps import Cost, Plan, SweepProgress, SweepState, cost_of_plan

# Showing


def cost_of(plan: Plan, devices: int | None) -> Cost:
    """The cost of a plan on a number of devices per process."""
    import jax

    return cost_of_plan(plan, len(local_devices(devices)), jax.process_count())


def print_plan(console: Console, plan: Plan, cost: Cost) -> None:
    """Print the groups of a plan, one per row, and the total cost."""
    table = plain_table(
        "group", "learners", "instances", ">L, S, A", ">m", ">lanes", ">at once", ">episodes",
        ">memory",
    )  # fmt: skip
    for group in plan.groups:
        table.add_row(
            group.name,
            Text(", ".join(group.learners)),
            Text(", ".join(group.instances)),
            ", ".join(map(str, group.shape)),
            str(group.num_constraints),
            f"{group.lanes:,}",
            f"{group.width:,}",
            f"{group.episodes:,}",
            size_in_words(group.bytes_per_device),
        )
    print_table(console, table)
    blocks = [block for _, block in plan.blocks()]
    times_saved = sum(len(block.chunks) for block in blocks)
    console.print(
        f"{count_in_words(plan.lanes, 'lane')} in {count_in_words(len(blocks), 'block')}, "
        f"{count_in_words(plan.episodes, 'episode')}, "
        f"{count_in_words(len(plan.groups), 'compilation')}, "
        f"saved {count_in_words(times_saved, 'time')}; lanes at once and memory are of one device"
    )
    console.print(Text(cost_in_words(cost)), soft_wrap=True)


def speed_in_words(done: int, total: int, speed: float | None, left: float | None) -> str:
    """Such as `100 of 200 episodes, 50 episodes/s, 2 s left`."""
    words = f"{done:,} of {total:,} episodes"
    if speed:
        words += f", {speed:,.0f} episodes/s"
    if speed and left is not None and done < total:
        words += f", {duration_in_words(left)} left"
    return words


class RunView:
    """Shows the progress of a run as one bar.

    Attributes:
      seconds: the time it has played so far, without compilation.
    """

    def __init__(self, console: Console, title: str, *, quiet: bool = False) -> None:
        self._title = title
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet,
        )
        self._task = self._bar.add_task("compiling", rate="")
        self.seconds = 0.0

    def __enter__(self) -> "RunView":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: SweepProgress) -> None:
        """Show the progress."""
        self.seconds = progress.seconds
        if progress.state == SweepState.PLAYING:
            self._bar.update(
                self._task,
                description=self._title,
                total=progress.plan.episodes,
                completed=progress.episodes,
                rate=f"{progress.speed:,.0f} episodes/s" if progress.speed else "",
            )


class ProgressView:
    """Shows the progress of a sweep: bars on a terminal, otherwise a line now and then."""

    def __init__(self, console: Console, pause: float = 10.0, devices: int | None = None) -> None:
        self._console, self._devices = console, devices
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._pause, self._last = pause, -pause
        self._state = ""
        self._told: set[str] = set()

    def __enter__(self) -> "ProgressView":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, progress: SweepProgress) -> None:
        """Show the progress."""
        if not self._state:
            cost = cost_of(progress.plan, self._devices)
            print_plan(self._console, progress.plan, cost)
            if self._console.is_terminal and not self._console.quiet:
                self._begin_bars(progress)
        for sentence in progress.damage:
            if sentence not in self._told:
                self._told.add(sentence)
                again = Text(f"{sentence} It is played again.", style="yellow")
                self._console.print(again, soft_wrap=True)
        changed = f"{progress.state} {progress.group}" != self._state
        self._state = f"{progress.state} {progress.group}"
        if self._bars is not None:
            self._move_bars(self._bars, progress)
        elif progress.state != SweepState.PLANNED:
            now = time.monotonic()
            if changed or now >= self._last + self._pause:
                self._last = now
                self._console.print(_line(progress), soft_wrap=True)

    def _begin_bars(self, progress: SweepProgress) -> None:
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
        )
        for group in progress.plan.groups:
            name = f"{group.name} {', '.join(group.learners)}"
            self._tasks[group.name] = self._bars.add_task(name, total=group.episodes, note="")
        if len(progress.plan.groups) > 1:
            self._tasks[""] = self._bars.add_task("all", total=progress.plan.episodes, note="")
        self._bars.start()

    def _move_bars(self, bars: Progress, progress: SweepProgress) -> None:
        for name, task in self._tasks.items():
            if name:
                note = progress.state if progress.group == name else ""
                done = progress.done[name]
            if not name or len(self._tasks) == 1:
                done = progress.episodes
                note = speed_in_words(
                    done, progress.plan.episodes, progress.speed, progress.seconds_left
                )
                note = progress.state if progress.state == SweepState.COMPILING else note
            bars.update(task, completed=done, note=note)


def _line(progress: SweepProgress) -> str:
    if progress.state == SweepState.COMPILING:
        return f"{progress.group}: compiling"
    if progress.state in (SweepState.EVALUATING, SweepState.WAITING):
        return (
            "evaluating"
            if progress.state == SweepState.EVALUATING
            else "waiting for other processes"
        )
    total = progress.plan.episodes
    words = speed_in_words(progress.episodes, total, progress.speed, progress.seconds_left)
    return f"{100 * progress.episodes / total:3.0f}%  {progress.group}: {words}"
