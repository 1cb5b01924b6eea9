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
    rare     less ordinary, or a variant: one in sixteen of them runs at each commit
    seldom   something changes so seldom that a standby may take it for the machine's own, or the
             rank may be seen where nobody could take it: equal or refused
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
    rare: bool = False
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
    equal("after/given_unreported", moment=True, rare=True),
    equal("after/averaged_loss"),
    equal("after/plateau"),
    equal("after/plateau_between", moment=True, rare=True),
    equal("after/averaged_weights"),
    refused("after/averages_by_rate", rare=True),
    equal("after/read_elsewhere", rare=True),
    equal("after/reported_averaged", rare=True),
    refused("after/average_by_text", rare=True),
    refused("after/averages_by_callable", rare=True),
    refused("after/averages_elsewhere", rare=True),
    equal("after/average_in_step"),
    equal("after/average_behind", rare=True),
    equal("after/average_dict", holds=(6, 25), rare=True),
    equal("after/average_late", holds=(7, 25), rare=True),
    equal("after/schedule_late", holds=(7, 25), rare=True),
    equal("after/steps_after_update", rare=True),
    refused("after/reported_late", rare=True),
    equal("after/gathered_metrics"),
    equal("before/momentum_encoder"),
    equal("before/decay_by_hand"),
    equal("before/manual_sgd", rare=True),
    equal("before/arrays", rare=True),
    equal("before/data_updates"),
    equal("before/numpy_views"),
    equal("before/numpy_views_later", holds=(12, 20), rare=True),
    equal("before/data_updates_later", holds=(12, 20), rare=True),
    equal("before/exchanged_storage", rare=True),
    equal("before/centre", rare=True),
    equal("before/queue", rare=True),
    equal("before/growing_queue", rare=True),
    equal("before/bulk_object", rare=True),
    equal("before/nonpersistent"),
    equal("before/registered", holds=(13, 16), rare=True),
    equal("before/spectral", rare=True),
    equal("before/sparse_buffer", rare=True),
    equal("gradients/accumulated_calls", holds=(11, 25)),
    equal("gradients/accumulated_in_place", holds=(14, 26), rare=True),
    equal("gradients/accumulated_once", rare=True),
    equal("gradients/never_cleared"),
    equal("gradients/cleared_late"),
    equal("gradients/evaluated_uncleared", rare=True),
    equal("gradients/probed", rare=True),
    equal("gradients/large", holds=(9, 25), rare=True),
    refused("gradients/clipped_by_history", rare=True),
    equal("gradients/clipped_by_values", rare=True),
    refused("gradients/clipped_by_weak", rare=True),
    refused("gradients/clipped_by_hook", rare=True),
    refused("gradients/hooked_late", rare=True),
    equal("gradients/reduced_by_hand"),
    equal("gradients/flat", rare=True),
    equal("early/rate", rare=True),
    equal("early/rate_apart", machines=3, rare=True),
    equal("early/rate_tensor", rare=True),
    equal("early/schedule"),
    equal("early/weights"),
    equal("early/aliased", rare=True),
    equal("early/momentum", rare=True),
    equal("early/restarted", rare=True),
    equal("early/cleared", rare=True),
    equal("updates/betas_in_common", rare=True),
    equal("updates/unscaled_before", holds=(7, 25)),
    equal("updates/scaler"),
    equal("updates/own_scaler", rare=True),
    refused("updates/preconditioned", rare=True),
    equal("updates/autocast"),
    equal("layouts/patched", rare=True),
    equal("layouts/precision", rare=True),
    equal("layouts/timeouts", rare=True),
    equal("updates/lbfgs"),
    refused("updates/inner_momentum", rare=True),
    equal("updates/inner_tracked", rare=True),
    equal("updates/local_sgd"),
    refused("updates/switched", rare=True),
    equal("updates/gan"),
    equal("updates/gan_in_turn", rare=True),
    equal("updates/several", rare=True),
    equal("updates/zero", alone=True, rare=True),
    equal("updates/memory_argument", rare=True),
    equal("updates/sensitive_batch", rare=True),
    equal("updates/shifted_batch", rare=True),
    equal("updates/thawed", rare=True),
    equal("updates/thawed_between", holds=(13, 20), rare=True),
    equal("updates/chosen_by_set", rare=True),
    equal("updates/per_pass", rare=True),
    equal("updates/rate_by_numpy", holds=(21, 27), rare=True),
    equal("updates/skipped", rare=True),
    equal("updates/sparse", rare=True),
    equal("updates/caught", rare=True),
    equal("updates/optimizer_attribute", rare=True),
    refused("updates/kept_by_address", rare=True),
    refused("updates/diffusion_time", rare=True),
    equal("updates/lookahead", rare=True),
    equal("updates/in_turn", rare=True),
    equal("updates/one_server", rare=True),
    equal("layouts/fsdp2", alone=True),
    equal("layouts/fsdp2_average", alone=True, rare=True),
    equal("layouts/fsdp2_decayed", alone=True, rare=True),
    equal("layouts/fsdp2_evaluated", moment=True, alone=True, rare=True),
    equal("layouts/tensor", nproc=2),
    equal("layouts/pipeline"),
    equal("layouts/parting", holds=(15, 26), rare=True),
    equal("layouts/static_graph", rare=True),
    equal("layouts/late_model", holds=(9, 15), rare=True),
    equal("layouts/late_static", holds=(16, 25), rare=True),
    equal("layouts/scripted", holds=(7, 25), rare=True),
    refused("layouts/static_too_late", holds=(34, 36), ready_s=3, rare=True),
    equal("layouts/unused", rare=True),
    equal("layouts/joined", rare=True),
    equal("layouts/sync_norm", rare=True),
    equal("layouts/powersgd"),
    equal("layouts/fp16_hook", rare=True),
    equal("layouts/own_hook", rare=True),
    equal("layouts/checkpointed"),
    equal("layouts/tied", rare=True),
    equal("layouts/compiled", ready_s=60, rare=True),
    refused("variables/enumerated"),
    equal("variables/global_step", holds=(20, 22)),
    equal("variables/counts"),
    refused("variables/counted_seldom", rare=True),
    equal("variables/queue_of_entries", rare=True),
    refused("variables/undone_by_stack", holds=(16, 25), seldom=True, rare=True),
    refused("variables/counted_by_handler", seldom=True, rare=True),
    refused("variables/lazy_margin", holds=(14, 25), rare=True),
    equal("variables/job_enumerated", rare=True),
    refused("variables/labelled", rare=True),
    equal("variables/best", seldom=True),
    refused("variables/best_saved", rare=True),
    equal("variables/best_values", rare=True),
    equal("variables/globals_kept"),
    equal("libraries/metric", holds=(8, 25)),
    refused("libraries/metric_untracked", rare=True),
    refused("libraries/patched_function", rare=True),
    equal("libraries/accumulation", holds=(9, 25)),
    equal("libraries/rank_kept", rare=True),
    equal("libraries/rank_read", rare=True),
    refused("libraries/accumulation_untracked", holds=(9, 25), ready_s=4, rare=True),
    equal("models/one_list_at_first", holds=(17, 25), rare=True),
    equal("models/counted_in_forward"),
    equal("variables/global_counter", rare=True),
    equal("variables/shuffled"),
    refused("variables/records", rare=True),
    refused("models/bank", rare=True),
    refused("meters/averaged_list"),
    refused("variables/closed_over", rare=True),
    equal("variables/trainer", seldom=True),
    refused("variables/turned", rare=True),
    refused("variables/chosen_loss", rare=True),
    refused("variables/refreshed_seldom", rare=True),
    equal("variables/trainer_values", rare=True),
    equal("variables/kept_in_parts", rare=True),
    equal("variables/hard_set", holds=(27, 33), rare=True),
    equal("variables/kept_by_namesake", rare=True),
    equal("meters/meter", holds=(15, 16)),  # Where a pass begins.
    equal("meters/two_meters", rare=True),
    equal("meters/meters", rare=True),
    refused("variables/hub", rare=True),
    equal("variables/set_before_fetch", seldom=True, rare=True),
    equal("libraries/metric_plainly", holds=(17, 28), rare=True),
    equal("meters/reset_by_pass", holds=(8, 10), rare=True),
    equal("meters/running_sums", rare=True),
    equal("meters/running_norm", rare=True),
    equal("meters/timed", rare=True),
    equal("meters/timer_meter", rare=True),
    refused("meters/timer_with_sum", rare=True),
    equal("meters/timed_loss", rare=True),
    refused("meters/averaged_with_time", rare=True),
    equal("meters/timed_pair", rare=True),
    refused("meters/counted_times", rare=True),
    refused("variables/replaced", rare=True),
    equal("meters/logged", rare=True),
    equal("meters/log_folder", rare=True),
    equal("variables/returned_early", seldom=True, rare=True),
    equal("variables/caught_between", seldom=True, rare=True),
    equal("meters/history", rare=True),
    refused("meters/progress_bar"),
    refused("variables/namespace", rare=True),
    refused("variables/class_attribute", rare=True),
    refused("variables/own_generator"),
    refused("models/other_loss", holds=(9, 25), rare=True),
    refused("models/parameter_apart", rare=True),
    refused("models/masters", rare=True),
    refused("models/other_optimizer", rare=True),
    refused("variables/settings", rare=True),
    refused("variables/folder", rare=True),
    equal("models/untracked_still", rare=True),
    refused("models/layer_exchanged", holds=(12, 25), rare=True),
    refused("models/hooked", holds=(15, 25)),
    refused("models/hook_remembers", rare=True),
    refused("models/hidden_head", rare=True),
    equal("models/layer_rates", rare=True),
    refused("variables/cached_baseline", rare=True),
    refused("variables/average_replaced", rare=True),
    equal("loops/while_next"),
    equal("loops/begun_anew", holds=(22, 26), rare=True),
    equal("loops/begun_anew_by_generators", holds=(6, 18), rare=True),
    refused("loops/fetched_inside"),
    equal("loops/fetched_before", alone=True, rare=True),
    equal("loops/infinite"),
    refused("loops/cycled", rare=True),
    refused("loops/sliced", rare=True),
    refused("loops/collected", rare=True),
    refused("loops/summed", rare=True),
    equal("loops/drawn_ahead"),
    equal("loops/drawn_ahead_by_pass", rare=True),
    equal("loops/drawn_ahead_in_short_passes", rare=True),
    equal("loops/warmed_up_in_each_pass", rare=True),
    equal("loops/passes_by_length", holds=(17, 25), rare=True),
    equal("loops/passes_counted", holds=(12, 25), rare=True),
    equal("loops/balanced", rare=True),
    equal("loops/nanogpt"),
    equal("loops/nanogpt_range", rare=True),
    equal("loops/zipped", rare=True),
    equal("loops/enumerated_by_name", rare=True),
    equal("loops/nested", holds=(12, 18), seldom=True),
    equal("loops/phases", holds=(13, 20), rare=True),
    equal("loops/phases_by_name", holds=(13, 20), rare=True),
    equal("loops/nested_plainly", rare=True),
    equal("loops/evaluated_inside", moment=True, rare=True),
    equal("loops/set_epoch"),
    equal("loops/several_batches", rare=True),
    refused("loops/drawn_inside", rare=True),
    refused("loops/patterned", rare=True),
    equal("loops/rolled_out_values", rare=True),
    equal("loops/rolled_out_changed", rare=True),
    equal("loops/learner", holds=(20, 26), rare=True),
    equal("loops/tidied", rare=True),
    equal("loops/vote", rare=True),
    refused("data/walk_forward", rare=True),
    equal("data/augmented"),
    equal("data/augmented_workers"),
    equal("data/stateful"),
    equal("data/stateful_augmented", rare=True),
    equal("data/own_generator", rare=True),
    refused("data/cached_gains", rare=True),
    refused("variables/cached_weight", rare=True),
    equal("data/trips", rare=True),
    refused("data/zip_of_map", rare=True),
    equal("data/sharper_sampler", rare=True),
    equal("models/open_prototypes", rare=True),
    equal("models/anchor", rare=True),
    equal("models/mask_by_data", rare=True),
    equal("updates/shared_norms", rare=True),
    equal("updates/base_lrs", rare=True),
    equal("updates/hook_alias", rare=True),
    equal("data/dict_batch", rare=True),
    equal("data/ragged_array", rare=True),
    equal("variables/counter_update", rare=True),
    equal("variables/transposed_memory", rare=True),
    refused("variables/rule_lambda", rare=True),
    refused("variables/loss_with_edges", rare=True),
    refused("variables/log_prior", rare=True),
    refused("variables/band_begins_anew", rare=True, seldom=True),
    refused("variables/planned", rare=True),
    refused("variables/comes_and_goes", rare=True),
    refused("variables/visits", rare=True),
    refused("variables/event_log", rare=True),
    refused("variables/robust_closure", rare=True),
    refused("variables/factory_step", rare=True),
    refused("variables/weights_by_key", rare=True),
    refused("gradients/node_hooks", rare=True),
    refused("models/untracked_in_eval", rare=True),
    refused("chance/stream_each", rare=True),
    refused("data/guarded_table", rare=True),
    equal("updates/rates_by_setters", rare=True),
    equal("data/batch_object", rare=True),
    equal("data/weighted", rare=True),
    refused("data/weighted_by_loss", rare=True),
    equal("data/weighted_by_pass", holds=(11, 25), rare=True),
    refused("data/weighted_seldom", holds=(9, 25), rare=True),
    equal("data/hardest_by_pass", holds=(8, 25), rare=True),
    equal("data/curriculum"),
    refused("data/pseudo_labelled", holds=(16, 25), moment=True, rare=True),
    refused("data/counting", rare=True),
    equal("data/stream"),
    equal("data/own_iterable", rare=True),
    equal("data/drifting_iterable", rare=True),
    equal("chance/torch_generator"),
    equal("chance/numpy_generator"),
    equal("chance/python_random"),
    refused("chance/untracked", rare=True),
    refused("chance/untracked_torch", rare=True),
    refused("chance/seeded_or_timed", rare=True),
    equal("chance/spawned", rare=True),
    equal("chance/globals", rare=True),
    equal("chance/kept_gauss", rare=True),
    equal("chance/reseeded", rare=True),
    equal("chance/unseeded", alike=False),
    equal("between/barrier", moment=True),
    equal("between/monitored_barrier", moment=True, rare=True),
    equal("between/gathered_objects", moment=True, rare=True),
    equal("between/broadcast_objects", moment=True, rare=True),
    equal("between/objects_drawn_ahead", moment=True, rare=True),
    equal("between/evaluated", moment=True),
    equal("between/evaluated_seldom", moment=True, holds=(13, 15), rare=True),
    equal("between/new_groups", moment=True),
    equal("between/new_pairs", moment=True, machines=3, rare=True),
    equal("between/group_for_a_moment", moment=True, rare=True),
    equal("between/running_total", moment=True, rare=True),
    equal("between/running_module", moment=True, rare=True),
    equal("between/saved", moment=True),
    equal("between/passes", moment=True),
    equal("between/passes_inside", moment=True, rare=True),
    equal("between/best_in_pass", holds=(8, 25), rare=True),
    refused("between/best_weights", holds=(12, 25), moment=True, rare=True),
    refused("between/rolled_back", holds=(16, 25), moment=True, rare=True),
    equal("between/history", holds=(8, 25), rare=True),
    refused("between/continued", rare=True),
]

LATE = [
    Habit(f"late/{name}")
    for name in (
        "attributes",
        "between",
        "counted",
        "drawn",
        "exchanged",
        "masked",
        "memory_format",
        "momentum",
        "more_batches",
        "more_rounds",
        "more_rounds_kept",
        "numbers",
        "own_attribute",
        "probed",
        "raises",
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
