"""Every name of torch's own that trainmover relies on, and where torch has it: see `check`.

Plain data. The rest of the room takes such names as it is imported, so they are looked for before.
A name stands here once it is private, or is part of what a private one gives.
"""

Names = dict[str, tuple[str, ...]]

IN_FILES: Names = {
    "_dynamo/convert_frame.py": ("def _compile",),
    "_dynamo/output_graph.py": ("unique_graphs",),
    "_dynamo/trace_rules.py": ("def add",),
    "_dynamo/utils.py": ("counters",),
    "_inductor/compile_worker/__main__.py": ("def main",),
    "_inductor/runtime/cache_dir_utils.py": ("def cache_dir", "def default_cache_dir"),
    "_tensor_str.py": ("PRINT_OPTS",),
    "amp/grad_scaler.py": ("self._per_optimizer_states",),
    "distributed/_functional_collectives.py": ("class AsyncCollectiveTensor", "def wait"),
    "distributed/distributed_c10d.py": (
        "ProcessGroupGloo",
        "ProcessGroupNCCL",
        "_NCCL_AVAILABLE",
        "_timeout",
        "def _new_process_group_helper",
        "def _store_based_barrier",
        "def _tensor_to_object",
        "rendezvous",
    ),
    "distributed/fsdp/_fully_shard/_fully_shard.py": ("def _get_fsdp_state",),
    "distributed/fsdp/_fully_shard/_fsdp_state.py": ("_fsdp_param_groups|_fsdp_param_group",),
    "distributed/fsdp/_fully_shard/_fsdp_param_group.py": (
        "self.fsdp_params",
        "def is_sharded",
        "self._partial_reduce_output",
        "self.reduce_grads",
        "self.all_reduce_grads",
    ),
    "distributed/fsdp/_fully_shard/_fsdp_param.py": (
        "_unsharded_param",
        "self.unsharded_accumulated_grad",
    ),
    "distributed/optim/zero_redundancy_optimizer.py": (
        "class ZeroRedundancyOptimizer",
        "self._overlap_with_ddp",
        "self.optim",
    ),
    "distributed/tensor/_api.py": ("_local_tensor", "_op_dispatcher"),
    "distributed/tensor/_dispatch.py": ("self.sharding_propagator",),
    "distributed/tensor/_random.py": ("_rng_tracker",),
    "distributed/tensor/_sharding_prop.py": ("self.propagate_op_sharding",),
    "distributions/distribution.py": ("_validate_args",),
    "distributions/transforms.py": ("class _InverseTransform", "_inv", "_cached_x_y"),
    "nn/modules/module.py": (
        "_buffers",
        "_metadata",
        "_modules",
        "_non_persistent_buffers_set",
        "_parameters",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
        "_global_buffer_registration_hooks",
        "_global_forward_hooks",
        "_global_forward_hooks_always_called",
        "_global_forward_hooks_with_kwargs",
        "_global_forward_pre_hooks",
        "_global_module_registration_hooks",
        "_global_parameter_registration_hooks",
    ),
    "nn/parallel/distributed.py": (
        "require_forward_param_sync",
        "require_backward_grad_sync",
        "def _pre_forward",
        "self._has_rebuilt_buckets",
        "self.find_unused_parameters",
        "self.static_graph",
        "self.logger",
        "self.reducer",
    ),
    "optim/optimizer.py": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
    "overrides.py": ("def _get_current_function_mode_stack",),
    "utils/_device.py": ("CURRENT_DEVICE",),
    "utils/_python_dispatch.py": (
        "def _disable_current_modes",
        "def _get_current_dispatch_mode_stack",
    ),
    "utils/_pytree.py": ("def tree_map",),
    "utils/data/dataloader.py": (
        "self._iterator",
        "self._num_workers",
        "def _next_index",
        "def _shutdown_workers",
        "class _BaseDataLoaderIter",
        "self._num_yielded",
    ),
}
"""By the file of torch's sources: also such as a script need not ever load, and what only objects
have."""

_C10D = "torch._C._distributed_c10d"
_ASYNC = ("asyncOp",)

IN_MEMORY: Names = {
    "torch": ("_foreach_copy_",),
    "torch.Tensor": (
        "_backward_hooks",
        "_cdata",
        "_indices",
        "_nnz",
        "_post_accumulate_grad_hooks",
        "_values",
        "_version",
    ),
    "torch._C": (
        "TensorBase",
        "_clear_DTensor_sharding_propagator_cache",
        "_current_graph_task_id",
    ),
    "torch._C.Generator": ("_cdata",),
    "torch.UntypedStorage": ("_cdata",),
    "torch._C._autograd": (
        "_top_saved_tensors_default_hooks",
        "_profiler_enabled",
        "_record_function_with_args_enter",
        "_record_function_with_args_exit",
    ),
    _C10D: (
        "DebugLevel",
        "FakeProcessGroup",
        "HashStore",
        "PrefixStore",
        "Store",
        "TCPStore",
        "Work",
        "_ProcessGroupWrapper",
        "get_debug_level",
    ),
    f"{_C10D}.AllgatherOptions": _ASYNC,
    f"{_C10D}.AllreduceOptions": _ASYNC,
    f"{_C10D}.BarrierOptions": _ASYNC,
    f"{_C10D}.BroadcastOptions": _ASYNC,
    f"{_C10D}.ReduceScatterOptions": _ASYNC,
    f"{_C10D}.FakeProcessGroup": ("_create_internal",),
    f"{_C10D}.FakeProcessGroup.Options": ("error_on_collective",),
    f"{_C10D}.ProcessGroup": (
        "_allgather_base",
        "_get_backend",
        "_get_sequence_number_for_group",
        "_reduce_scatter_base",
        "_register_backend",
        "_set_default_backend",
        "_set_group_desc",
        "_set_group_name",
        "_set_sequence_number_for_group",
    ),
    f"{_C10D}.ProcessGroupGloo": ("_set_sequence_number_for_group",),
    f"{_C10D}.ProcessGroupGloo._Options": ("_devices", "_threads", "_timeout"),
    f"{_C10D}.Logger": ("_get_ddp_logging_data", "set_runtime_stats_and_log"),
    f"{_C10D}.Reducer": (
        "_push_all_rebuilt_params",
        "_rebuild_buckets",
        "_reset_state",
        "_set_ddp_runtime_logging_sample_rate",
        "_update_process_group",
        "get_backward_stats",
    ),
    f"{_C10D}.Work": ("_get_duration", "_get_op_type", "_source_rank"),
}
"""By what has it, of all that torch has loaded by itself: what is written in C++ is in no file."""
