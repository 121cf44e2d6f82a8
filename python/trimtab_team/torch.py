"""torch.distributed over a team: the backend `trimtab`, for tensors in this machine's memory.

    import torch.distributed, trimtab_team.torch

    torch.distributed.init_process_group("trimtab")        # as with gloo; started by torchrun, for instance

Importing this registers it; the rest of the package needs no torch.

Idea. torch's store, by which ranks find each other in any case, carries one name, under which they meet as a team. From then on collectives go through
the team's memory, in the thread that calls, and are over when they return: a Work of async_op=True is done when it is given out.
Tensors are taken where they lie; what does not lie in one piece is copied first. send and recv go by the store, which is slow and never in the way.

Limits. Ranks are processes of one machine, and a group belongs to the thread that made it, which is the one that DistributedDataParallel uses on CPUs.
"""

import ctypes
import datetime
import functools
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

# torch's name for what a team can add. Of others (bool, complex) the bytes travel.
_TYPES = {
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
# What newer ones have.
_TYPES.update((getattr(torch, name), name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name))

_SUM = dist.ReduceOp.SUM
_OPERATORS = [
    (dist.ReduceOp.SUM, "sum"),
    (dist.ReduceOp.PRODUCT, "prod"),
    (dist.ReduceOp.MIN, "min"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.BAND, "and"),
    (dist.ReduceOp.BOR, "or"),
    (dist.ReduceOp.BXOR, "xor"),
]
if hasattr(dist.ReduceOp, "AVG"):
    _OPERATORS.append((dist.ReduceOp.AVG, "avg"))
_WORDS = {str(known): name for known, name in _OPERATORS}
if len(_WORDS) < len(_OPERATORS):
    # They say too little to be told apart.
    _WORDS = {}
# Of truth values.
_LOGICAL = {"sum": "max", "max": "max", "or": "max", "prod": "min", "min": "min", "and": "min", "xor": "xor"}


class _Elements:
    """A tensor's elements as the team takes them: an address, kept by who has the tensor."""

    __slots__ = ("__array_interface__",)

    def __init__(self, tensor, size):
        self.__array_interface__ = {
            "version": 3,
            "shape": (tensor.numel() * tensor.element_size() // size,),
            "typestr": "|V%d" % size,
            "data": (tensor.data_ptr(), False),
        }


def _passed(tensor):
    """Elements, and the word for their type; bytes, of a type that a team cannot add."""
    name = _TYPES.get(tensor.dtype)
    if name is None:
        return _Elements(tensor, 1), "uint8"
    return _Elements(tensor, tensor.element_size()), name


def _checked(tensor, what):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError("%s takes tensors, not %s" % (what, type(tensor).__name__))
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(
            "%s of a tensor that is %s on %s: the backend trimtab takes dense tensors in this machine's memory (device cpu)"
            % (what, "quantized" if tensor.is_quantized else str(tensor.layout).replace("torch.", ""), tensor.device)
        )
    return tensor.detach() if tensor.requires_grad else tensor


def _bare(tensor):
    """Whether its memory has what it shows: one after the other, and neither sign nor conjugate still to be made."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _given(tensor, what):
    """A tensor that is read, in one piece."""
    tensor = _checked(tensor, what)
    return tensor if _bare(tensor) else _copied(tensor)


def _copied(tensor):
    return torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)


class _Wanted:
    """A tensor that is written, in one piece: `.piece` of it, which is put back by `done`."""

    __slots__ = ("tensor", "piece")

    def __init__(self, tensor, what, fill=False):
        self.tensor = _checked(tensor, what)
        self.piece = self.tensor
        if not _bare(self.tensor):
            self.piece = _copied(self.tensor) if fill else torch.empty_like(self.tensor, memory_format=torch.contiguous_format)

    def done(self):
        if self.piece is not self.tensor:
            self.tensor.copy_(self.piece)


def _work(result):
    """A Work that is done."""
    future = torch.futures.Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _one(tensors, what):
    """The only tensor of a list: more are for several devices of a process, of which there is one here."""
    if len(tensors) != 1:
        raise ValueError("%s takes one tensor for each process, not %d" % (what, len(tensors)))
    return tensors[0]


class _Reducing:
    """How tensors of a type are combined by an operator of torch's: as which elements, by which word, and what is done at the end."""

    __slots__ = ("operator", "view", "divide")

    def __init__(self, name, dtype, what):
        self.divide = name == "avg"
        name = "sum" if self.divide else name
        self.view = None
        if dtype is torch.bool:
            name, self.view = _LOGICAL[name], lambda tensor: tensor.view(torch.uint8)
        elif dtype.is_complex and name == "sum":
            self.view = torch.view_as_real
        elif dtype not in _TYPES:
            raise ValueError("%s by %s of %s is not in the backend trimtab" % (what, name, dtype))
        if self.divide and not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError("%s by AVG is of floating point numbers, not of %s" % (what, dtype))
        self.operator = name

    def passed(self, tensor):
        return _passed(tensor if self.view is None else self.view(tensor))


# Kept, since much is asked for each call.
_kept = functools.lru_cache(maxsize=256)(_Reducing)


def _reducing(operator, dtype, what):
    # Comparing them takes microseconds, and their words name them too.
    name = _WORDS.get(str(operator)) or next((name for known, name in _OPERATORS if operator == known), None)
    if name is None:
        raise ValueError("%s by %s is not in the backend trimtab, which has SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR" % (what, operator))
    return _kept(name, dtype, what)


class TrimtabProcessGroup(dist.ProcessGroup):
    """See the module. Its methods are those that torch calls; programs call torch.distributed's functions."""

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

    # Newer versions of torch ask these, and the names of backends' groups where there is a backend beside the group.
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
        wanted = _Wanted(_one(tensors, "broadcast"), "broadcast", fill=opts.rootRank == self._own)
        elements, name = _passed(wanted.piece)
        self._member.broadcast(elements, opts.rootRank, dtype=name)
        wanted.done()
        return _work(tensors)

    def allreduce(self, tensors, opts=None):
        for tensor in tensors:
            self._allreduce(tensor, _SUM if opts is None else opts.reduceOp)
        return _work(tensors)

    allreduce_coalesced = allreduce

    def _allreduce(self, tensor, operator):
        wanted = _Wanted(tensor, "allreduce", fill=True)
        reducing = _reducing(operator, wanted.piece.dtype, "allreduce")
        elements, name = reducing.passed(wanted.piece)
        self._member.allreduce(elements, elements, reducing.operator, dtype=name)
        if reducing.divide:
            wanted.piece.div_(self._size)
        wanted.done()

    def reduce(self, tensors, opts):
        tensor = _one(tensors, "reduce")
        mine = opts.rootRank == self._own
        wanted = _Wanted(tensor, "reduce", fill=True)
        reducing = _reducing(opts.reduceOp, wanted.piece.dtype, "reduce")
        elements, name = reducing.passed(wanted.piece)
        self._member.reduce(elements, elements if mine else None, reducing.operator, opts.rootRank, dtype=name)
        if mine:
            if reducing.divide:
                wanted.piece.div_(self._size)
            wanted.done()
        return _work(tensors)

    def _gathered(self, output, given):
        (into, _), (elements, name) = _passed(output), _passed(given)
        self._member.allgather(elements, into, dtype=name)

    def allgather(self, outputs, inputs, opts=None):
        lists = _one(outputs, "allgather")
        given = _given(_one(inputs, "allgather"), "allgather")
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
        wanted = _Wanted(output, "all_gather_into_tensor")
        self._gathered(wanted.piece, _given(given, "all_gather_into_tensor"))
        wanted.done()
        return _work([output])

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs):
            self._allgather_base(output, given)
        return _work(outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def _stacked(self, tensors, what, like):
        """Whether there is one for each rank, and all are like this one."""
        if len(tensors) != self._size:
            raise ValueError("%s of %d ranks takes a list of as many tensors, not of %d" % (what, self._size, len(tensors)))
        for tensor in tensors:
            _checked(tensor, what)
            if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
                raise ValueError(
                    "%s takes tensors of one size and type: %d elements of %s beside %d of %s"
                    % (what, tensor.numel(), tensor.dtype, like.numel(), like.dtype)
                )

    def _reduce_scattered(self, output, given, operator, what):
        wanted = _Wanted(output, what)
        reducing = _reducing(operator, output.dtype, what)
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
        operator = _SUM if opts is None else opts.reduceOp
        self._reduce_scattered(output, _given(given, "reduce_scatter_tensor"), operator, "reduce_scatter_tensor")
        return _work([output])

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, given in zip(outputs, inputs):
            self._reduce_scatter_base(output, given, opts)
        return _work(outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def gather(self, outputs, inputs, opts):
        given, mine = _given(_one(inputs, "gather"), "gather"), opts.rootRank == self._own
        table, into = None, None
        if mine:
            self._stacked(_one(outputs, "gather"), "gather", given)
            table = given.new_empty((self._size,) + tuple(given.shape))
            into, _ = _passed(table)
        elements, name = _passed(given)
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
            elements, _ = _passed(given)
        wanted = _Wanted(output, "scatter")
        into, name = _passed(wanted.piece)
        self._member.scatter(elements, into, opts.rootRank, dtype=name)
        wanted.done()
        return _work(outputs)

    def alltoall_base(self, output, given, output_sizes, input_sizes, opts=None):
        what = "all_to_all_single"
        wanted, given = _Wanted(output, what), _given(given, what)
        if not output_sizes and not input_sizes and output.dtype == given.dtype and output.numel() == given.numel():
            (into, name), (elements, _) = _passed(wanted.piece), _passed(given)
            self._member.alltoall(elements, into, dtype=name)
        else:
            # Sizes are of the first dimension.
            parts = given.split(input_sizes or [given.shape[0] // self._size] * self._size)
            places = wanted.piece.split(output_sizes or [output.shape[0] // self._size] * self._size)
            self._exchanged(places, parts, what)
        wanted.done()
        return _work([output])

    all_to_all_single = alltoall_base

    def alltoall(self, outputs, inputs, opts=None):
        self._exchanged([_checked(output, "all_to_all") for output in outputs], inputs, "all_to_all")
        return _work(outputs)

    def _exchanged(self, places, parts, what):
        """A part to each, of any size: as many elements for each pair as the largest has."""
        if len(places) != self._size or len(parts) != self._size:
            raise ValueError(
                "%s of %d ranks takes a part for each, not %d to be given and %d to be got" % (what, self._size, len(parts), len(places))
            )
        parts = [_given(part, what).reshape(-1) for part in parts]
        dtype = parts[0].dtype
        if any(tensor.dtype != dtype for tensor in [*parts, *places]):
            raise ValueError("%s takes tensors of one type" % what)
        most = torch.tensor([max(tensor.numel() for tensor in [*parts, *places])])
        # All come to the same, whatever each of them has.
        self._allreduce(most, dist.ReduceOp.MAX)
        most = most.item()
        table = parts[0].new_empty((2, self._size, most))
        for row, part in zip(table[0], parts):
            row[: part.numel()] = part
        (elements, name), (into, _) = _passed(table[0]), _passed(table[1])
        self._member.alltoall(elements, into, dtype=name)
        for row, place in zip(table[1], places):
            place.copy_(row[: place.numel()].view(place.shape))

    def _key(self, counts, source, target, tag):
        number = counts[source, target, tag] = counts.get((source, target, tag), 0) + 1
        return "from %d to %d, tag %d, %d" % (source, target, tag, number)

    def send(self, tensors, target, tag=0):
        given = _given(_one(tensors, "send"), "send")
        words = ctypes.string_at(given.data_ptr(), given.numel() * given.element_size()) if given.numel() else b""
        self._store.set(self._key(self._sent, self._own, target, tag), words)
        return _work(tensors)

    def recv(self, tensors, source, tag=0):
        return _Receiving(self._store, self._key(self._awaited, source, self._own, tag), _one(tensors, "recv"), self._timeout)

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("recv without a source is not in the backend trimtab: say which rank sends (src=)")


class _Receiving(Work):
    """A message that is taken when it is waited for."""

    def __init__(self, store, key, tensor, timeout):
        super().__init__()
        self._store, self._key, self._tensor, self._limit = store, key, _checked(tensor, "recv"), timeout
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
    """The team of a group: every rank says where it is, and takes the name that rank 0 has made up."""
    store.set("machine of %d" % rank, _meeting.machine())
    if rank == 0:
        store.set("team", secrets.token_hex(16))
    _meeting.all_here([store.get("machine of %d" % other).decode() for other in range(size)])
    # Nothing lies in the heap: tensors are taken where they are.
    return Team.of_job(rank, size, store.get("team").decode(), heap=0, deadline=seconds or None, gather=min(seconds or 300.0, 300.0))


def _create(store, rank, size, timeout):
    return TrimtabProcessGroup(store, rank, size, timeout)


def _rendezvous(url, timeout=datetime.timedelta(minutes=5), **_):
    """torch's store for ranks that meet as from_environment() says, whoever started them: a server at any free port, which a team tells."""
    with _meeting.from_environment(deadline=timeout.total_seconds()).join() as member:
        rank, size = member.rank, member.size
        # Nothing is asked of others before they know the port.
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
    """Makes the backend known to torch.distributed, under the name `trimtab`; once is enough, and importing the module does it."""
    if hasattr(dist.Backend, "TRIMTAB"):
        return
    devices = {"devices": ["cpu"]} if "devices" in inspect.signature(dist.Backend.register_backend).parameters else {}
    dist.Backend.register_backend("trimtab", _create, **devices)
    dist.register_rendezvous_handler("trimtab", _rendezvous)


register()
