"""Machines that seem about to fail: what is found, and what is done about it."""

import random
from dataclasses import replace

import msgspec
import pytest
from jobs import RUNNING, after, joined, lost, move, running
from test_drain import done

from trainmover.controller import Job, decide
from trainmover.controller.events import AgentSaid, AnomalyFound, UncordonRequested
from trainmover.controller.policies.anomalies.answer import AGAIN_US
from trainmover.controller.policies.anomalies.drift import BLOCK, FIRST, Drift
from trainmover.controller.policies.anomalies.filling import full_in_s
from trainmover.controller.policies.anomalies.look import ROUND_US, Look
from trainmover.controller.policies.anomalies.repeats import repeating
from trainmover.controller.policies.anomalies.told import MINUTE_US
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of
from trainmover.symptoms import SYMPTOMS, symptom_in, symptom_named

FOUR = running(machines=4, standbys=2)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus."


def policy(job: Job, name: str = "act") -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, anomalies=name))


def sign(
    machine: str, symptom: str = "gpu", *, line: str = XID, count: int = 1, at_us: int = 100
) -> AgentSaid:
    fact = m.Sign(symptom=symptom, line=line, count=count)
    return AgentSaid(at_us=at_us, machine=MachineId(machine), fact=fact)


def found(
    machine: str, sign: str = "late", *, grave: bool = True, at_us: int = 100
) -> AnomalyFound:
    return AnomalyFound(
        at_us=at_us, machine=MachineId(machine), sign=sign, text="it is late", grave=grave
    )


def of(job: Job) -> list[tuple[str, str, int]]:
    return [(one.machine, one.sign, one.times) for one in job.anomalies.findings]


def test_a_machine_whose_kernel_says_that_it_is_broken_gives_its_ranks_to_a_standby() -> None:
    job, _ = decide(policy(FOUR), sign("m2"))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}
    assert job.incidents[-1].cause == f"m2 is about to fail: a GPU is broken: {XID}"
    assert cause_of(job.incidents[-1]) == "failing machine"
    job = done(job)
    assert "m2" not in job.seats
    assert job.cordoned["m2"].failing
    assert job.anomalies.findings[-1].done == "its ranks go to a standby"


def test_to_watch_is_to_say_it() -> None:
    job, effects = decide(policy(FOUR, "watch"), sign("m2"))
    assert (job.change, effects, job.cordoned) == (None, (), {})
    assert "--anomalies act" in job.anomalies.findings[-1].done
    assert decide(policy(FOUR, "off"), sign("m2")) == (policy(FOUR, "off"), ())


def test_a_line_that_healthy_machines_have_too_counts_where_many_come() -> None:
    job = policy(FOUR)
    for minute in range(60):
        job, _ = decide(job, sign("m2", "corrected", at_us=minute * MINUTE_US))
    assert of(job) == []
    job, _ = decide(job, sign("m2", "corrected", count=12, at_us=60 * MINUTE_US))
    assert of(job) == [("m2", "corrected", 12)]
    assert job.change is not None
    assert "more than 1 a minute" in job.incidents[-1].cause


def test_sums_of_machines_that_are_gone_are_forgotten() -> None:
    job, _ = after(policy(FOUR), sign("m6", "heat"), lost("m6"), sign("m2", "heat"))
    assert list(job.anomalies.excesses) == [("m2", "heat")]
    job, _ = after(job, sign("m3", "heat"), sign("m2", "corrected"))
    assert {*job.anomalies.excesses} == {("m2", "heat"), ("m3", "heat"), ("m2", "corrected")}


def test_the_same_is_told_once_an_hour() -> None:
    job, _ = after(policy(FOUR, "watch"), sign("m2"), sign("m2", at_us=AGAIN_US))
    assert of(job) == [("m2", "gpu", 2)]
    job, _ = decide(job, sign("m2", at_us=AGAIN_US + 100))
    assert of(job) == [("m2", "gpu", 2), ("m2", "gpu", 1)]


