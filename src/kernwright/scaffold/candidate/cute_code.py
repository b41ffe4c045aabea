"""CuTe code: a traced op as one CuTe-DSL kernel per variant, with the Python functions that compile and launch it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from string import Template

from kernwright.scaffold.candidate.python_host import (
    dtypes_of,
    function_of,
    layouts_of,
    main_of,
    numbers_of,
    tensors_of,
)
from kernwright.scaffold.candidate.traced_op import FLOAT32, DtypeOf, NotPerRow, RowValue, TracedOp, TracedVariant

BINARY = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
UNARY = {
    "rsqrt": "cute.math.rsqrt({})", "sqrt": "cute.math.sqrt({})", "exp": "cute.math.exp({})",
    "tanh": "cute.math.tanh({})", "erf": "cute.math.erf({})", "abs": "cute.math.absf({})", "neg": "-{}",
    "relu": "_relu({})",
    "sigmoid": "1.0 / (1.0 + cute.math.exp(-{}))", "silu": "{0} / (1.0 + cute.math.exp(-{0}))",
}  # fmt: skip
_EXACT_OPTIONS = """\
# The contract is exact: fma=0 keeps the compiler from adding a product without rounding it first, as torch does.
OPTIONS = EnableTVMFFI(True), ExtraCompilerOpts("nvvm-options=-fma=0")
"""
_MEAN = '''

@cute.jit
def _mean(value, lane, line, width, sums: cute.Tensor, plan: cutlass.Constexpr):
    """Return the mean of a row: each thread adds its elements, then the threads of a warp, then the row's warps.

    Threads and warps are added as a tree: added one after the other, 32 warps lose digits of a row with a large offset.
    """
    if cutlass.const_expr(not plan.full):
        kept = cute.make_rmem_tensor((plan.vector, plan.vectors), Float32)
        kept.store(value)
        for k in cutlass.range_constexpr(plan.vectors):
            if (k * plan.lanes + lane) * plan.vector >= width:
                kept[None, k].fill(0.0)
        value = kept.load()
    total = value.reduce(cute.ReductionOp.ADD, Float32(0.0), 0)
    total = cute.arch.warp_reduction_sum(total, threads_in_group=min(plan.lanes, WARP))
    if cutlass.const_expr(plan.lanes > WARP):
        cute.arch.sync_threads()  # the sums of the mean before this one have been read
        if lane % WARP == 0:
            sums[lane // WARP, line] = total
        cute.arch.sync_threads()
        warps = plan.lanes // WARP
        total = cute.arch.warp_reduction_sum(sums[lane % warps, line], threads_in_group=warps)
    return total / Float32(width)
'''
_RELU = """

def _relu(value):
    return cute.where(value < 0.0, cute.full_like(value, 0.0), value)  # NaN stays NaN
