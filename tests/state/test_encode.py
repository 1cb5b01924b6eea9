"""Values come back bit exact and in their own type; no bytes can do worse than ProtocolError."""

import contextlib
import math
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmover.errors import ProtocolError, UserError
from trainmover.state import encode as encode_module
from trainmover.state.encode import Hole, decode, encode, holes, join, split
from trainmover.state.tensor_bytes import DTYPES, view_bytes

keys = st.recursive(
    st.none()
    | st.booleans()
    | st.integers().filter(lambda number: number not in encode_module._ADDRESSES)
    | st.text()
    | st.binary()
    | st.floats(allow_nan=False),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
leaves = keys | st.floats() | st.complex_numbers() | st.sets(keys, max_size=3)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4).map(OrderedDict)
        | st.builds(deque, st.lists(inner, max_size=4), st.none() | st.integers(0, 5))
    ),
    max_leaves=20,
)


PACKED = pytest.mark.parametrize(
    "packed", [encode_module.packed, encode_module.packed_in_python], ids=["extension", "python"]
)


def same(a: Any, b: Any) -> bool:
    """Equal in type, order and bits."""
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return struct.pack("d", a) == struct.pack("d", b)
        case complex():
            return same(a.real, b.real) and same(a.imag, b.imag)
        case deque():
            return a.maxlen == b.maxlen and same([*a], [*b])
        case list() | tuple():
            return len(a) == len(b) and all(map(same, a, b))
        case dict():
            return same(list(a.items()), list(b.items()))
    return bool(a == b)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.lists(inner, max_size=20).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=20)
    ),
    max_leaves=40,
)
EDGES = [
    *(
        sign * (1 << bits) + more
        for bits in (5, 7, 8, 15, 16, 31, 32, 63, 64)
        for more in (-1, 0)
        for sign in (1, -1)
    ),
    *(
        kind(length)
        for length in (31, 32, 255, 256, 65535, 65536)
        for kind in ("x".__mul__, b"x".__mul__, [None].__mul__, (None,).__mul__)
    ),
    *(dict.fromkeys(map(str, range(length))) for length in (15, 16, 65535, 65536)),
    *((b"x" * length,) for length in (0, 1, 5, 13, 14, 252, 253, 65532, 65533)),
]


def written(value: Any) -> bytes:
    """As by a walk."""
    return encode_module._run(encode_module._Writer(tensors=None, canonical=False), value)


@given(values | plain)
def test_what_msgpack_has_is_written_as_by_a_walk(value: Any) -> None:
    """In one go, to the same bytes."""
    assert encode(value) == written(value)


@PACKED
@given(value=plain)
def test_plain_values_are_written_in_one_go(
    packed: Callable[[int, Any], bytes | None], value: Any
) -> None:
    assert packed(encode_module._TUPLE, value) in (None, written(value))


@PACKED
@pytest.mark.parametrize("value", EDGES, ids=lambda value: f"{str(value)[:9]}")
def test_each_length_and_each_size_of_number_has_its_form(
    packed: Callable[[int, Any], bytes | None], value: Any
) -> None:
    for one in (value, [value], {"one": value}):
        assert packed(encode_module._TUPLE, one) in (None, written(one))


def test_the_extension_leaves_to_a_walk_only_what_is_not_plain() -> None:
    state = {"groups": [{"lr": 0.1, "betas": (0.9, 0.99), "foreach": None}], "step": 2**64 - 1}
    assert encode_module.packed(encode_module._TUPLE, state) is not None
    endless: list[Any] = []
    endless.append(endless)
    others = [endless, {1: 2}, 2**64, -(2**63) - 1, {1, 2}, torch.Size([1]), 1j, "\ud800"]
    assert [encode_module.packed(encode_module._TUPLE, one) for one in others] == [None] * 8


@given(values)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert same(decode(encode(value)), value)


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_refused_or_read(data: bytes) -> None:
    for read in (decode, holes):
        with contextlib.suppress(ProtocolError):
            read(data)


@given(values, st.data())
def test_damaged_bytes_are_refused_or_read(value: Any, data: st.DataObject) -> None:
    damaged = bytearray(encode([value, torch.ones(2), numpy.ones(2), torch.float16]))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ProtocolError):
        decode(bytes(damaged))


def test_truncated_bytes_are_refused() -> None:
    data = encode({"a": [torch.ones(3), {1: (2, 3)}]})
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:end])


@pytest.mark.parametrize(
    "value",
    [
        defaultdict(list, {"x": [1]}),
        defaultdict(int, {1: 2}),
        defaultdict(None, {1: 2}),
        Counter({3: 1, 5: 2}),
        torch.Size([2, 3]),
        torch.bfloat16,
        torch.device("cpu"),
        bytearray(b"ab"),
        -(2**63),
        2**64 - 1,
        2**64,
        -(2**200),
    ],
    ids=repr,
)
def test_special_types_come_back(value: Any) -> None:
    back = decode(encode(value))
    assert type(back) is type(value)
    assert back == value
    if isinstance(value, defaultdict):
        assert back.default_factory is value.default_factory


