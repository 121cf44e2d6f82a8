"""torch.distributed over a team, beside gloo: the same results, also in training."""

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import warnings

import together
import trimtab_team

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing
except ImportError:
    torch = None
else:
    import trimtab_team.torch

FLOATS = "float16 bfloat16 float32 float64".split()
WHOLE = "int8 uint8 int16 int32 int64".split()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def _process(rank, ranks, port, work, folder, arguments):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    torch.set_num_threads(1)
    dist.init_process_group("trimtab", rank=rank, world_size=ranks)
    try:
        torch.save(work(rank, ranks, *arguments), os.path.join(folder, str(rank)))
    finally:
        dist.destroy_process_group()


def spawned(ranks, work, *arguments, method="fork"):
    """Runs work(rank, ranks, *arguments) in processes whose default group is a team; its results in the order of ranks. Forked ones have
    torch imported already."""
    with tempfile.TemporaryDirectory() as folder:
        given = (ranks, free_port(), work, folder, arguments)
        torch.multiprocessing.start_processes(_process, given, ranks, start_method=method)
        return [torch.load(os.path.join(folder, str(rank))) for rank in range(ranks)]


def numbers(rank, count, name, salt=0):
    """Returns small whole numbers, so that all types hold the results."""
    return ((torch.arange(count) * 7 + rank * 3 + salt) % 5).to(getattr(torch, name))


def scattered(tensor):
    """Returns the same elements, not contiguous."""
    wide = torch.stack([tensor, tensor + 1], dim=-1)
    return wide[..., 0]


def same(found, wanted, what):
    assert found.dtype == wanted.dtype and found.shape == wanted.shape and torch.equal(found, wanted), (what, found, wanted)


def one_type(rank, ranks, name):
    made = [numbers(r, 12, name) for r in range(ranks)]
    total = sum(made[1:], made[0].clone())
    for given in (made[rank].clone(), scattered(made[rank]), made[rank].clone().reshape(3, 4).t()):
        want = total if given.dim() == 1 else total.reshape(3, 4).t()
        assert dist.all_reduce(given) is None
        same(given, want, "allreduce")
    given = made[rank].clone()
    assert dist.all_reduce(given, dist.ReduceOp.MAX, async_op=True).wait()
    same(given, torch.stack(made).max(0)[0], "allreduce by max")
    if name in FLOATS:
        given = made[rank].clone()
        dist.all_reduce(given, dist.ReduceOp.AVG)
        same(given, total / ranks, "allreduce by avg")
    else:
        given = made[rank].clone()
        dist.all_reduce(given, dist.ReduceOp.BXOR)
        want = made[0].clone()
        for other in made[1:]:
            want ^= other
        same(given, want, "allreduce by xor")
    for root in range(ranks):
        given = scattered(made[rank])
        dist.broadcast(given, root)
        same(given, made[root], "broadcast")
        given = made[rank].clone()
        dist.reduce(given, root)
        same(given, total if rank == root else made[rank], "reduce")
        places = [scattered(torch.zeros_like(given)) for _ in range(ranks)] if rank == root else None
        dist.gather(made[rank], places, root)
        if rank == root:
            for place, want in zip(places, made):
                same(place, want, "gather")
        place = scattered(torch.zeros_like(given))
        dist.scatter(place, [scattered(part) for part in made] if rank == root else None, root)
        same(place, made[rank], "scatter")
    places = [torch.zeros_like(part) for part in made]
    dist.all_gather(places, scattered(made[rank]))
    for place, want in zip(places, made):
        same(place, want, "all_gather")
    place = made[0].new_zeros(ranks * 12)
    dist.all_gather_into_tensor(place, made[rank])
    same(place, torch.cat(made), "all_gather_into_tensor")
    wide = [[numbers(r, 5, name, to) for to in range(ranks)] for r in range(ranks)]
    got = [w[rank] for w in wide]
    want = sum(got[1:], got[0].clone())
    place = made[0].new_zeros(5)
    dist.reduce_scatter(place, wide[rank])
    same(place, want, "reduce_scatter")
    place = made[0].new_zeros(5)
    dist.reduce_scatter_tensor(place, torch.cat(wide[rank]))
    same(place, want, "reduce_scatter_tensor")
    places = [torch.zeros_like(part) for part in got]
    dist.all_to_all(places, wide[rank])
    for place, part in zip(places, got):
        same(place, part, "all_to_all")
    place = made[0].new_zeros(ranks * 5)
    dist.all_to_all_single(place, torch.cat(wide[rank]))
    same(place, torch.cat(got), "all_to_all_single")
    # Rank r gives r + to + 1 rows to each.
    rows = [rank + to + 1 for to in range(ranks)]
    given = torch.cat([numbers(rank, 2 * n, name).reshape(n, 2) for n in rows])
    place = given.new_zeros(sum(rows), 2)
    dist.all_to_all_single(place, given, rows, rows)
    same(place, torch.cat([numbers(r, 2 * (r + rank + 1), name).reshape(-1, 2) for r in range(ranks)]), "uneven all_to_all_single")
    several = [made[rank].clone(), scattered(made[rank])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(several)
    for given in several:
        same(given, total, "all_reduce_coalesced")


def all_types(rank, ranks):
    for name in FLOATS + WHOLE:
        one_type(rank, ranks, name)
    flags = torch.tensor([True, rank == 0, False])
    dist.all_reduce(flags, dist.ReduceOp.PRODUCT)
    assert flags.tolist() == [True, ranks == 1, False]
    dist.all_reduce(flags, dist.ReduceOp.SUM)
    whole = torch.tensor([complex(rank, 1)])
    dist.all_reduce(whole)
    assert whole.tolist() == [complex(sum(range(ranks)), ranks)]
    # Conjugates and signs that torch has not computed yet.
    whole = torch.tensor([complex(rank, 1)]).conj()
    dist.broadcast(whole, ranks - 1)
    assert whole.tolist() == [complex(ranks - 1, -1)]
    minus = torch.tensor([complex(0, rank + 1)]).conj().imag
    assert minus.is_neg()
    dist.broadcast(minus, ranks - 1)
    assert minus.tolist() == [-float(ranks)]
    model = torch.nn.Linear(2, 1)
    dist.all_reduce(model.weight, dist.ReduceOp.AVG)
    places = [torch.zeros(1, dtype=torch.bool) for _ in range(ranks)]
    dist.all_gather(places, torch.tensor([rank == 1]))
    same(torch.cat(places), torch.arange(ranks) == 1, "all_gather of bool")
    found = [None] * ranks
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": r} for r in range(ranks)]
    objects = ["from %d" % rank]
    dist.broadcast_object_list(objects, ranks - 1)
    assert objects == ["from %d" % (ranks - 1)]
    for shape in ((), (0,), (0, 3)):
        dist.all_reduce(torch.zeros(shape))
    dist.barrier()
    return dist.get_backend()


def beside_gloo(rank, ranks):
    gloo = dist.new_group(backend="gloo")
    torch.manual_seed(rank)
    for count in (1, 1000, 200_003):
        given = torch.randn(count)
        mine, theirs = given.clone(), given.clone()
        dist.all_reduce(mine)
        dist.all_reduce(theirs, group=gloo)
        torch.testing.assert_close(mine, theirs)
        whole = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(whole, mine)
        assert all(torch.equal(mine, other) for other in whole)
    return True


def trained(rank, group):
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.Tanh(), torch.nn.Linear(64, 3))
    if rank:
        # The values of rank 0 count.
        for parameter in model.parameters():
            parameter.data.add_(1)
    # Several buckets, so that sums are under way while gradients are still computed.
    parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + rank)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(parallel(torch.randn(16, 20)), torch.randn(16, 3))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [parameter.detach().clone() for parameter in model.parameters()], losses


