"""torch's tensors as arguments of a team: their address, their type, and how they are combined. Without torch this cannot be imported."""

import functools

import torch
import torch.distributed as dist

# torch's types that a team can add. Elements of other types (bool, complex) travel as bytes.
TYPES = {
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
# Types of newer versions of torch.
TYPES.update((getattr(torch, name), name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name))

SUM = dist.ReduceOp.SUM
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
    # Their texts do not distinguish them.
    _WORDS = {}
# For booleans.
_LOGICAL = {"sum": "max", "max": "max", "or": "max", "prod": "min", "min": "min", "and": "min", "xor": "xor"}


class _Elements:
    """A tensor's elements as argument of a team: an address, kept valid by the owner of the tensor."""

    __slots__ = ("__array_interface__",)

    def __init__(self, tensor, size):
        self.__array_interface__ = {
            "version": 3,
            "shape": (tensor.numel() * tensor.element_size() // size,),
            "typestr": "|V%d" % size,
            "data": (tensor.data_ptr(), False),
        }


def passed(tensor):
    """Returns the elements and the name of their type; bytes, for a type that a team cannot add."""
    name = TYPES.get(tensor.dtype)
    if name is None:
        return _Elements(tensor, 1), "uint8"
    return _Elements(tensor, tensor.element_size()), name


def checked(tensor, what):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError("%s takes tensors, not %s" % (what, type(tensor).__name__))
    if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.is_quantized:
        raise ValueError(
            "%s of a tensor that is %s on %s: the backend trimtab takes dense tensors in this machine's memory (device cpu)"
            % (what, "quantized" if tensor.is_quantized else str(tensor.layout).replace("torch.", ""), tensor.device)
        )
    return tensor.detach() if tensor.requires_grad else tensor


def _bare(tensor):
    """Returns whether its memory holds its values: contiguous, and with no pending sign or conjugate."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def given(tensor, what):
    """Returns a contiguous tensor for reading."""
    tensor = checked(tensor, what)
    return tensor if _bare(tensor) else _copied(tensor)


def _copied(tensor):
    return torch.empty_like(tensor, memory_format=torch.contiguous_format).copy_(tensor)


class Wanted:
    """A tensor for writing: its contiguous form is `.piece`, which `done` copies back."""

    __slots__ = ("tensor", "piece")

    def __init__(self, tensor, what, fill=False):
        self.tensor = checked(tensor, what)
        self.piece = self.tensor
        if not _bare(self.tensor):
            self.piece = _copied(self.tensor) if fill else torch.empty_like(self.tensor, memory_format=torch.contiguous_format)

    def done(self):
        if self.piece is not self.tensor:
            self.tensor.copy_(self.piece)


class _Reducing:
    """How tensors of a type are combined by an operator of torch: as which elements, by which operator, and with which final division."""

    __slots__ = ("operator", "view", "divide")

    def __init__(self, name, dtype, what):
        self.divide = name == "avg"
        name = "sum" if self.divide else name
        self.view = None
        if dtype is torch.bool:
            name, self.view = _LOGICAL[name], lambda tensor: tensor.view(torch.uint8)
        elif dtype.is_complex and name == "sum":
            self.view = torch.view_as_real
        elif dtype not in TYPES:
            raise ValueError("%s by %s of %s is not in the backend trimtab" % (what, name, dtype))
        if self.divide and not (dtype.is_floating_point or dtype.is_complex):
            raise ValueError("%s by AVG is of floating point numbers, not of %s" % (what, dtype))
        self.operator = name

    def passed(self, tensor):
        return passed(tensor if self.view is None else self.view(tensor))


# Cached, since each call needs several checks.
_kept = functools.lru_cache(maxsize=256)(_Reducing)


def reducing(operator, dtype, what):
    # Comparing them takes microseconds, and their texts identify them too.
    name = _WORDS.get(str(operator)) or next((name for known, name in _OPERATORS if operator == known), None)
    if name is None:
        raise ValueError("%s by %s is not in the backend trimtab, which has SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR" % (what, operator))
    return _kept(name, dtype, what)
