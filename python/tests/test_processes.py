"""How processes come into a team, and the effect on the others when one does not go on."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import unittest

import together
import trimtab_team


def total(rank, word):
    own, out = bytearray([rank.rank + 1]), bytearray(1)
    rank.allreduce(own, out)
    return out[0], word, os.getpid()


def from_pipe(pipe):
    """The team comes later, as a message."""
    with pipe.recv().join() as rank:
        pipe.send(total(rank, "")[0])


def dies(rank, victim):
    rank.barrier()
    if rank.rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        while True:
            rank.barrier()
    except trimtab_team.PeerDied as error:
        return error.rank, str(error), time.monotonic() - began


def leaves(rank):
    if rank.rank == 0:
        return None
    try:
        rank.barrier()
    except trimtab_team.PeerLeft as error:
        return error.rank


def differs(rank):
    try:
        if rank.rank == 0:
            rank.broadcast(bytearray(8), root=0)
            rank.barrier()
        else:
            rank.allreduce(bytearray(8), bytearray(8))
    except (trimtab_team.Mismatch, trimtab_team.Revoked, trimtab_team.PeerLeft) as error:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and again.__dict__ == error.__dict__
        return str(error)


def late(rank):
    if rank.rank == 0:
        rank.set_deadline(0.05)
        try:
            rank.barrier()
        except TimeoutError as error:
            assert isinstance(error, trimtab_team.Timeout)
            return "timeout"
    time.sleep(0.3)
    try:
        rank.barrier()
    except trimtab_team.TeamError as error:
        return type(error).__name__


def waits(team, told):
    """Ends by Ctrl-C; raises the exception that a user's `except` would see."""
    rank = team.join(0)
    told.send("joined")
    try:
        rank.barrier()
    except KeyboardInterrupt:
        told.send("KeyboardInterrupt")
        try:
            rank.barrier()
        except trimtab_team.Revoked as error:
            told.send("Revoked by %d" % error.rank)


class Ways(unittest.TestCase):
    def every(self, method):
        found = together.processes(3, total, "word", method=method)
        self.assertEqual([(a, b) for a, b, _ in found], [(6, "word")] * 3)
        self.assertEqual(len({pid for _, _, pid in found} | {os.getpid()}), 4)

    def test_fork(self):
        self.every("fork")

    def test_spawn(self):
        self.every("spawn")

    def test_forkserver(self):
        self.every("forkserver")

    def test_as_a_message(self):
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        child = context.Process(target=from_pipe, args=(theirs,))
        child.start()
        team = trimtab_team.Team(2, deadline=together.PATIENCE)
        ours.send(team)
        with team.join() as rank:
            found = total(rank, "")[0]
        self.assertEqual([found, ours.recv()], [3, 3])
        child.join()
        self.assertEqual(child.exitcode, 0)

    def test_program(self):
        team = trimtab_team.Team(2, deadline=together.PATIENCE)
        program = (
            "import trimtab_team\n"
            "team = trimtab_team.from_environment(deadline=30)\n"
            "with team.join() as rank:\n"
            "    out = bytearray(1)\n"
            "    rank.allreduce(bytes([rank.rank + 1]), out)\n"
            "    print(team.rank, rank.rank, rank.size, out[0])\n"
        )
        found = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                env={**os.environ, **team.environment(number)},
                pass_fds=[team.fileno()],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(2)
        ]
        self.assertEqual([child.communicate(timeout=120)[0].split() for child in found], [list("0023"), list("1123")])

    def test_no_team(self):
        with self.assertRaisesRegex(trimtab_team.NotATeam, "TRIMTAB_TEAM is not set"):
            trimtab_team.from_environment()
        with self.assertRaisesRegex(trimtab_team.NotATeam, "TRIMTAB_TEAM is not set"):
            trimtab_team.Team.from_environment()
        with self.assertRaises(trimtab_team.NotATeam):
            trimtab_team.Team.adopt(0)


