"""Every collective against numpy, in all types, sizes and modes."""

import unittest

import together

try:
    import numpy as np
except ImportError:
    np = None

TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
MODES = ["mine", "loose", "strict"]


def given(rank, count, dtype, salt=0):
    """Returns the data that a rank gives: small whole numbers, so that all types hold the results and the order of additions does not matter."""
    return ((np.arange(count) * 7 + rank * 3 + salt) % 5).astype(dtype)


def same(found, wanted):
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype, (found.dtype, wanted.dtype)


def everything(rank, dtype, count, sync):
    me, size = rank.rank, rank.size
    all_given = [given(r, count, dtype) for r in range(size)]
    mine = all_given[me]
    total = sum(all_given[1:], all_given[0].copy())
    for root in range(size):
        a = mine.copy()
        assert rank.broadcast(a, root, sync=sync) is a
        same(a, all_given[root])
        found = rank.reduce(mine, root=root, sync=sync)
        same(found, total) if me == root else assert_none(found)
        found = rank.gather(mine, root=root, sync=sync)
        same(found, np.stack(all_given)) if me == root else assert_none(found)
        parts = np.stack(all_given) if me == root else None
        same(rank.scatter(parts, np.empty(count, dtype), root, sync=sync), mine)
    same(rank.allreduce(mine, sync=sync), total)
    in_place = mine.copy()
    assert rank.allreduce(in_place, in_place, sync=sync) is in_place
    same(in_place, total)
    same(rank.allreduce(mine, op="max", sync=sync), np.max(all_given, axis=0))
    same(rank.allreduce(mine, op="min", sync=sync), np.min(all_given, axis=0))
    same(rank.scan(mine, sync=sync), sum(all_given[1 : me + 1], all_given[0].copy()))
    same(rank.allgather(mine, sync=sync), np.stack(all_given))
    wide = [given(r, size * count, dtype, 1).reshape(size, count) for r in range(size)]
    same(rank.alltoall(wide[me], sync=sync), np.stack([w[me] for w in wide]))
    part = rank.reduce_scatter(wide[me], sync=sync)
    same(part.reshape(-1), sum(w[me] for w in wide[1:]) + wide[0][me] if size > 1 else wide[0][0])
    if not dtype.startswith("float"):
        same(rank.allreduce(mine, op="xor", sync=sync), np.bitwise_xor.reduce(all_given))
        same(rank.allreduce(mine, op="and", sync=sync), np.bitwise_and.reduce(all_given))
        same(rank.allreduce(mine, op="or", sync=sync), np.bitwise_or.reduce(all_given))
    same(rank.allreduce(mine, op="prod", sync=sync), np.multiply.reduce(all_given, dtype=dtype))
    rank.fence()


def assert_none(found):
    assert found is None, found


def sweep(rank, types, counts):
    for dtype in types:
        for count in counts:
            for sync in MODES:
                everything(rank, dtype, count, sync)
    return rank.size


def bfloat16(rank):
    # 1 + rank/2 in the upper half of a float32's bits.
    values = np.array([1 + rank.rank / 2, -3], "float32")
    bits = (values.view("uint32") >> 16).astype("uint16")
    total = rank.allreduce(bits, dtype="bfloat16")
    size = rank.size
    wanted = np.array([size + size * (size - 1) / 4, -3 * size], "float32")
    same((total.astype("uint32") << 16).view("float32"), wanted)
    try:
        import ml_dtypes
    except ImportError:
        return "without ml_dtypes"
    same(rank.allreduce(values.astype(ml_dtypes.bfloat16)).astype("float32"), wanted)
    lying = rank.empty(2, "bfloat16")
    lying[:] = values
    assert rank.allreduce(lying, lying) is lying and lying.dtype == ml_dtypes.bfloat16
    same(lying.astype("float32"), wanted)
    return "all"


def plain(rank):
    """Without numpy: any object with the buffer protocol."""
    import array

    numbers = array.array("q", [rank.rank, 10])
    total = array.array("q", [0, 0])
    rank.allreduce(numbers, total)
    words = bytearray(b"from %d" % rank.rank)
    rank.broadcast(words, root=1)
    every = bytearray(rank.size)
    rank.allgather(bytes([rank.rank]), every)
    return list(total), bytes(words), list(every)


def started(rank):
    """Several calls under way at a time, whose arrays have no other owner."""
    requests = [rank.start_allreduce(np.full(1 << n, rank.rank + 1.0)) for n in range(0, 18, 3)]
    parts = rank.start_alltoall(np.arange(rank.size * 3, dtype="int32"))
    forgotten = rank.start_broadcast(np.zeros(100_000), root=1)
    del forgotten
    while not requests[0].test():
        pass
    whole = rank.size * (rank.size + 1) / 2
    for n, request in zip(range(0, 18, 3), requests):
        same(request.wait(), np.full(1 << n, whole))
    same(parts.wait(), np.tile(np.arange(3, dtype="int32") + rank.rank * 3, rank.size))
    # One is still under way when the rank leaves.
    rank.start_allreduce(np.ones(50_000))
    return True


@unittest.skipIf(np is None, "no numpy here")
class Collectives(unittest.TestCase):
    def test_types_and_modes(self):
        self.assertEqual(together.processes(2, sweep, TYPES, [1, 17, 3000]), [2, 2])

    def test_odd_team_of_threads(self):
        self.assertEqual(together.threads(3, sweep, ["float32", "int64"], [0, 5, 1000]), [3, 3, 3])

    def test_large(self):
        self.assertEqual(together.processes(2, sweep, ["float64"], [100_003]), [2, 2])

    def test_alone(self):
        self.assertEqual(together.threads(1, sweep, ["uint16"], [9]), [1])

    def test_bfloat16(self):
        if together.processes(3, bfloat16) != ["all"] * 3:
            self.skipTest("no ml_dtypes here: bfloat16 was seen as uint16 only")

    def test_started(self):
        self.assertEqual(together.processes(3, started), [True] * 3)
        self.assertEqual(together.threads(2, started), [True] * 2)


class Plain(unittest.TestCase):
    def test_without_numpy(self):
        for total, words, every in together.processes(2, plain):
            self.assertEqual((total, words, every), ([1, 20], b"from 1", [0, 1]))
