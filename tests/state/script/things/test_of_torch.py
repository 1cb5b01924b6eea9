"""Ordinary objects of torch's own are compared by their attributes, members of its enumerations by
their names."""

import textwrap
from pathlib import Path

import captures
import pytest

OTHER = {
    "autocast that is in force from a step on": """
        kept = torch.autocast("cpu", torch.bfloat16, enabled=False)
        def another():
            return torch.autocast("cpu", torch.bfloat16, enabled=True)
        """,
    "autocast to another dtype": """
        kept = torch.autocast("cpu", torch.bfloat16)
        def another():
            return torch.autocast("cpu", torch.float16)
        """,
    "a mode of autograd": """
        kept = torch.inference_mode(False)
        def another():
            return torch.inference_mode(True)
        """,
    "a mask for attention": """
        from torch.nn.attention.flex_attention import create_block_mask
        def near(b, h, q, k):
            return (q - k).abs() <= 1
        def wide(b, h, q, k):
            return (q - k).abs() <= 4
        kept = create_block_mask(near, 1, 1, 8, 8, device="cpu", BLOCK_SIZE=8)
        def another():
            return create_block_mask(wide, 1, 1, 8, 8, device="cpu", BLOCK_SIZE=8)
        """,
    "a member of an enumeration in C++": """
        from torch.nn.attention import SDPBackend
        kept = SDPBackend.MATH
        def another():
            return SDPBackend.FLASH_ATTENTION
        """,
    "such a member that has a class of its own": """
        from torch.distributed import ReduceOp
        kept = ReduceOp.SUM
        def another():
            return ReduceOp.MAX
        """,
    "what a context gives": """
        import contextlib
        kept = contextlib.nullcontext(0.6)
        def another():
            return contextlib.nullcontext(1.3)
        """,
    "a masked tensor": """
        from torch.masked import masked_tensor
        base = torch.arange(8.0)
        kept = masked_tensor(base, base > 3)
        def another():
            return masked_tensor(base, base > 5)
        """,
}
"""What `another()` makes takes the place of `kept`."""
FROM_A_STEP_ON = """
def main():
    global kept
    for number, (x, y) in enumerate(job.batches(DATA)):
        if number == 5:
            kept = another()
        step(x)
main()
"""


@pytest.mark.filterwarnings("ignore:.*MaskedTensors:UserWarning")
@pytest.mark.parametrize("made", OTHER.values(), ids=OTHER)
def test_an_object_of_torch_is_compared_by_what_it_holds(tmp_path: Path, made: str) -> None:
    assert "kept" in captures.names_in(tmp_path, f"{textwrap.dedent(made)}{FROM_A_STEP_ON}")


@pytest.mark.filterwarnings("ignore:.*MaskedTensors:UserWarning")
@pytest.mark.parametrize("made", OTHER.values(), ids=OTHER)
def test_an_equal_one_in_its_place_is_no_other(tmp_path: Path, made: str) -> None:
    script = f"{textwrap.dedent(made)}kept = another()\n{FROM_A_STEP_ON}"

    assert "kept" not in captures.names_in(tmp_path, script)


def test_what_a_library_of_torch_counts_in_its_objects_is_found(tmp_path: Path) -> None:
    found = captures.names_in(
        tmp_path,
        """
        from torch.ao.pruning import LambdaSL, WeightNormSparsifier
        net = nn.Sequential(nn.Linear(4, 4))
        sparsifier = WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 4))
        sparsifier.prepare(net, [{"tensor_fqn": "0.weight"}])
        kept = LambdaSL(sparsifier, lambda n: (n % 10) / 10)
        def main():
            for x, y in job.batches(DATA):
                kept.step()
        main()
        """,
    )

    assert "kept" in found


@pytest.mark.parametrize("mode", ["torch.no_grad()", "torch.autocast('cpu', torch.bfloat16)"])
def test_what_a_mode_keeps_while_it_is_entered_is_none_of_its_settings(
    tmp_path: Path, mode: str
) -> None:
    found = captures.names_in(
        tmp_path,
        f"""
        kept = {mode}
        def main():
            global kept
            for number, (x, y) in enumerate(job.batches(DATA)):
                if number == 5:
                    kept = kept
                    with kept:
                        step(x)
        main()
        """,
    )

    assert "kept" not in found


def test_a_handle_of_a_hook_is_told_by_its_type(tmp_path: Path) -> None:
    """Its number counts the hooks of a process."""
    found = captures.names_in(
        tmp_path,
        """
        def main():
            net, kept = nn.Linear(2, 2), None
            for x, y in job.batches(DATA):
                if kept is not None:
                    kept.remove()
                kept = net.register_forward_hook(print)
        main()
        """,
    )

    assert "kept" not in found