class Ends(unittest.TestCase):
    def test_killed(self):
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            team = trimtab_team.Team(3, deadline=together.PATIENCE)
            results = context.Queue()
            children = [
                context.Process(target=together._rank, args=(team, number, dies, (1,), results)) for number in range(3)
            ]
            for child in children:
                child.start()
            found = [results.get(timeout=together.PATIENCE) for _ in range(2)]
            for child in children:
                child.join()
            self.assertEqual(sorted(number for number, _, _ in found), [0, 2])
            for _, words, (rank, text, _) in found:
                self.assertIsNone(words)
                self.assertEqual(rank, 1)
                self.assertIn("rank 1 of the team has died", text)

    def test_left(self):
        self.assertEqual(together.processes(2, leaves), [None, 0])

    def test_other_calls(self):
        found = together.processes(2, differs)
        self.assertTrue(any("rank 0 called" in words and "this rank allreduce of 8 u8 by sum" in words for words in found), found)

    def test_deadline(self):
        self.assertEqual(together.processes(2, late), ["timeout", "Revoked"])

    def test_a_missing_rank_is_an_error(self):
        with self.assertRaisesRegex(trimtab_team.Refused, "rank 0"):
            trimtab_team.Team(2, gather=0.05).join(1)

    def interrupted(self, wait):
        context = multiprocessing.get_context("spawn")
        team = trimtab_team.Team(2, wait=wait)
        ours, theirs = context.Pipe()
        child = context.Process(target=waits, args=(team, theirs))
        child.start()
        rank = team.join(1)
        self.assertEqual(ours.recv(), "joined")
        time.sleep(0.1)
        os.kill(child.pid, signal.SIGINT)
        self.assertTrue(ours.poll(together.PATIENCE))
        self.assertEqual([ours.recv(), ours.recv()], ["KeyboardInterrupt", "Revoked by 0"])
        child.join()
        with self.assertRaises(trimtab_team.Revoked) as caught:
            rank.barrier()
        self.assertEqual(caught.exception.rank, 0)

    def test_ctrl_c(self):
        self.interrupted("auto")
        self.interrupted("park")

    def test_ctrl_c_while_joining(self):
        def soon():
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=soon)
        thread.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                trimtab_team.Team(2).join()
        finally:
            thread.join()

    def test_ctrl_c_while_dropped(self):
        """A rank that goes with a call under way waits for it; Ctrl-C ends that too, and is not lost."""
        team = trimtab_team.Team(2)
        gone = threading.Event()

        def other():
            there = team.join(1)
            time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGINT)
            gone.wait(together.PATIENCE)
            there.leave()

        thread = threading.Thread(target=other)
        thread.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                rank = team.join(0)
                rank.start_allreduce(bytearray(8), bytearray(8))
                del rank
                for _ in range(300):
                    time.sleep(0.1)
        finally:
            gone.set()
            thread.join()

    def test_handlers_that_return(self):
        """A signal that is handled does not end the wait; a call in its handler fails with an error."""
        seen = []

        def handler(number, frame):
            try:
                rank.barrier()
            except trimtab_team.ArgumentError as error:
                seen.append(str(error))

        before = signal.signal(signal.SIGUSR1, handler)
        team = trimtab_team.Team(2, deadline=together.PATIENCE)

        def other():
            with team.join(1) as there:
                time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.1)
                there.barrier()

        thread = threading.Thread(target=other)
        thread.start()
        try:
            rank = team.join(0)
            rank.barrier()
            self.assertEqual(len(seen), 1)
            self.assertIn("handler", seen[0])
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)

    def test_forked_copy(self):
        rank = trimtab_team.Team(1).join()
        child = os.fork()
        if child == 0:
            try:
                rank.barrier()
            except trimtab_team.Forked:
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        rank.barrier()

    def test_another_thread(self):
        rank = trimtab_team.Team(1).join()
        caught = []

        def elsewhere():
            try:
                rank.barrier()
            except trimtab_team.TeamError as error:
                caught.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        self.assertEqual(len(caught), 1)
        self.assertIn("thread that joined", caught[0])
        rank.barrier()

    def test_left_handle(self):
        with trimtab_team.Team(1).join() as rank:
            rank.barrier()
        with self.assertRaisesRegex(trimtab_team.Refused, "has left"):
            rank.barrier()