def test_what_is_told_again_is_counted_where_it_stands() -> None:
    told = [found(f"m{n}", "filling", grave=False) for n in (1, 2, 3)]
    job, _ = after(policy(FOUR), *told, told[1])
    assert of(job) == [("m1", "filling", 1), ("m2", "filling", 2), ("m3", "filling", 1)]


def test_what_is_not_grave_is_never_acted_upon() -> None:
    job, effects = decide(policy(FOUR), found("m2", "filling", grave=False))
    assert (job.change, effects, job.cordoned) == (None, (), {})
    assert of(job) == [("m2", "filling", 1)]


def test_most_of_a_job_is_never_taken_out() -> None:
    job, _ = after(policy(FOUR), *(found(f"m{n}") for n in range(1, 7)))
    assert [name for name, one in job.cordoned.items() if one.failing] == ["m1"]
    assert "hardly what is broken" in job.anomalies.findings[-1].done
    gone, _ = after(policy(running(machines=4, standbys=3)), found("m1"), lost("m1"))
    job, _ = decide(done(gone), found("m2"))
    assert job.cordoned["m2"].failing, "m1 is not here to be counted"


def test_without_a_standby_it_stays_until_one_comes() -> None:
    job, _ = decide(policy(running(machines=3, standbys=0)), sign("m2"))
    assert job.change is None
    job, _ = decide(job, joined("m9", standby=True))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}


def test_a_standby_that_seems_to_fail_takes_no_ranks() -> None:
    job, _ = after(policy(FOUR), sign("m5"), move("m1"))
    assert job.change is not None
    assert job.change.joiners == {0: "m6"}


def test_it_comes_before_who_will_be_taken_away_later() -> None:
    one = running(machines=4, standbys=1)
    leaves = AgentSaid(at_us=100, machine=MachineId("m3"), fact=m.Leaving(left_ms=60_000))
    job, _ = after(policy(one), move("m1"), leaves, sign("m2"))
    job, _ = decide(done(job), joined("m9", standby=True))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}


def test_people_let_it_take_ranks_again_and_it_keeps_their_reason() -> None:
    job, _ = after(policy(FOUR), sign("m5"), UncordonRequested(at_us=1, request="u", machine="m5"))
    assert "m5" not in job.cordoned


@pytest.mark.parametrize("event", [sign("m9"), found("m9"), sign("m2", "of another version")])
def test_of_a_machine_that_is_not_here_or_a_rule_that_is_not_known_nothing_is_kept(
    event: AgentSaid | AnomalyFound,
) -> None:
    assert decide(policy(FOUR), event) == (policy(FOUR), ())


# --- the detectors -------------------------------------------------------------------------------

KERNEL = {
    "gpu": [XID, "NVRM: Xid (PCI:0000:c1:00): 48, pid=91, An uncorrectable double bit error"],
    "memory": [
        "EDAC MC1: 1 UE memory read error on CPU_SrcID#1_Ha#0_Chan#0_DIMM#0",
        "{1}[Hardware Error]: event severity: fatal",
        "Memory failure: 0x7f2a3: recovery action for dirty LRU page: Recovered",
    ],
    "disk lost": [
        "EXT4-fs (sda1): Remounting filesystem read-only",
        "nvme nvme0: controller is down; will reset: CSTS=0xffffffff",
    ],
    "corrected": [
        "NVRM: Xid (PCI:0000:3b:00): 63, pid=0, Row Remapper: New row marked for remapping",
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "mce: [Hardware Error]: Machine check events logged",
    ],
    "disk": ["blk_update_request: I/O error, dev sda, sector 2048 op 0x0"],
    "network": ["mlx5_core 0000:5e:00.0 ens1f0np0: Link is Down"],
    "stall": ["watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:991]"],
    "heat": ["CPU4: Package temperature above threshold, cpu clock throttled"],
}
HARMLESS = [
    "NVRM: Xid (PCI:0000:3b:00): 13, pid=991, Graphics SM Warp Exception",  # A script's own bug.
    "NVRM: Xid (PCI:0000:3b:00): 31, pid=991, MMU Fault",
    "Out of memory: Killed process 991 (python)",
    "usb 1-1: new high-speed USB device number 2",
    "mlx5_core 0000:5e:00.0 ens1f0np0: Link is Up",
    "",
]