def training(rank, ranks):
    gloo = dist.new_group(backend="gloo")
    ours, our_losses = trained(rank, None)
    theirs, their_losses = trained(rank, gloo)
    assert our_losses == their_losses, (our_losses, their_losses)
    for mine, other in zip(ours, theirs):
        assert torch.equal(mine, other)
    return ours


def groups(rank, ranks):
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 2])]
    found = []
    for members, group in zip(([0, 2], [1, 2]), pairs):
        if rank in members:
            given = torch.tensor([rank + 1])
            dist.all_reduce(given, group=group)
            dist.broadcast(place := torch.tensor([rank]), src=2, group=group)
            found.append((given.item(), place.item()))
    # The store is rank 0's, and others may still ask it whether all have made their groups.
    dist.barrier()
    return found


def messages(rank, ranks):
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    place = torch.zeros(3, 2, dtype=torch.bfloat16).t()
    # All ranks receive before any sends.
    asked = dist.irecv(place, left)
    dist.isend(torch.full((2, 3), rank, dtype=torch.bfloat16), right).wait()
    asked.wait()
    assert place.tolist() == [[left] * 3] * 2
    if rank == 0:
        dist.send(torch.tensor([1.0]), 1, tag=5)
        dist.send(torch.tensor([2.0]), 1, tag=6)
    if rank == 1:
        second, first = torch.zeros(1), torch.zeros(1)
        dist.recv(second, 0, tag=6)
        dist.recv(first, 0, tag=5)
        assert (first.item(), second.item()) == (1.0, 2.0)
    dist.barrier()
    return True


def refused(rank, ranks):
    def words(call, *arguments, **keywords):
        try:
            call(*arguments, **keywords)
        except Exception as error:
            return "%s: %s" % (type(error).__name__, error)

    found = [
        words(dist.all_reduce, torch.eye(3).to_sparse()),
        words(dist.all_reduce, torch.ones(2), dist.ReduceOp.BXOR),
        words(dist.all_reduce, torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG),
        words(dist.recv, torch.ones(2)),
    ]
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(words(dist.all_reduce, torch.ones(2))))
    thread.start()
    thread.join()
    # Nothing was done, and the group goes on.
    dist.barrier()
    return found + elsewhere


