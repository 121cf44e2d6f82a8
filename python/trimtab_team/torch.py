"""torch.distributed over a team: the backend `trimtab`, for tensors in this machine's memory.

    import torch.distributed, trimtab_team.torch

    torch.distributed.init_process_group("trimtab")        # as with gloo; started by torchrun, for instance

Importing this registers it; the rest of the package needs no torch.

Idea. torch's store, by which ranks find each other in any case, carries one name, under which they meet as a team. From then on collectives go through
the team's memory, in the calling thread, and are over when they return: a Work of async_op=True is done when it is returned.
Tensors are taken where they lie; a tensor that is not contiguous is copied first. send and recv use the store, which is slow and never blocks others.

Limits. Ranks are processes of one machine, and a group belongs to the thread that made it, which is the one that DistributedDataParallel uses on CPUs.
"""

import ctypes
import datetime
import inspect
import secrets

import torch
import torch.distributed as dist

from . import _meeting
from ._errors import TeamError
from ._native import Team

try:
    from torch._C._distributed_c10d import Work, _create_work_from_future
except ImportError as error:
    raise ImportError("this torch has no distributed package, which trimtab_team.torch is a backend of") from error
else:
    from . import _tensors


def _work(result):
    """Returns a Work that is done."""
    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _one(tensors, what):
    """Returns the only tensor of a list: more would be for several devices of a process, which has one here."""
    if len(tensors) != 1:
        raise ValueError("%s takes one tensor for each process, not %d" % (what, len(tensors)))
    return tensors[0]