def test_every_rule_has_lines_that_it_finds_and_none_finds_what_is_harmless() -> None:
    assert set(KERNEL) == {one.name for one in SYMPTOMS}
    for name, lines in KERNEL.items():
        for line in lines:
            symptom = symptom_in(line)
            assert symptom is symptom_named(name), line
    assert [line for line in HARMLESS if symptom_in(line)] == []


class Beats:
    """Six machines whose agents speak every fifth of a second."""

    def __init__(self, job: Job = FOUR) -> None:
        self.look, self.job, self.now = Look(), job, 0
        self.found: list[AnomalyFound] = []

    def rounds(self, count: int, late: tuple[str, ...] = (), free: float = 50e9) -> "Beats":
        for _ in range(count):
            for at_us in range(0, ROUND_US, 200_000):
                self.now += 200_000
                for name in self.job.machines:
                    if name not in late or at_us % 5_000_000 == 0:
                        self.look.heard(name, round(free), 100 * 10**9, self.now)
                self.found += self.look.look(self.job, self.now)
        return self


def test_one_that_speaks_late_again_and_again_is_found_and_told_once() -> None:
    beats = Beats().rounds(30)
    assert beats.found == []
    beats.rounds(30, late=("m2",))
    assert [(one.machine, one.sign, one.grave) for one in beats.found] == [("m2", "late", True)]


def test_a_gap_in_the_middle_of_a_round_counts_as_well() -> None:
    """It has spoken since, by the time that the round is over."""
    look, found = Look(), []
    for at_us in range(0, 60 * ROUND_US, 200_000):
        for name in FOUR.machines:
            silent = name == "m2" and 2_000_000 < at_us % ROUND_US < 7_000_000
            if not silent:
                look.alive(name, at_us)
        found += look.look(FOUR, at_us)
    assert [(one.machine, one.sign) for one in found] == [("m2", "late")]


def test_a_controller_that_hears_nobody_accuses_nobody() -> None:
    assert Beats().rounds(60, late=tuple(FOUR.machines)).found == []


def test_of_three_machines_nobody_can_say_which_is_late() -> None:
    assert Beats(running(machines=2, standbys=1)).rounds(60, late=("m2",)).found == []


def test_memory_that_falls_to_nothing_is_told_before_it_is_full() -> None:
    beats = Beats().rounds(30, free=60e9)
    for left in range(60):
        beats.rounds(1, free=19e9 - left * 0.3e9)
    assert {(one.sign, one.grave) for one in beats.found} == {("filling", False)}
    assert "its memory is full in about" in beats.found[0].text


def test_memory_of_which_much_is_free_is_no_matter_however_fast_it_falls() -> None:
    assert full_in_s([100 - 0.8 * n for n in range(90)], 100, 10) is None
    assert full_in_s([90 - 0.8 * n for n in range(90)], 100, 10) is not None


def test_memory_that_goes_up_and_down_is_not_told() -> None:
    saw = [20 - (n % 7) for n in range(180)]
    assert all(full_in_s(saw[at - 90 : at], 100, 10) is None for at in range(90, 180))
    caches = [10.0 if n % 2 else 40 - 0.3 * n for n in range(90)]  # Only its peaks fall.
    assert full_in_s(caches, 100, 10) is None
    assert full_in_s([30 - free for free in caches], 100, 10) is None


def test_a_rank_that_creeps_away_from_the_others_is_found_and_one_that_is_slow_for_good_not() -> (
    None
):
    chance = random.Random(1)
    drift, for_good = Drift(), Drift()
    told = []
    for step in range(BLOCK * FIRST * 3):
        jitter = chance.lognormvariate(0, 0.03)
        creeps = 1 + max(step - BLOCK * FIRST, 0) / (BLOCK * FIRST) * 0.05
        told.append(drift.add(jitter * creeps * 100, 100))
        assert for_good.add(chance.lognormvariate(0, 0.03) * 104, 100) is None
    by = [one for one in told if one is not None]
    assert len(by) == 1
    assert 0.05 <= by[0] < 0.1


