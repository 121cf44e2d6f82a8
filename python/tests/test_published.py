"""Published arrays, batches of calls, explanations and tunings."""

import array
import unittest

import together
import trimtab_team

try:
    import numpy as np
except ImportError:
    np = None


# Bytes. Calls of some hundred have one algorithm only, and are not tuned.
SIZE = 100_000


def published(rank, dtype, publisher):
    table = rank.publish((3, 2), dtype, publisher)
    assert table.shape == (3, 2) and table.dtype == dtype and not table.any(), table
    assert table.flags.writeable == (rank.rank == publisher)
    # All have seen the zeros.
    rank.barrier()
    if rank.rank == publisher:
        table[:] = np.arange(6).reshape(3, 2)
    else:
        try:
            table[0, 0] = 1
        except ValueError as error:
            assert "read-only" in str(error)
        else:
            raise AssertionError("a reader wrote")
    rank.barrier()
    rank.leave()
    # It stays when ranks have left.
    return table.tolist()


def batched(rank):
    total, largest = array.array("d", [1.0]), array.array("d", [float(rank.rank)])
    with rank.batch() as same:
        assert same is rank
        rank.allreduce(total, total)
        rank.allreduce(largest, largest, "max")
        try:
            rank.batch().__enter__()
        except trimtab_team.ArgumentError as error:
            assert "do not nest" in str(error)
    try:
        with rank.batch():
            raise KeyError("of the block")
    except KeyError:
        pass
    # The batch is over.
    rank.barrier()
    with rank.batch():
        rank.broadcast(total)
    return total[0], largest[0]


def explained(rank):
    words = [rank.explain("allreduce", 8), rank.explain("barrier", 0)]
    try:
        rank.explain("sum", 8)
    except trimtab_team.ArgumentError as error:
        words.append(str(error))
    return words


def tuned(rank):
    found = rank.tune(["allreduce", "barrier"], [SIZE], 20)
    words = rank.explain("allreduce", SIZE)
    # Calls still have the right results.
    total = bytearray(SIZE)
    rank.allreduce(bytearray(b"\1" * SIZE), total)
    assert total == bytes([rank.size]) * SIZE
    return [(one["call"], one["bytes"], sorted(one)) for one in found], words


class Published(unittest.TestCase):
    @unittest.skipUnless(np, "no numpy here")
    def test_one_rank_writes_and_others_read(self):
        for run in (together.processes, together.threads):
            for dtype, publisher in (("float32", 0), ("int64", 2)):
                wanted = [[0, 1], [2, 3], [4, 5]]
                self.assertEqual(run(3, published, dtype, publisher), [wanted] * 3)

    @unittest.skipUnless(np, "no numpy here")
    def test_wrong_arguments_are_refused_at_all_ranks(self):
        def wrong(rank):
            said = []
            for arguments in ((4, "float64", 7), (0,), ("many",), ((2, 1 << 62),)):
                try:
                    rank.publish(*arguments)
                except trimtab_team.ArgumentError as error:
                    said.append(str(error))
            return said

        for said in together.threads(2, wrong):
            self.assertEqual(len(said), 4, said)
            self.assertIn("a team of 2 has no rank 7", said[0])


class Calls(unittest.TestCase):
    def test_a_batch_has_the_same_results(self):
        for run in (together.processes, together.threads):
            self.assertEqual(run(3, batched), [(3.0, 2.0)] * 3)

    def test_calls_are_explained(self):
        for small, barrier, unknown in together.threads(2, explained):
            self.assertEqual(small, "allreduce of 8 bytes: beside the flags, in one round")
            self.assertTrue(barrier.startswith("barrier: "), barrier)
            self.assertIn("'sum' is no call" if "'sum'" in unknown else '"sum" is no call', unknown)
            self.assertIn("allreduce", unknown)

    def test_a_tuning_says_what_it_measured(self):
        fields = ["bytes", "call", "changed", "us", "usual_us", "why"]
        for found, words in together.processes(2, tuned):
            self.assertEqual({one[0] for one in found}, {"allreduce", "barrier"})
            self.assertTrue(all(one[2] == fields for one in found), found)
            self.assertIn(SIZE, {one[1] for one in found})
            self.assertTrue(words.startswith(f"allreduce of {SIZE} bytes: "), words)


if __name__ == "__main__":
    unittest.main()