class TrimtabProcessGroup(dist.ProcessGroup):
    """A process group over a team. torch calls its methods; programs call torch.distributed's functions."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._store, self._timeout = store, timeout
        self._sent, self._awaited = {}, {}
        self._own, self._size, self._name, self._words = rank, size, "", ""
        seconds = timeout.total_seconds()
        team = _meet(store, rank, size, seconds)
        self._member = team.join()

    def getBackendName(self):
        return "trimtab"

    def __repr__(self):
        return "<trimtab_team.torch.TrimtabProcessGroup: rank %d of %d>" % (self._own, self._size)

    # Newer versions of torch call these, and the names of backends' groups if there is a backend beside the group.
    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def setGroupDesc(self, words):
        self._words = words

    def getGroupDesc(self):
        return self._words

    @property
    def supports_splitting(self):
        return False

    def abort(self):
        self._member.leave()

    def shutdown(self):
        self._member.leave()

    def barrier(self, opts=None):
        self._member.barrier()
        return _work([])

    def broadcast(self, tensors, opts):
        wanted = _tensors.Wanted(_one(tensors, "broadcast"), "broadcast", fill=opts.rootRank == self._own)
        elements, name = _tensors.passed(wanted.piece)
        self._member.broadcast(elements, opts.rootRank, dtype=name)
        wanted.done()
        return _work(tensors)

    def allreduce(self, tensors, opts=None):
        for tensor in tensors:
            self._allreduce(tensor, _tensors.SUM if opts is None else opts.reduceOp)
        return _work(tensors)

    allreduce_coalesced = allreduce

    def _allreduce(self, tensor, operator):
        wanted = _tensors.Wanted(tensor, "allreduce", fill=True)
        reducing = _tensors.reducing(operator, wanted.piece.dtype, "allreduce")
        elements, name = reducing.passed(wanted.piece)
        self._member.allreduce(elements, elements, reducing.operator, dtype=name)
        if reducing.divide:
            wanted.piece.div_(self._size)
        wanted.done()

    def reduce(self, tensors, opts):
        tensor = _one(tensors, "reduce")
        mine = opts.rootRank == self._own
        wanted = _tensors.Wanted(tensor, "reduce", fill=True)
        reducing = _tensors.reducing(opts.reduceOp, wanted.piece.dtype, "reduce")
        elements, name = reducing.passed(wanted.piece)
        self._member.reduce(elements, elements if mine else None, reducing.operator, opts.rootRank, dtype=name)
        if mine:
            if reducing.divide:
                wanted.piece.div_(self._size)
            wanted.done()
        return _work(tensors)

    def _gathered(self, output, given):
        (into, _), (elements, name) = _tensors.passed(output), _tensors.passed(given)
        self._member.allgather(elements, into, dtype=name)

    def allgather(self, outputs, inputs, opts=None):
        lists = _one(outputs, "allgather")
        given = _tensors.given(_one(inputs, "allgather"), "allgather")
        self._stacked(lists, "allgather", given)
        table = given.new_empty((self._size,) + tuple(given.shape))
        self._gathered(table, given)
        for output, row in zip(lists, table):
            output.detach().copy_(row.view(output.shape))
        return _work(outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None):
        # A list of each rank's tensors for each rank.
        for at, given in enumerate(inputs):
            self.allgather([[tensors[at] for tensors in outputs]], [given])
        return _work(outputs)

    def _allgather_base(self, output, given, opts=None):
        if output.numel() != given.numel() * self._size or output.dtype != given.dtype:
            raise ValueError(
                "all_gather_into_tensor of %d ranks: the output has %d elements of %s, and the input %d of %s"
                % (self._size, output.numel(), output.dtype, given.numel(), given.dtype)
            )
        wanted = _tensors.Wanted(output, "all_gather_into_tensor")
        self._gathered(wanted.piece, _tensors.given(given, "all_gather_into_tensor"))
        wanted.done()
        return _work([output])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs):
            self._allgather_base(output, given)
        return _work(outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _stacked(self, tensors, what, like):
        """Checks that there is one for each rank, and that all are like this one."""
        if len(tensors) != self._size:
            raise ValueError("%s of %d ranks takes a list of as many tensors, not of %d" % (what, self._size, len(tensors)))
        for tensor in tensors:
            _tensors.checked(tensor, what)
            if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
                raise ValueError(
                    "%s takes tensors of one size and type: %d elements of %s beside %d of %s"
                    % (what, tensor.numel(), tensor.dtype, like.numel(), like.dtype)
                )

    def _reduce_scattered(self, output, given, operator, what):
        wanted = _tensors.Wanted(output, what)
        reducing = _tensors.reducing(operator, output.dtype, what)
        (into, name), (elements, _) = reducing.passed(wanted.piece), reducing.passed(given)
        self._member.reduce_scatter(elements, into, reducing.operator, dtype=name)
        if reducing.divide:
            wanted.piece.div_(self._size)
        wanted.done()

    def reduce_scatter(self, outputs, inputs, opts):
        output, parts = _one(outputs, "reduce_scatter"), _one(inputs, "reduce_scatter")
        self._stacked(parts, "reduce_scatter", output)
        given = torch.cat([part.detach().reshape(-1) for part in parts])
        self._reduce_scattered(output, given, opts.reduceOp, "reduce_scatter")
        return _work(outputs)

    def _reduce_scatter_base(self, output, given, opts=None):
        if given.numel() != output.numel() * self._size or output.dtype != given.dtype:
            raise ValueError(
                "reduce_scatter_tensor of %d ranks: the input has %d elements of %s, and the output %d of %s"
                % (self._size, given.numel(), given.dtype, output.numel(), output.dtype)
            )
        operator = _tensors.SUM if opts is None else opts.reduceOp
        self._reduce_scattered(output, _tensors.given(given, "reduce_scatter_tensor"), operator, "reduce_scatter_tensor")
        return _work([output])

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs):
            self._reduce_scatter_base(output, given, opts)
        return _work(outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def gather(self, outputs, inputs, opts):
        given, mine = _tensors.given(_one(inputs, "gather"), "gather"), opts.rootRank == self._own
        table, into = None, None
        if mine:
            self._stacked(_one(outputs, "gather"), "gather", given)
            table = given.new_empty((self._size,) + tuple(given.shape))
            into, _ = _tensors.passed(table)
        elements, name = _tensors.passed(given)
        self._member.gather(elements, into, opts.rootRank, dtype=name)
        if mine:
            for output, row in zip(outputs[0], table):
                output.detach().copy_(row.view(output.shape))
        return _work(outputs)

    def scatter(self, outputs, inputs, opts):
        output, elements = _one(outputs, "scatter"), None
        if opts.rootRank == self._own:
            parts = _one(inputs, "scatter")
            self._stacked(parts, "scatter", output)
            given = torch.cat([part.detach().reshape(-1) for part in parts])
            elements, _ = _tensors.passed(given)
        wanted = _tensors.Wanted(output, "scatter")
        into, name = _tensors.passed(wanted.piece)
        self._member.scatter(elements, into, opts.rootRank, dtype=name)
        wanted.done()
        return _work(outputs)

    def alltoall_base(self, output, given, output_sizes, input_sizes, opts=None):
        what = "all_to_all_single"
        wanted, given = _tensors.Wanted(output, what), _tensors.given(given, what)
        if not output_sizes and not input_sizes and output.dtype == given.dtype and output.numel() == given.numel():
            (into, name), (elements, _) = _tensors.passed(wanted.piece), _tensors.passed(given)
            self._member.alltoall(elements, into, dtype=name)
        else:
            # Sizes are lengths in the first dimension.
            parts = given.split(input_sizes or [given.shape[0] // self._size] * self._size)
            places = wanted.piece.split(output_sizes or [output.shape[0] // self._size] * self._size)
            self._exchanged(places, parts, what)
        wanted.done()
        return _work([output])

    all_to_all_single = alltoall_base

    def alltoall(self, outputs, inputs, opts=None):
        self._exchanged([_tensors.checked(output, "all_to_all") for output in outputs], inputs, "all_to_all")
        return _work(outputs)

    def _exchanged(self, places, parts, what):
        """Sends a part of any size to each rank: every pair exchanges the number of elements of the largest part."""
        if len(places) != self._size or len(parts) != self._size:
            raise ValueError(
                "%s of %d ranks takes one part for each rank, not %d to send and %d to receive" % (what, self._size, len(parts), len(places))
            )
        parts = [_tensors.given(part, what).reshape(-1) for part in parts]
        dtype = parts[0].dtype
        if any(tensor.dtype != dtype for tensor in [*parts, *places]):
            raise ValueError("%s takes tensors of one type" % what)
        most = torch.tensor([max(tensor.numel() for tensor in [*parts, *places])])
        # All ranks compute the same value, whatever sizes they have.
        self._allreduce(most, dist.ReduceOp.MAX)
        most = most.item()
        table = parts[0].new_empty((2, self._size, most))
        for row, part in zip(table[0], parts):
            row[: part.numel()] = part
        (elements, name), (into, _) = _tensors.passed(table[0]), _tensors.passed(table[1])
        self._member.alltoall(elements, into, dtype=name)
        for row, place in zip(table[1], places):
            place.copy_(row[: place.numel()].view(place.shape))

    def _key(self, counts, source, target, tag):
        number = counts[source, target, tag] = counts.get((source, target, tag), 0) + 1
        return "from %d to %d, tag %d, %d" % (source, target, tag, number)

    def send(self, tensors, target, tag=0):
        given = _tensors.given(_one(tensors, "send"), "send")
        words = ctypes.string_at(given.data_ptr(), given.numel() * given.element_size()) if given.numel() else b""
        self._store.set(self._key(self._sent, self._own, target, tag), words)
        return _work(tensors)

    def recv(self, tensors, source, tag=0):
        return _Receiving(self._store, self._key(self._awaited, source, self._own, tag), _one(tensors, "recv"), self._timeout)

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("recv without a source is not in the backend trimtab: say which rank sends (src=)")


class _Receiving(Work):
    """A message that is read from the store when it is waited for."""

    def __init__(self, store, key, tensor, timeout):
        super().__init__()
        self._store, self._key, self._tensor, self._limit = store, key, _tensors.checked(tensor, "recv"), timeout
        self._taken = False

    def wait(self, timeout=None):
        if not self._taken:
            self._store.wait([self._key], timeout or self._limit)
            words = self._store.get(self._key)
            self._store.delete_key(self._key)
            self._taken = True
            wanted = self._tensor.numel() * self._tensor.element_size()
            if len(words) != wanted:
                raise TeamError("recv of %d bytes, and %d were sent (%s)" % (wanted, len(words), self._key))
            if words:
                flat = torch.frombuffer(bytearray(words), dtype=self._tensor.dtype)
                self._tensor.copy_(flat.view(self._tensor.shape))
        return True

    def is_completed(self):
        if not self._taken and self._store.check([self._key]):
            self.wait()
        return self._taken

    def is_success(self):
        return self._taken

    def synchronize(self):
        self.wait()

    def result(self):
        self.wait()
        return [self._tensor]

    def get_future(self):
        self.wait()
        future = torch.futures.Future()
        future.set_result([self._tensor])
        return future


def _meet(store, rank, size, seconds):
    """Returns the team of a group: every rank announces its machine, and takes the name that rank 0 has chosen."""
    store.set("machine of %d" % rank, _meeting.machine())
    if rank == 0:
        store.set("team", secrets.token_hex(16))
    _meeting.all_here([store.get("machine of %d" % other).decode() for other in range(size)])
    # Nothing lies in the heap: tensors are taken where they are.
    return Team.of_job(rank, size, store.get("team").decode(), heap=0, deadline=seconds or None, gather=min(seconds or 300.0, 300.0))


def _create(store, rank, size, timeout):
    return TrimtabProcessGroup(store, rank, size, timeout)


def _rendezvous(url, timeout=datetime.timedelta(minutes=5), **_):
    """Yields torch's store for ranks that meet by from_environment(), whatever launched them: a server at any free port, announced over a team."""
    with _meeting.from_environment(deadline=timeout.total_seconds()).join() as member:
        rank, size = member.rank, member.size
        # No rank contacts the server before it knows the port.
        store = None
        if rank == 0:
            store = dist.TCPStore("127.0.0.1", 0, size, True, timeout, wait_for_workers=False)
        port = bytearray((store.port if store else 0).to_bytes(2, "little"))
        member.broadcast(port)
        if store is None:
            store = dist.TCPStore("127.0.0.1", int.from_bytes(port, "little"), size, False, timeout, wait_for_workers=False)
        member.barrier()
    yield store, rank, size
    raise RuntimeError("ranks that met by trimtab:// cannot meet again as a group of another size")


def register():
    """Registers the backend with torch.distributed, under the name `trimtab`; once is enough, and importing the module does it."""
    if hasattr(dist.Backend, "TRIMTAB"):
        return
    devices = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend("trimtab", _create, **devices)
    dist.register_rendezvous_handler("trimtab", _rendezvous)


register()