def crept(*parts: tuple[int, float]) -> list[float]:
    """What is found in so many blocks that take so much of a usual step, one after the other."""
    drift, jitter = Drift(), random.Random(2)
    told = []
    for blocks, factor in parts:
        for _ in range(blocks * BLOCK):
            told.append(drift.add(factor * jitter.lognormvariate(0, 0.005) * 100, 100))
    return [by for by in told if by is not None]


def test_a_block_that_is_longer_is_no_drift() -> None:
    assert crept((FIRST, 1.0), (1, 1.2), (40, 1.0)) == []
    assert crept((FIRST, 1.0), (6, 1.2), (40, 1.0)) == []


def test_what_is_too_little_to_matter_is_none_however_long_it_lasts() -> None:
    assert crept((FIRST, 1.0), (400, 1.04)) == []


def test_what_has_crept_is_told_once_and_is_usual_from_then_on() -> None:
    (by,) = crept((FIRST, 1.0), (300, 1.08))
    assert 0.07 < by < 0.09
    assert len(crept((FIRST, 1.0), (FIRST + 60, 1.08), (60, 1.2))) == 2


def test_steps_that_become_quicker_are_none() -> None:
    assert crept((FIRST, 1.0), (100, 0.8)) == []


def test_what_creeps_is_of_the_machine_that_the_rank_is_on() -> None:
    look = Look()
    for step in range(BLOCK * FIRST * 2):
        slower = 1.08 if step > BLOCK * FIRST else 1.0
        for rank in range(4):
            look.took(FOUR.seats[rank], Rank(rank), 100 * (slower if rank == 2 else 1.0), 100)
    found = look.look(FOUR, ROUND_US)
    assert [(one.machine, one.sign, one.grave) for one in found] == [("m3", "creeps", False)]
    assert "rank 2 have become 8% longer" in found[0].text


def incidents(causes: dict[str, list[str]]) -> Job:
    job = FOUR
    proto = decide(FOUR, lost("m6"))[0]
    one, _ = decide(job, lost("m4"))
    known = [
        replace(one.incidents[-1], machine=MachineId(machine), cause=cause)
        for machine, all_causes in causes.items()
        for cause in all_causes
    ]
    return replace(proto, incidents=tuple(known))


def test_incidents_that_always_begin_on_one_machine_are_told() -> None:
    ended = "worker 0 ended (signal 11)"
    assert repeating(incidents({"m2": [ended] * 8}), 1000) == {"m2": 8}
    assert repeating(incidents({"m2": [ended] * 2}), 1000) == {}
    assert repeating(incidents({"m2": [ended] * 3, "m1": [ended] * 3}), 1000) == {}


def test_losses_of_the_last_hour_count_as_they_are_decided() -> None:
    """A recovery has no mark `begun`: it is heard of."""
    hour_us, job = 3_600_000_000, FOUR
    one = decide(job, lost("m4", at_us=2 * hour_us, heard_us=2 * hour_us))[0].incidents[-1]
    job = replace(job, incidents=(replace(one, machine=MachineId("m2")),) * 8)
    assert repeating(job, 2 * hour_us + 1000) == {"m2": 8}
    assert repeating(job, 3 * hour_us) == {}


def test_what_the_script_does_is_held_against_no_machine() -> None:
    for cause in ("rank 1 raised KeyError", "worker 0 of m2 ended (out of memory)"):
        assert repeating(incidents({"m2": [cause] * 9}), 1000) == {}


def test_a_job_that_is_not_running_is_not_looked_at() -> None:
    look = Look()
    stopped = replace(RUNNING, phase=RUNNING.phase.ENDED)
    assert look.look(stopped, ROUND_US) == []