"""


def cute_source(op: TracedOp) -> str:
    """Return the source of a CuTe-DSL candidate.

    Raises:
        NotPerRow: a step needs elements, but has one number per row.
    """
    used = {value.op for variant in op.variants for value in variant.values}
    exact = op.contract == "exact"
    template = files("kernwright.scaffold.templates.candidate").joinpath("kernel.cutedsl.template")
    return Template(template.read_text(encoding="utf-8")).substitute(
        op=op.name,
        contract=op.contract,
        imports=("EnableTVMFFI, ExtraCompilerOpts" if exact else "EnableTVMFFI")
        + ("\nfrom cutlass.memory import SmemAllocator" if "mean" in used else ""),
        options=_EXACT_OPTIONS if exact else "OPTIONS = EnableTVMFFI(True)\n",
        helpers="".join(text for name, text in (("mean", _MEAN), ("relu", _RELU)) if name in used),
        variants="\n\n\n".join(_variant(op, variant, number) for number, variant in enumerate(op.variants)),
        scalars=len(numbers_of(op)),
        layouts=layouts_of(op, address=True),
        function=function_of(op),
    )


def _variant(op: TracedOp, variant: TracedVariant, number: int) -> str:
    _refuse_rows(op, variant)
    tensors, numbers, dtypes = tensors_of(op, variant), numbers_of(op), dtypes_of(variant)
    main = main_of(op)
    typed = [*(f"{name}: cute.Tensor" for name in tensors), *(f"{name}: Float32" for name in numbers)]
    constants = ["plan: cutlass.Constexpr", *(f"{name}: cutlass.Constexpr" for name in dtypes.values())]
    has_mean = any(value.op == "mean" for value in variant.values)
    lines = ["@cute.kernel", f"def _kernel{number}(", *_lines([*typed, *constants]), "):"]
    lines += [
        "    lane, line, _ = cute.arch.thread_idx()  # thread of a row, and row of the block",
        "    block, _, _ = cute.arch.block_idx()",
        f"    place, inside = _find({main}, block * plan.rows + line)",
        f"    width = {main}.shape[3]",
    ]
    if has_mean:
        shape = "(max(1, plan.lanes // WARP), plan.rows)"
        lines.append(f"    sums = SmemAllocator().allocate_tensor(Float32, cute.make_layout({shape}))")
    lines += [f"    {line}" for line in _statements(variant, dtypes)]
    lines.append("    if inside:")
    for store in variant.stores:
        lines.append(f"        _store({store.target}, {_names(variant)[store.value.number]}, place, lane, width, plan)")
    called = ", ".join([*tensors, *numbers, "plan", *dtypes.values()])
    lines += ["", "", "@cute.jit", f"def _variant{number}(", *_lines([*typed, "stream", *constants]), "):"]
    lines += [
        f"    blocks = cute.ceil_div(cute.size({main}.shape[:3]), plan.rows)",
        f"    kernel = _kernel{number}({called})",
        "    kernel.launch(grid=[blocks, 1, 1], block=[plan.lanes, plan.rows, 1], stream=stream)",
    ]
    return "\n".join(lines)


def _refuse_rows(op: TracedOp, variant: TracedVariant) -> None:
    """Refuse steps that are written for elements only."""
    for value in variant.values:
        if value.op == "relu" and value.kind == "row":
            raise NotPerRow(op.name, "it takes the ReLU of one number per row, which has no CuTe-DSL code here")
    for store in variant.stores:
        if store.value.kind == "row":
            raise NotPerRow(op.name, f"it stores one number per row into {store.target}")


def _lines(parameters: list[str]) -> Iterator[str]:
    """Yield lines of parameters that fit into 120 letters."""
    line = "   "
    for each in parameters:
        if len(line) + len(each) + 2 > 118:
            yield line
            line = "   "
        line += f" {each},"
    yield line


def _statements(variant: TracedVariant, dtypes: dict[DtypeOf, str]) -> Iterator[str]:
    names = _names(variant)
    for value in variant.values:
        own = names[value.number]
        terms = [names[each.number] if isinstance(each, RowValue) else str(each) for each in value.args]
        if value.op == "load":
            text = f"_load({terms[0]}, place, lane, width, plan)"
        elif value.op == "mean":
            text = f"_mean({terms[0]}, lane, line, width, sums, plan)"
        elif value.op in BINARY:
            text = f"{terms[0]} {BINARY[value.op]} {terms[1]}"
        elif value.op == "round":
            text = terms[0]
        else:
            text = UNARY[value.op].format(terms[0])
        if value.op != "load" and value.dtype != FLOAT32:
            text = f"_rounded({text}, {dtypes[value.dtype]})"
        if text != own:
            yield f"{own} = {text}"


def _names(variant: TracedVariant) -> dict[int, str]:
    """Return the names of values: a loaded row is named after its tensor, and as float32 it is the same."""
    names: dict[int, str] = {}
    for value in variant.values:
        source = value.args[0]
        if value.op == "load":
            names[value.number] = f"{source}_row"
        elif value.op == "round" and value.dtype == FLOAT32 and isinstance(source, RowValue):
            names[value.number] = names[source.number]
        else:
            names[value.number] = f"v{value.number}"
    return names
