"""Teams made of teams, operators of the caller's own, and all modes of synchronisation."""

import array
import os
import signal
import unittest
import unittest.mock

import together
import trimtab_team

try:
    import numpy as np
except ImportError:
    np = None


def total(rank, value):
    own, out = bytearray([value]), bytearray(1)
    rank.allreduce(own, out)
    return out[0]


def parted(rank):
    """Even and odd ranks, the last without either; the even ones in reverse order."""
    last = rank.size - 1
    colour = None if rank.rank == last else rank.rank % 2
    part = rank.split(colour, key=-rank.rank if colour == 0 else 0, heap=1 << 16)
    if part is None:
        rank.barrier()
        return None
    found = (part.rank, part.size, total(part, rank.rank + 1))
    lying = part.block(16, "int32")
    assert lying.shape == (16,)
    part.barrier()
    # Both go on, in one order.
    assert total(part, 1) == part.size
    rank.barrier()
    return found


def shrunk(rank):
    rank.barrier()
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            rank.barrier()
    except trimtab_team.PeerDied as error:
        assert error.rank == 1
    left = rank.shrink()
    try:
        rank.barrier()
    except trimtab_team.Refused as error:
        assert "has left" in str(error)
    return left.rank, left.size, total(left, left.rank + 1)


def alone_to_shrink(rank):
    """The other lives and does not come."""
    if rank.rank == 0:
        try:
            rank.shrink(0.1)
        except trimtab_team.Refused as error:
            return str(error)
    import time

    time.sleep(0.5)
    return None


def own_operators(rank):
    size = rank.size
    a = np.arange(5000, dtype="float64") + rank.rank
    smooth = rank.allreduce(a, op=np.logaddexp)
    wanted = a - rank.rank
    for other in range(1, size):
        wanted = np.logaddexp(wanted, np.arange(5000) + other)
    np.testing.assert_allclose(smooth, wanted)

    def in_place(left, right):
        # Neither belongs to the team: they may be kept.
        kept.append(right)
        np.maximum(left, right, out=left)

    kept = []
    pairs = np.array([rank.rank, 10 - rank.rank], "int32")
    assert rank.allreduce(pairs, op=in_place).tolist() == [size - 1, 10]
    assert all(right.base is None for right in kept)
    found = rank.reduce(pairs, op=lambda left, right: left * 100 + right, root=1)
    assert (found is None) == (rank.rank != 1)
    if rank.rank == 1:
        # In the order of ranks.
        assert found[0] == int("".join("%02d" % other for other in range(size)))
    assert rank.scan(pairs, op=np.add).tolist() == [sum(range(rank.rank + 1)), sum(10 - other for other in range(rank.rank + 1))]
    wide = np.full((size, 3), rank.rank + 1, "uint8")
    assert rank.reduce_scatter(wide, op=np.multiply).tolist() == [[int(np.prod(np.arange(1, size + 1)))] * 3]
    # Types without operators in numpy come as their bits.
    assert rank.allreduce(np.array([1 << rank.rank], "uint16"), op=np.bitwise_or, dtype="bfloat16").tolist() == [(1 << size) - 1]
    try:
        rank.start_allreduce(a, op=np.add)
    except trimtab_team.ArgumentError as error:
        assert "started" in str(error)
    rank.barrier()
    return size


class Failure(Exception):
    pass


def failing_operator(rank, how, count):
    def operator(left, right):
        if rank.rank == 1:
            if how == "raises":
                raise Failure("as told")
            if how == "gives fractions":
                return left / 2
            if how == "gives others":
                return np.zeros(left.size + 1, left.dtype)
            rank.barrier()
        return left + right

    try:
        rank.allreduce(np.ones(count, "int64"), op=operator)
    except Exception as error:
        mine = "%s: %s" % (type(error).__name__, error)
    else:
        mine = "no error"
    try:
        rank.barrier()
    except trimtab_team.Revoked as error:
        return mine, error.rank
    return mine, None


def all_modes(rank):
    words = ["none", "mine", "all"]
    for enter in words:
        for leave in words:
            for count in (1, 100, 5000):
                a = np.full(count, rank.rank + 1)
                assert (rank.allreduce(a, sync=(enter, leave)) == sum(range(1, rank.size + 1))).all()
                request = rank.start_allgather(a, sync=(enter, leave))
                assert request.wait().shape == (rank.size, count)
                rank.fence()
    return True


