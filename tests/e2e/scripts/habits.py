"""The table of habits: what ordinary training scripts do, and what is to come of each.

*Equal*: whatever goes wrong, losses, final state and what is printed are those of a plain run.
*Refused*: before the first incident it is said, with file and line, what could not be carried.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Habit:
    """One script; its docstring says what it shows, in the words of who writes it.

    moment   it calls `kit.moment`, where a rank can die between two steps
    holds    steps after one of which it is disturbed: once three updates, and so much as a standby
             must see, are made
    alone    of some state each rank is the only holder: without a cut it is lost with its rank
    alike    two runs of it have the same numbers; else a rank's row of each step must be its first
    ready_s  for a standby to hold a run: about a second on a quiet machine, if nothing is compiled
    seldom  something changes so seldom that a standby may take it for the machine's own: equal or
            refused
    """

    name: str
    refused: bool = False
    machines: int = 2
    nproc: int = 1
    moment: bool = False
    holds: tuple[int, int] = (5, 25)
    alone: bool = False
    alike: bool = True
    ready_s: int = 25
    seldom: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.py"

    @property
    def steps(self) -> int:
        """Two passes, of 15 mostly, and a little: the end of a pass is seen behind each fault."""
        return 32 if self.holds[1] <= 26 else 40

    @property
    def ranks(self) -> int:
        return self.machines * self.nproc

    @property
    def shows(self) -> str:
        return " ".join((ast.get_docstring(ast.parse(self.path.read_text())) or "").split())


def equal(name: str, **others: Any) -> Habit:
    return Habit(name, **others)


def refused(name: str, **others: Any) -> Habit:
    return Habit(name, refused=True, **others)


HABITS = [
    equal("after/returned"),
    equal("after/given_unreported", moment=True),
    equal("after/averaged_loss"),
    equal("after/plateau"),
    equal("after/plateau_between", moment=True),
    equal("after/averaged_weights"),
    refused("after/averages_by_rate"),
    equal("after/read_elsewhere"),
    equal("after/reported_averaged"),
    refused("after/average_by_text"),
    refused("after/averages_by_callable"),
    refused("after/averages_elsewhere"),
    equal("after/average_in_step"),
    equal("after/average_behind"),
    equal("after/average_dict", holds=(6, 25)),
    equal("after/average_late", holds=(7, 25)),
    equal("after/schedule_late", holds=(7, 25)),
    equal("after/steps_after_update"),
    refused("after/reported_late"),
    equal("after/gathered_metrics"),
    equal("before/momentum_encoder"),
    equal("before/decay_by_hand"),
    equal("before/manual_sgd"),
    equal("before/arrays"),
    equal("before/data_updates"),
    equal("before/numpy_views"),
    equal("before/numpy_views_later", holds=(12, 20)),
    equal("before/data_updates_later", holds=(12, 20)),
    equal("before/exchanged_storage"),
    equal("before/centre"),
    equal("before/queue"),
    equal("before/growing_queue"),
    equal("before/bulk_object"),
    equal("before/nonpersistent"),
    equal("before/registered", holds=(13, 16)),
    equal("before/spectral"),
    equal("before/sparse_buffer"),
    equal("gradients/accumulated_calls", holds=(11, 25)),
    equal("gradients/accumulated_in_place", holds=(14, 26)),
    equal("gradients/accumulated_once"),
    equal("gradients/never_cleared"),
    equal("gradients/cleared_late"),
    equal("gradients/evaluated_uncleared"),
    equal("gradients/probed"),
    equal("gradients/large", holds=(9, 25)),
    refused("gradients/clipped_by_history"),
    equal("gradients/clipped_by_values"),
    refused("gradients/clipped_by_weak"),
    refused("gradients/clipped_by_hook"),
    refused("gradients/hooked_late"),
    equal("gradients/reduced_by_hand"),
    equal("gradients/flat"),
    equal("early/rate"),
    equal("early/rate_apart", machines=3),
    equal("early/rate_tensor"),
    equal("early/schedule"),
    equal("early/weights"),
    equal("early/aliased"),
    equal("early/momentum"),
    equal("early/restarted"),
    equal("early/cleared"),
    equal("updates/betas_in_common"),
    equal("updates/unscaled_before"),
    equal("updates/scaler"),
    equal("updates/own_scaler"),
    refused("updates/preconditioned"),
    equal("updates/autocast"),
    equal("layouts/patched"),
    equal("layouts/precision"),
    equal("layouts/timeouts"),
    equal("updates/lbfgs"),
    refused("updates/inner_momentum"),
    equal("updates/inner_tracked"),
    equal("updates/local_sgd"),
    refused("updates/switched"),
    equal("updates/gan"),
    equal("updates/gan_in_turn"),
    equal("updates/several"),
    equal("updates/zero", alone=True),
    equal("updates/thawed"),
    equal("updates/chosen_by_set"),
    equal("updates/per_pass"),
    equal("updates/rate_by_numpy", holds=(21, 27)),
    equal("updates/skipped"),
    equal("updates/sparse"),
    equal("updates/caught"),
    equal("updates/optimizer_attribute"),
    refused("updates/kept_by_address"),
    refused("updates/diffusion_time"),
    equal("updates/lookahead"),
    equal("updates/in_turn"),
    equal("updates/one_server"),
    equal("layouts/fsdp2", alone=True),
    equal("layouts/fsdp2_average", alone=True),
    equal("layouts/fsdp2_decayed", alone=True),
    equal("layouts/fsdp2_evaluated", moment=True, alone=True),
    equal("layouts/tensor", nproc=2),
    equal("layouts/pipeline"),
    equal("layouts/parting", holds=(15, 26)),
    equal("layouts/static_graph"),
    equal("layouts/late_model", holds=(9, 15)),
    equal("layouts/late_static", holds=(16, 25)),
    equal("layouts/scripted", holds=(7, 25)),
    refused("layouts/static_too_late", holds=(34, 36), ready_s=3),
    equal("layouts/unused"),
    equal("layouts/joined"),
    equal("layouts/sync_norm"),
    equal("layouts/powersgd"),
    equal("layouts/fp16_hook"),
    equal("layouts/own_hook"),
    equal("layouts/checkpointed"),
    equal("layouts/tied"),
    equal("layouts/compiled", ready_s=60),
    refused("variables/enumerated"),
    refused("variables/global_step", holds=(20, 22)),
    equal("variables/job_enumerated"),
    refused("variables/labelled"),
    equal("variables/best", seldom=True),
    refused("variables/best_saved"),
    equal("variables/best_values"),
    equal("variables/globals_kept"),
    equal("libraries/metric", holds=(8, 25)),
    refused("libraries/metric_untracked"),
    refused("libraries/patched_function"),
    equal("libraries/accumulation", holds=(9, 25)),
    equal("libraries/rank_kept"),
    equal("libraries/rank_read"),
    refused("libraries/accumulation_untracked", holds=(9, 25), ready_s=4),
    equal("models/one_list_at_first", holds=(17, 25)),
    equal("models/counted_in_forward"),
    refused("variables/global_counter"),
    equal("variables/shuffled"),
    refused("variables/records"),
    refused("models/bank"),
    refused("meters/averaged_list"),
    refused("variables/closed_over"),
    equal("variables/trainer", seldom=True),
    refused("variables/turned"),
    refused("variables/chosen_loss"),
    refused("variables/refreshed_seldom"),
    equal("variables/trainer_values"),
    equal("variables/kept_in_parts"),
    equal("variables/hard_set", holds=(27, 33)),
    refused("variables/kept_by_namesake"),
    equal("meters/meter"),
    equal("meters/two_meters"),
    equal("meters/meters"),
    refused("variables/hub"),
    equal("variables/set_before_fetch", seldom=True),
    equal("libraries/metric_plainly", holds=(17, 28)),
    equal("meters/reset_by_pass", holds=(8, 10)),
    equal("meters/running_sums"),
    equal("meters/running_norm"),
    equal("meters/timed"),
    equal("meters/timer_meter"),
    refused("meters/timer_with_sum"),
    equal("meters/timed_loss"),
    refused("meters/averaged_with_time"),
    equal("meters/timed_pair"),
    refused("meters/counted_times"),
    refused("variables/replaced"),
    equal("meters/logged"),
    equal("meters/log_folder"),
    equal("variables/returned_early", seldom=True),
    equal("variables/caught_between", seldom=True),
    equal("meters/history"),
    refused("meters/progress_bar"),
    refused("variables/namespace"),
    refused("variables/class_attribute"),
    refused("variables/own_generator"),
    refused("models/other_loss", holds=(9, 25)),
    refused("models/parameter_apart"),
    refused("models/masters"),
    refused("models/other_optimizer"),
    refused("variables/settings"),
    refused("variables/folder"),
    equal("models/untracked_still"),
    refused("models/layer_exchanged", holds=(12, 25)),
    refused("models/hooked", holds=(15, 25)),
    refused("models/hook_remembers"),
    refused("models/hidden_head"),
    equal("models/layer_rates"),
    refused("variables/cached_baseline"),
    refused("variables/average_replaced"),
    equal("loops/while_next"),
    equal("loops/begun_anew", holds=(22, 26)),
    equal("loops/begun_anew_by_generators", holds=(6, 18)),
    refused("loops/fetched_inside"),
    equal("loops/fetched_before", alone=True),
    equal("loops/infinite"),
    refused("loops/cycled"),
    refused("loops/sliced"),
    refused("loops/collected"),
    refused("loops/summed"),
    equal("loops/drawn_ahead"),
    equal("loops/drawn_ahead_by_pass"),
    equal("loops/drawn_ahead_in_short_passes"),
    equal("loops/warmed_up_in_each_pass"),
    equal("loops/passes_by_length", holds=(17, 25)),
    equal("loops/passes_counted", holds=(12, 25)),
    equal("loops/balanced"),
    equal("loops/nanogpt"),
    equal("loops/nanogpt_range"),
    equal("loops/zipped"),
    equal("loops/enumerated_by_name"),
    equal("loops/nested", holds=(12, 18)),
    equal("loops/nested_plainly"),
    equal("loops/evaluated_inside", moment=True),
    equal("loops/set_epoch"),
    equal("loops/several_batches"),
    refused("loops/drawn_inside"),
    refused("loops/patterned"),
    equal("loops/rolled_out_values"),
    equal("loops/rolled_out_changed"),
    equal("loops/learner", holds=(20, 26)),
    equal("loops/tidied"),
    equal("loops/vote"),
    refused("data/walk_forward"),
    equal("data/augmented"),
    equal("data/augmented_workers"),
    equal("data/stateful"),
    equal("data/stateful_augmented"),
    equal("data/own_generator"),
    equal("data/weighted"),
    refused("data/weighted_by_loss"),
    equal("data/weighted_by_pass", holds=(11, 25)),
    refused("data/weighted_seldom", holds=(9, 25)),
    equal("data/hardest_by_pass", holds=(8, 25)),
    equal("data/curriculum"),
    refused("data/counting"),
    equal("data/stream"),
    equal("data/own_iterable"),
    equal("data/drifting_iterable"),
    equal("chance/torch_generator"),
    equal("chance/numpy_generator"),
    equal("chance/python_random"),
    refused("chance/untracked"),
    refused("chance/untracked_torch"),
    refused("chance/seeded_or_timed"),
    equal("chance/spawned"),
    equal("chance/globals"),
    equal("chance/kept_gauss"),
    equal("chance/reseeded"),
    equal("chance/unseeded", alike=False),
    equal("between/barrier", moment=True),
    equal("between/monitored_barrier", moment=True),
    equal("between/gathered_objects", moment=True),
    equal("between/broadcast_objects", moment=True),
    equal("between/objects_drawn_ahead", moment=True),
    equal("between/evaluated", moment=True),
    equal("between/evaluated_seldom", moment=True, holds=(13, 15)),
    equal("between/new_groups", moment=True),
    equal("between/new_pairs", moment=True, machines=3),
    equal("between/group_for_a_moment", moment=True),
    equal("between/running_total", moment=True),
    equal("between/running_module", moment=True),
    equal("between/saved", moment=True),
    equal("between/passes", moment=True),
    equal("between/passes_inside", moment=True),
    equal("between/best_in_pass", holds=(8, 25)),
    equal("between/history", holds=(8, 25)),
    refused("between/continued"),
]

LATE = [
    Habit(f"late/{name}")
    for name in (
        "attributes",
        "between",
        "counted",
        "drawn",
        "exchanged",
        "memory_format",
        "momentum",
        "more_batches",
        "more_rounds",
        "more_rounds_kept",
        "numbers",
        "own_attribute",
        "probed",
        "refreshed",
        "reported_other",
        "reserve_counted",
        "results",
        "rolled_back",
        "rolled_out",
        "scheduled",
        "uncleared",
    )
]
BEST = Habit("late/best")
"""What begins late, and may not be carried in the step in which it does: `test_e2e_late.py`."""
OWN_FLAG = Habit("late/own_flag")
"""What is refused or not, by what the two ranks happen to have: see there, too."""
