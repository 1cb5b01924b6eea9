# SPDX-License-Identifier: Apache-2.0
"""One of several machines is slower than the others, or its clock is off: whether that is said, and
how, and that it takes no ranks; whoever asks is told all that was measured."""

import random
from statistics import median

from courses.policies.health import Course
from trainmover.controller.events import HealthRequested
from trainmover.ids import MachineId
from trainmover.simulator.happenings import Violation

RATES = {
    "memory_gb_s": ("its memory", "GB/s", 20.0),
    "disk_mb_s": ("its disk", "MB/s", 500.0),
    "network_mb_s": ("its network", "MB/s", 900.0),
    "gpu_tflop_s": ("its slowest GPU", "TFLOP/s", 80.0),
}
LEAST_KNOWN = 4


def _is_said(course: Course, name: MachineId, figures: dict[str, float]) -> None:
    """Whoever asks is told all that was measured."""
    job = course.job
    job.trains()
    job.told.clear()
    job.hear(HealthRequested(at_us=job.now_us, request="all", machine=name))
    course.ordered()
    usual = {one: its[2] for one, its in RATES.items()}
    course.answer(name, figures=usual, off_ms=7.0)
    said = course.last_answer()
    words = [f"{of} {usual[one]:.3g} {unit}" for one, (of, unit, _) in RATES.items()]
    truth = ", ".join([*words, "its clock 7 ms off"])
    if said is None or not said.ok or said.text != f"{name} is fit: {truth}":
        raise Violation(f"{name} had {figures}, and has {truth!r}; it is said {said}")
    course.is_kept_out(name, "")


def play(chance: random.Random) -> None:
    """Beside the others, if there are enough of them, and by so much that it matters."""
    course = Course(chance, "act", standbys=chance.choice((0, 1, 2, 4)))
    job = course.job
    odd = chance.choice(job.names)
    name = chance.choice([*RATES])
    part = chance.choice((0.5, 0.6, 0.8, 0.9, 2.0))
    off_ms = chance.choice((0.0, 0.0, 400.0, 2000.0, -3000.0))
    told: dict[MachineId, dict[str, float]] = {}
    for machine in chance.sample(job.names, len(job.names)):
        figures = {one: its[2] * chance.uniform(0.99, 1.01) for one, its in RATES.items()}
        figures["of another version"] = 1.0 if machine == odd else 100.0
        if machine == odd:
            figures[name] = RATES[name][2] * part
        told[machine] = figures
        course.answer(machine, figures=figures, off_ms=off_ms if machine == odd else 0.0)
    known = len(job.names) >= LEAST_KNOWN
    of, unit, _ = RATES[name]
    values = [figures[name] for figures in told.values()]
    wrong = ""
    if known and part < 0.7:
        has, of_all = f"{told[odd][name]:.3g} {unit}", f"{len(values)} machines"
        wrong = f"{of} has {has}, and the median of {of_all} is {median(values):.3g}"
    elif known and abs(off_ms) > 1000:
        wrong = f"its clock is {abs(off_ms) / 1000:.1f} s off those of others"
    for machine in job.names:
        gone = machine not in job.job.machines
        course.is_kept_out(machine, f"not fit: {wrong}" if machine == odd and wrong else "")
        if gone:
            raise Violation(f"{machine} is slow, and is gone")
    enough = len(job.names) - bool(wrong) >= 3
    if (job.end() is None) is not enough or (wrong and odd in job.job.seats):
        raise Violation(f"{odd} is not fit, {wrong!r}: {job.end()}, {job.job.seats}")
    if enough and odd not in job.job.seats:
        _is_said(course, odd, told[odd])