def one_dies(rank, ranks):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            dist.all_reduce(torch.ones(100_000))
    except trimtab_team.PeerDied as error:
        return error.rank


def sizes_differ(rank, ranks):
    try:
        dist.all_reduce(torch.ones(3 + rank))
    except trimtab_team.TeamError as error:
        return str(error)


@unittest.skipIf(torch is None, "no torch here")
class Torch(unittest.TestCase):
    def test_all_types(self):
        self.assertEqual(spawned(3, all_types), ["trimtab"] * 3)

    def test_alone(self):
        self.assertEqual(spawned(1, all_types), ["trimtab"])

    def test_beside_gloo(self):
        self.assertEqual(spawned(3, beside_gloo), [True] * 3)

    def test_training_as_with_gloo(self):
        first, second = spawned(2, training, method="spawn")
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(first, second)))

    def test_groups(self):
        self.assertEqual(spawned(3, groups), [[(4, 2)], [(5, 2)], [(4, 2), (5, 2)]])

    def test_messages(self):
        self.assertEqual(spawned(3, messages), [True] * 3)

    def test_refused(self):
        for found in spawned(2, refused):
            for words, wanted in zip(found, ("dense tensors", "fraction|float|f32|bits", "AVG is of floating", "src=", "thread that joined")):
                self.assertRegex(words or "", wanted)

    def test_one_dies(self):
        # Processes of our own: start_processes ends the others when one fails, and which of them a rank then finds dead first is random.
        with tempfile.TemporaryDirectory() as folder:
            context = torch.multiprocessing.get_context("fork")
            given = (3, free_port(), one_dies, folder, ())
            started = [context.Process(target=_process, args=(rank, *given)) for rank in range(3)]
            for process in started:
                process.start()
            for process in started:
                process.join(60)
            self.assertEqual([process.exitcode for process in started], [0, -signal.SIGKILL, 0])
            self.assertEqual([torch.load(os.path.join(folder, rank)) for rank in "02"], [1, 1])

    def test_sizes_differ(self):
        self.assertTrue(any("allreduce of 3 f32" in words and "4 f32" in words for words in spawned(2, sizes_differ)))

    def test_torchrun(self):
        program = textwrap.dedent(
            """
            import torch, torch.distributed as dist, trimtab_team.torch
            dist.init_process_group("trimtab")
            given = torch.tensor([float(dist.get_rank() + 1)])
            dist.all_reduce(given)
            print("rank", dist.get_rank(), "has", given.item())
            dist.destroy_process_group()
            """
        )
        self.assertEqual(torchrun(program), ["rank 0 has 3.0", "rank 1 has 3.0"])

    @unittest.skipUnless(together.GUIDE.exists(), "no guide beside these tests")
    def test_guide(self):
        found = [(program, lines) for program, command, lines in together.examples() if command and command[0] == "torchrun"]
        self.assertEqual(len(found), 1)
        for program, lines in found:
            self.assertEqual(torchrun(program), lines)

    def test_started_into_a_team(self):
        """As by trimtab run --ranks: no variable of torch is in the environment."""
        program = textwrap.dedent(
            """
            import torch, torch.distributed as dist, trimtab_team.torch
            dist.init_process_group("trimtab", init_method="trimtab://")
            given = torch.tensor([float(dist.get_rank() + 1)])
            dist.all_reduce(given)
            print("rank", dist.get_rank(), "has", given.item())
            dist.barrier()
            dist.destroy_process_group()
            """
        )
        team = trimtab_team.Team(2)
        started = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env={**os.environ, **team.environment(rank)},
                pass_fds=[team.fileno()],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        self.assertEqual([child.communicate(timeout=120)[0] for child in started], ["rank 0 has 3.0\n", "rank 1 has 3.0\n"])

    def test_torchrun_without_torch(self):
        program = textwrap.dedent(
            """
            import sys, trimtab_team
            for _ in range(2):
                with trimtab_team.from_environment().join() as rank:
                    out = bytearray(1)
                    rank.allreduce(bytes([rank.rank + 1]), out)
            print("rank", rank.rank, "has", out[0], "torch" in sys.modules)
            """
        )
        self.assertEqual(torchrun(program), ["rank 0 has 3 False", "rank 1 has 3 False"])


def torchrun(program):
    """Returns the output of its two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w") as text:
            text.write(program)
        # Without redirections torch 1.13 fails under Python 3.11, which iterates over flags in another way.
        shown = ["--redirects", "1", "--tee", "1", "--log_dir", folder]
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", free_port(), *shown, path]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(done.stderr)
    return sorted(re.findall(r"rank \d has .*", done.stdout))


if __name__ == "__main__":
    unittest.main()
