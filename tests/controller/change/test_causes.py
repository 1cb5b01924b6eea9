"""What kind of trouble it was: the sentence decides, and whose fault it is not is not said."""

import pytest

from trainmover.controller.change.causes import SHOWN_MAX, Exit, exit_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("m2 was lost: its agent has ended, as its owner had said", Exit.PREEMPTION),
        ("m2, m3 will be taken away, in 20 s", Exit.PREEMPTION),
        ("worker 0 of m2 ended (signal 9: the kernel was out of memory)", Exit.MEMORY),
        ("Rank 1 raised OutOfMemoryError: CUDA out of memory. Tried to allocate", Exit.MEMORY),
        ("Rank 1 raised RuntimeError: DefaultCPUAllocator: can't allocate memory", Exit.MEMORY),
        ("Rank 0 raised MemoryError.", Exit.MEMORY),
        ("terminate called after throwing an instance of 'std::bad_alloc'", Exit.MEMORY),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.", Exit.HARDWARE),
        ("NVRM: Xid (PCI:0000:3b:00): 48, DBE", Exit.HARDWARE),
        ("CUDA error: uncorrectable ECC error encountered", Exit.HARDWARE),
        ("rank 3 differs from its replicas since step 8", Exit.HARDWARE),
        ("worker 1 of m1 ended (signal 7)", Exit.HARDWARE),
        ("OSError: [Errno 5] Input/output error: '/data/1'", Exit.HARDWARE),
        ("rank 0 lost a link (reset by peer)", Exit.NETWORK),
        ("the key-value store was lost", Exit.NETWORK),
        ("NCCL WARN Call to ibv_modify_qp failed", Exit.NETWORK),
        ("ConnectionError: Connection refused", Exit.NETWORK),
        ("Rank 1 raised ValueError: no.", Exit.USER),
        ("The script ended with exit status 3 on rank 1.", Exit.USER),
        ("worker 0 of m1 ended (exit status 1)", Exit.USER),
        ("m1 was lost: its process ended", Exit.UNKNOWN),
        ("worker 0 of m1 ended (signal 11)", Exit.UNKNOWN),
        ("worker 0 of m1 ended (signal 9)", Exit.UNKNOWN),
        ("NVRM: Xid (PCI:0000:3b:00): 13, Graphics Exception", Exit.UNKNOWN),
        ("NVRM: Xid (PCI:0000:3b:00): 31, Ch 1, MMU Fault", Exit.UNKNOWN),
        ("a bloom of secchi depth", Exit.UNKNOWN),
        ("", Exit.UNKNOWN),
    ],
)
def test_the_words_decide(text: str, kind: Exit) -> None:
    read = exit_of(text)
    assert read.kind is kind
    assert read.sentence == ("" if kind is Exit.UNKNOWN else text)


def test_what_weighs_more_is_found_in_any_line_and_that_line_is_shown() -> None:
    text = "Rank 1 raised RuntimeError.\nMend it.\n  torch: CUDA error: ECC " + "x" * 1000
    read = exit_of("nothing", text)
    assert read.kind is Exit.HARDWARE
    assert read.sentence.startswith("torch: CUDA error: ECC")
    assert len(read.sentence) == SHOWN_MAX
