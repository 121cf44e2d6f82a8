"""Arrays in the segment, and objects that are refused as arrays."""

import gc
import os
import unittest
import weakref

import together
import trimtab_team

try:
    import numpy as np
except ImportError:
    np = None


def lying(rank):
    """Collectives on arrays where they lie; others' blocks; the end of the rank."""
    a = rank.empty((300, 400))
    b = rank.empty((300, 400), "float64")
    assert a.shape == (300, 400) and a.dtype == np.float64 and a.flags.c_contiguous and a.flags.writeable
    a[:] = rank.rank + 1
    rank.allreduce(a, b)
    total = rank.size * (rank.size + 1) / 2
    assert (b == total).all()
    assert rank.allreduce(a, a, sync="loose") is a
    rank.fence()
    assert (a == total).all()
    small = rank.empty(4, np.int32)
    neighbour = rank.peer(small, (rank.rank + 1) % rank.size)
    neighbour[:] = rank.rank
    rank.barrier()
    left = (rank.rank - 1) % rank.size
    assert small.tolist() == [left] * 4
    rank.barrier()
    rank.free(small)
    again = rank.empty(4, "i32")
    assert again.ctypes.data == small.ctypes.data
    kept = b[1:3]
    rank.leave()
    del a, b, rank
    gc.collect()
    assert (kept == total).all()
    kept[0, 0] = -1
    return float(kept[0, 0])


def capsules(rank):
    block = rank.block((2, 3), "float32")
    first = np.asarray(block)
    first[:] = rank.rank
    second = np.from_dlpack(block)
    assert second.shape == (2, 3) and second.dtype == np.float32 and second.ctypes.data == first.ctypes.data
    assert block.__dlpack_device__() == (1, 0) and block.shape == (2, 3) and block.dtype == "float32"
    # Capsules that no library takes.
    block.__dlpack__()
    block.__dlpack__(max_version=(1, 0))
    rank.allreduce(block, block)
    total = sum(range(rank.size))
    assert (second == total).all()
    del block, first
    gc.collect()
    return float(second[1, 2]) == total


@unittest.skipIf(np is None, "no numpy here")
class Lying(unittest.TestCase):
    def test_processes(self):
        self.assertEqual(together.processes(3, lying), [-1.0] * 3)

    def test_threads(self):
        self.assertEqual(together.threads(2, lying), [-1.0] * 2)

    def test_capsules(self):
        self.assertEqual(together.processes(2, capsules), [True] * 2)

    def test_given_back(self):
        """Arrays are kept until a call is over and no longer, and a team's memory as long as any array lies in it."""

        def mapped():
            with open("/proc/self/maps") as maps:
                return sum("trimtab-team" in line for line in maps)

        gc.collect()
        before, open_before = mapped(), len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            rank = trimtab_team.Team(1, heap=1 << 16).join()
            a = np.ones(10_000)
            seen = weakref.ref(a)
            request = rank.start_allreduce(a)
            del a
            request.wait()
            self.assertIsNone(seen())
            kept = rank.empty(10)
            del rank, request
        gc.collect()
        self.assertEqual(mapped(), before + 1)
        kept[:] = 7
        self.assertEqual(kept.sum(), 70)
        del kept
        gc.collect()
        self.assertEqual((mapped(), len(os.listdir("/proc/self/fd"))), (before, open_before))

    def test_heap_is_bounded(self):
        rank = trimtab_team.Team(1, heap=1 << 16).join()
        with self.assertRaises(trimtab_team.TeamError):
            rank.empty(1 << 20)
        with self.assertRaises(trimtab_team.ArgumentError):
            rank.empty((1 << 62, 1 << 62))
        self.assertEqual(rank.empty(8).shape, (8,))


class Refused(unittest.TestCase):
    """Invalid arguments are reported before anything is done: the team goes on."""

    def setUp(self):
        self.rank = trimtab_team.Team(1).join()

    def tearDown(self):
        self.rank.barrier()
        self.rank.leave()

    def refused(self, words, call, *arguments, **keywords):
        with self.assertRaisesRegex(trimtab_team.ArgumentError, words):
            call(*arguments, **keywords)

    @unittest.skipIf(np is None, "no numpy here")
    def test_arrays(self):
        rank, refused = self.rank, self.refused
        square = np.zeros((4, 4))
        refused("one after the other.*ascontiguousarray", rank.allreduce, np.zeros(8)[::2])
        refused("one after the other", rank.allreduce, square.T)
        refused("one after the other", rank.broadcast, square[:, 1])
        refused('of type "\\?"; a team knows int8', rank.allreduce, np.zeros(4, bool))
        refused("type", rank.allreduce, np.zeros(4, "complex64"))
        refused("type", rank.allreduce, np.zeros(4, ">f8"))
        refused("float64.*float32", rank.allreduce, np.zeros(4), np.zeros(4, "float32"))
        refused("needs 4 elements in out, not 5", rank.allreduce, np.zeros(4), np.zeros(5))
        both = np.zeros(5)
        refused("overlap", rank.allreduce, both[:4], both[1:])
        fixed = np.zeros(4)
        fixed.flags.writeable = False
        refused("read-only", rank.broadcast, fixed)
        refused("read-only", rank.allreduce, np.zeros(4), fixed)
        self.assertEqual(rank.allreduce(fixed).tolist(), [0] * 4)
        refused("elements of 8 bytes", rank.allreduce, np.zeros(4), dtype="bfloat16")
        refused("root 1", rank.reduce, np.zeros(4), root=1)
        refused("float64|f64|fraction|bits", rank.allreduce, np.zeros(4), op="xor")
        refused("does not begin", rank.free, np.zeros(4))

    def test_words(self):
        rank, refused = self.rank, self.refused
        refused("op is", rank.allreduce, bytearray(4), bytearray(4), op="mean")
        refused("sync is", rank.allreduce, bytearray(4), bytearray(4), sync="slack")
        refused("dtype", rank.allreduce, bytearray(4), bytearray(4), dtype="string")
        refused("buffer protocol, not float", rank.allreduce, 1.5)
        refused("array as out", rank.scatter, bytearray(4), None)
        refused("read-only", rank.broadcast, b"1234")
        refused("wait is", trimtab_team.Team, 2, wait="never")
        refused("deadline", trimtab_team.Team, 2, deadline=-1.0)
        with self.assertRaises(trimtab_team.TeamError):
            trimtab_team.Team(0)
        with self.assertRaises(ValueError):
            trimtab_team.Team(1, cell=1000)

    def test_odd_shapes(self):
        if np is None:
            self.skipTest("no numpy here")
        # One dimension of a single element may have any stride.
        a = np.zeros((1, 8))[:, ::1]
        self.assertEqual(self.rank.allreduce(a[:, :]).shape, (1, 8))
        self.assertEqual(self.rank.allreduce(np.float64(3)).shape, ())
        self.assertEqual(self.rank.allgather(np.zeros((0, 3))).shape, (1, 0, 3))