def different(rank):
    """Ranks make different calls, get the error, and continue together."""
    try:
        while True:
            rank.broadcast(array.array("i", [0] * (1 + rank.rank)))
    except trimtab_team.Mismatch as error:
        words = str(error)
    usable = rank.recover()
    usable.barrier()
    return usable.size, words, usable.report()


class Parts(unittest.TestCase):
    def test_recover_and_report(self):
        for check in ("on", "off"):
            with unittest.mock.patch.dict(os.environ, TRIMTAB_TEAM_CHECK=check):
                for size, words, report in together.threads(2, different):
                    self.assertEqual(size, 2)
                    for part in ("broadcast of 1 i32", "broadcast of 2 i32"):
                        self.assertIn(part, words)
                    # The calls of all ranks are in the text of an error if calls are checked.
                    self.assertEqual("its last calls" in words, check == "on")
                    self.assertIn("call 1: barrier", report)

    def test_split(self):
        # Of ranks 0 to 4: 0 and 2 in reverse, 1 and 3, and nothing for 4.
        wanted = [(1, 2, 4), (0, 2, 6), (0, 2, 4), (1, 2, 6), None]
        self.assertEqual(together.processes(5, parted), wanted)

    def test_split_threads(self):
        self.assertEqual(together.threads(3, parted), [(0, 1, 1), (0, 1, 2), None])

    def test_shrink(self):
        import multiprocessing

        context = multiprocessing.get_context("fork")
        team = trimtab_team.Team(3, deadline=together.PATIENCE)
        results = context.Queue()
        children = [context.Process(target=together._rank, args=(team, number, shrunk, (), results)) for number in range(3)]
        for child in children:
            child.start()
        found = sorted(results.get(timeout=together.PATIENCE) for _ in range(2))
        for child in children:
            child.join()
        self.assertEqual(found, [(0, None, (0, 2, 3)), (2, None, (1, 2, 3))])

    def test_shrink_in_vain(self):
        self.assertIn("rank 1 is alive and has not come", together.processes(2, alone_to_shrink)[0])

    def test_heap_for_parts(self):
        rank = trimtab_team.Team(1, heap=1 << 16).join()
        with self.assertRaises(trimtab_team.TeamError):
            rank.split(0, heap=1 << 30)
        with self.assertRaises((OverflowError, TypeError)):
            rank.split(-1)


@unittest.skipIf(np is None, "no numpy here")
class Operators(unittest.TestCase):
    def test_own(self):
        self.assertEqual(together.processes(3, own_operators), [3] * 3)
        self.assertEqual(together.threads(2, own_operators), [2] * 2)

    def test_failing(self):
        for how, wanted in (
            ("raises", "Failure: as told"),
            ("gives fractions", "Cannot cast"),
            ("gives others", "could not broadcast"),
            ("calls", "in the middle of a call"),
        ):
            for count in (1, 100_000):
                found = together.processes(3, failing_operator, how, count)
                told = [words for words, _ in found]
                self.assertTrue(any(wanted in words for words in told), (how, count, told))
                # No rank takes it for a result, and no rank waits.
                for rank, (words, revoked) in enumerate(found):
                    self.assertNotEqual(words, "no error", (how, count, rank))
                    self.assertEqual(revoked, 1, (how, count, rank))

    def test_words(self):
        rank = trimtab_team.Team(1).join()
        with self.assertRaisesRegex(trimtab_team.ArgumentError, "op is .* or a function"):
            rank.allreduce(np.ones(1), op=3)
        with self.assertRaisesRegex(trimtab_team.ArgumentError, "pair of 'none'"):
            rank.allreduce(np.ones(1), sync=("none", "some"))
        with self.assertRaisesRegex(trimtab_team.ArgumentError, "root first"):
            rank.broadcast(np.ones(1), "first")


@unittest.skipIf(np is None, "no numpy here")
class Modes(unittest.TestCase):
    def test_all_nine(self):
        self.assertEqual(together.processes(3, all_modes), [True] * 3)


if __name__ == "__main__":
    unittest.main()