@pytest.mark.parametrize("name", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 4)])
def test_tensors_of_every_type_come_back(name: str, shape: tuple[int, ...]) -> None:
    size = math.prod(shape) * DTYPES[name].itemsize
    raw = torch.arange(size, dtype=torch.uint8) % 2
    tensor = raw.view(DTYPES[name]).reshape(shape)
    back = decode(encode(tensor))
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert view_bytes(back) == view_bytes(tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).view(2, 3).t(),
        torch.arange(10)[::3],
        torch.ones(3).expand(2, 3),
        torch.tensor([1 + 2j]).conj(),
        torch.nn.Parameter(torch.ones(2)),
        torch.tensor([float("nan"), -0.0, float("-inf")]),
    ],
    ids=["transposed", "strided", "expanded", "conjugated", "parameter", "special"],
)
def test_any_strides_become_contiguous(tensor: torch.Tensor) -> None:
    back = decode(encode({"t": tensor}))["t"]
    assert type(back) is torch.Tensor
    assert back.is_contiguous()
    assert view_bytes(back) == view_bytes(tensor.detach())


def test_sparse_tensors_come_back_as_they_lie_there() -> None:
    twice = torch.tensor([[0, 0], [1, 1]])
    for tensor in (torch.eye(3).to_sparse(), torch.sparse_coo_tensor(twice, torch.ones(2))):
        data = encode({"t": tensor})
        back = decode(data)["t"]
        assert back.is_coalesced() == tensor.is_coalesced()
        assert torch.equal(back.to_dense(), tensor.to_dense())
        assert encode({"t": back}) == data == split({"t": tensor})[0]


def test_a_sparse_tensor_whose_entries_lie_outside_of_it_is_refused() -> None:
    beyond = torch.sparse_coo_tensor(torch.tensor([[5]]), torch.ones(1), (2,), is_coalesced=True)
    with pytest.raises(ProtocolError):
        decode(encode(beyond))


@pytest.mark.parametrize(
    "array",
    [
        numpy.arange(6).reshape(2, 3).T,
        numpy.float32(1.5),
        numpy.bool_(True),
        numpy.array("text"),
        numpy.empty((0, 2)),
        numpy.array(["2020-01-01"], dtype="datetime64[D]"),
    ],
    ids=repr,
)
def test_numpy_values_come_back(array: Any) -> None:
    back = decode(encode(array))
    assert type(back) is type(array)
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


class Directed(torch.Tensor):
    """It would come back a plain one."""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"scheduler": {"lambdas": [print]}}, r"scheduler\.lambdas\[0\]"),
        ([(1, {2: object()})], r"\[0\]\[1\]\[2\]"),
        ({"a": numpy.array([object()])}, "`a`"),
        ({"a": torch.eye(2).to_sparse_csr()}, "`a`"),
        ({"a": torch.empty(2, device="meta")}, "`a`"),
        ({"a": torch.ones(2).as_subclass(Directed)}, "`a`"),
        (defaultdict(lambda: 1), "default_factory"),
        (object(), "its top"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(UserError, match=path) as caught:
        encode(value)
    assert caught.value.do


@pytest.mark.parametrize(
    "address", [id, lambda weight: id(type(weight)), lambda weight: weight.data_ptr()]
)
@pytest.mark.parametrize(
    "known_by", [lambda key: {key: 1.0}, lambda key: {key}, lambda key: {(key, 1)}]
)
def test_what_is_known_by_its_address_means_nothing_in_another_process(
    address: Callable[[torch.Tensor], int], known_by: Callable[[int], object]
) -> None:
    with pytest.raises(UserError, match=r"an address, as id\(\) gives, at `momentum"):
        encode({"momentum": known_by(address(torch.ones(8)))})


def test_large_numbers_may_be_keys() -> None:
    keys = {2**31: 1, 1_764_170_000_000: 2, 1_764_170_000_000_000_000: 3, 2**45 + 8: 4}
    assert decode(encode(keys)) == keys


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UserError, match="contains itself"):
        encode(loop)


def test_module_state_keeps_its_versions() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    back = decode(encode(module.state_dict()))
    assert back._metadata == module.state_dict()._metadata
    torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).load_state_dict(back)


def test_split_leaves_live_tensors_out() -> None:
    weight = torch.ones(3, 4)
    value = {"w": weight, "state": {0: {"step": torch.tensor(2.0), "n": 7}}}
    structure, tensors = split(value)
    assert tensors[0] is weight
    assert holes(structure) == [
        Hole("w", (3, 4), torch.float32, False),
        Hole("state[0].step", (), torch.float32, False),
    ]
    back = join(structure, tensors)
    assert back["w"] is weight
    assert back["state"][0] == {"step": torch.tensor(2.0), "n": 7}


def test_holes_need_their_tensors() -> None:
    structure, _ = split([torch.ones(1)])
    with pytest.raises(ProtocolError, match="no tensor left"):
        join(structure, [])
    with pytest.raises(ProtocolError, match="not in these bytes"):
        decode(structure)


def test_canonical_structure_does_not_show_insertion_order() -> None:
    a = {"x": torch.ones(1), 2: torch.zeros(1), "n": {"p": 1, "q": 2}}
    b = {"n": {"q": 2, "p": 1}, 2: torch.zeros(1), "x": torch.ones(1)}
    (one, first), (other, second) = split(a, canonical=True), split(b, canonical=True)
    assert one == other
    assert first == second
    assert split(a)[0] != split(b)[0]
