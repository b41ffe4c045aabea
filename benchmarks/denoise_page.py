"""docs/denoise.md, from the record of bench_denoise.py."""

from __future__ import annotations

from typing import Any

MOST_HOTSPOTS = 10
PARTS = {"ms": "median_ms", "device_ms": "device_ms"}  # key in the reference: key in the record
HOST_OF_REGIONAL = ("regional_ms", "regional_device_ms")
MOST_PATHS = 3  # fast paths of a hotspot that are named


def step_table(record: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """Return the lines of the table of steps."""
    lines = [
        "| model, layers | tokens | eager ms | regional ms | ratio | ratio of the reference | first compiled call s "
        "| eager device ms | of it memory-bound | regional device ms | of it memory-bound |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, held in record["models"].items():
        eager, regional = held["modes"]["eager"], held["modes"]["regional"]
        known = reference.get(name, {}).get("ratio")
        away = f"{known:.2f} ({held['ratio'] / known - 1:+.1%})" if known else ""
        layers = "+".join(map(str, held["layers"]))
        cells = [
            f"{held['title']}, {layers}", tokens(held["inputs"]), f"{eager['median_ms']:.2f}",
            f"{regional['median_ms']:.2f}", f"{held['ratio']:.3f}", away, f"{regional['first_call_s']:.1f}",
            *device(eager), *device(regional),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def host_table(record: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """Return the lines of the table that tells a faster host from a faster GPU."""
    lines = [
        "| model | device ratio | of the reference | eager wall / device | of the reference | regional wall / device "
        "| of the reference |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, held in record["models"].items():
        modes, known = held["modes"], reference.get(name)
        if known is None or not all("device_ms" in mode for mode in modes.values()):
            continue
        own = {f"{mode}_{each}": modes[mode][key] for mode in ("eager", "regional") for each, key in PARTS.items()}
        pairs = (("eager_device_ms", "regional_device_ms"), ("eager_ms", "eager_device_ms"), HOST_OF_REGIONAL)
        cells = [f"{source[over] / source[under]:.3f}" for over, under in pairs for source in (own, known)]
        lines.append(f"| {held['title']} | {' | '.join(cells)} |")
    return lines


def device(mode: dict[str, Any]) -> list[str]:
    if "device_ms" not in mode:
        return ["", ""]
    return [f"{mode['device_ms']:.2f}", f"{mode['memory_bound_ms'] / mode['device_ms']:.1%}"]


def tokens(inputs: dict[str, Any]) -> str:
    """Return the number of tokens of the model's input, and of the text."""
    shape, text = inputs["hidden_states"], inputs["encoder_hidden_states"][1]
    if len(shape) == 3:
        return f"{shape[1]} + {text}"
    frames, height, width = shape[2:]
    return f"{frames * (height // 2) * (width // 2)}, text {text}"


def saving_lines(savings: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Return the lines of the tables of savings: all models, then the hotspots of each."""
    lines = ["| model | device ms a step | saving ms | lowest | highest | share |", "|---|---:|---:|---:|---:|---:|"]
    for name, held in savings.items():
        expected, low, high = held["saving_ms"]
        title, share = record["models"][name]["title"], expected / held["device_ms"]
        lines.append(f"| {title} | {held['device_ms']:.2f} | {expected:.2f} | {low:.2f} | {high:.2f} | {share:.1%} |")
    for name, held in savings.items():
        lines += ["", f"### {record['models'][name]['title']}", ""]
        lines += ["| hotspot | status | share | fast path | saving ms | lowest | highest |"]
        lines += ["|---|---|---:|---|---:|---:|---:|"]
        largest = sorted(held["hotspots"], key=lambda each: -each["saving_ms"][0])[:MOST_HOTSPOTS]
        lines += [f"| {' | '.join(hotspot_cells(each))} |" for each in largest]
    return lines


def hotspot_cells(hotspot: dict[str, Any]) -> list[str]:
    paths = ", ".join(f"`{path}`" for path in hotspot["fast_paths"][:MOST_PATHS])
    name = hotspot["name"].replace("|", "\\|")
    savings = [f"{saving:.3f}" for saving in hotspot["saving_ms"]]
    return [name, hotspot["status"], f"{hotspot['share']:.1%}", paths, *savings]


def run_lines(record: dict[str, Any]) -> list[str]:
    lines = ["| model | stage | ms |", "|---|---|---:|"]
    for held in record["models"].values():
        for stage, taken in held["run"]["stages_ms"]:
            lines.append(f"| {held['title']} | `{stage}` | {taken:.1f} |")
        lines.append(f"| {held['title']} | end to end | {held['run']['total_ms']:.1f} |")
    return lines


def swap_lines(swap: dict[str, Any]) -> list[str]:
    """Return the section about the saving of a swap, from the record of bench_swap.py."""
    predicted = swap["chains_ms"] - swap["op_ms"]
    turns = ", ".join(f"{saving:.3f}" for saving in swap["turns_ms"])
    return [
        "## A predicted saving, measured",
        "",
        f"`benchmarks/bench_swap.py`: {swap['about']}. The adaptive norms in blocks of FLUX.1 were replaced by",
        "`ops.norm_scale_shift` with `kernwright run --swap`. The record is [swap.json](swap.json).",
        "",
        "| | ms a step |",
        "|---|---:|",
        f"| the step, median | {swap['step_ms']:.3f} |",
        f"| eager chains in the trace | {swap['chains_ms']:.3f} |",
        f"| the op on the same shapes | {swap['op_ms']:.3f} |",
        f"| predicted saving | {predicted:.3f} |",
        f"| measured saving (turns: {turns}) | {swap['saving_ms']:.3f}, {swap['off']:+.1%} against the prediction |",
        f"| measured saving in the fastest steps | {swap['fastest_saving_ms']:.3f} |",
        "",
    ]


def page(record: dict[str, Any], reference: dict[str, Any], swap: dict[str, Any] | None = None) -> str:
    """Return the text of docs/denoise.md."""
    libraries = ", ".join(f"{name} {version}" for name, version in record["libraries"].items())
    finite = all(all(held["run"]["finite"].values()) for held in record["models"].values())
    lines = [
        "# One denoise step",
        "",
        "Generated by `benchmarks/bench_denoise.py --page` from [denoise.json](denoise.json); no number is typed by",
        "hand. [diagnose.md](diagnose.md) describes the benchmark.",
        "",
        f"- {', '.join(record['gpus']) or 'CPU'}; {libraries}; {record['date']}; measured in {record['seconds']:.0f} s",
        f"- Latents and outputs of all runs are {'finite' if finite else 'NOT all finite'}.",
        "",
        "Published widths, random bf16 weights, batch 1, and fewer layers than the full model: the blocks repeat, so",
        "the shares hold. `regional` is `compile_repeated_blocks(fullgraph=True)`. Wall is the median of ten steps",
        "with a synchronisation each. Device is the sum of the kernels of a traced step. Memory-bound is all",
        "but GEMM and attention.",
        "",
        *step_table(record, reference["models"]),
        "",
        f"Reference: {reference['about']}",
        "",
        "A wall ratio depends on the host: where the host launches slower than the GPU computes, eager loses more",
        "than the compiled model. The device ratio does not depend on it.",
        "",
        *host_table(record, reference["models"]),
        "",
        "## Predicted savings",
        "",
        "The part of the eager step's device time that known fast paths would remove, as `kernwright hotspots`",
        "predicts it from the traces. Nothing of it is measured here.",
        "",
        *saving_lines(record["savings"], record),
        "",
        *(swap_lines(swap) if swap else ()),
        "## The whole pipeline",
        "",
        "One run of three denoising steps with the same layers, from the prompt to the decoded output.",
        "",
        *run_lines(record),
        "",
    ]
    return "\n".join(lines)
