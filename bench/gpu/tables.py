"""Rows of stages as tables, beside what their shapes need at the rates that were measured."""

from __future__ import annotations

from collections.abc import Callable

from bench.gpu.scale import REAL
from bench.gpu.stage import short
from workbook.stages.roofline import H200, optimizer_bytes, prefill_flops, step_bytes, update_flops


def rates(found: dict[str, dict]) -> tuple[dict[str, float], bool]:
    """(copy in TB/s, products in TFLOP/s by precision; whether they were measured)."""
    if "facts" not in found:
        return H200, False
    rows = found["facts"]["rows"]
    measured = {row["precision"]: row["tflop_s"] for row in rows if "tflop_s" in row}
    copied = [row["tb_s"] for row in rows if "tb_s" in row]
    measured |= {"copy_tb_s": copied[0]} if copied else {}
    return {**H200, **measured}, set(measured) == set(H200)


def with_floor(row: dict, rate: dict[str, float]) -> dict:
    """The row with the milliseconds that its bytes or operations need at least, and the share that is of its time."""
    floor = row.get("bytes", 0.0) / rate["copy_tb_s"] / 1e9
    floor = max(floor, row.get("flops", 0.0) / rate[row.get("precision", "fp32")] / 1e9)
    if not floor or "median_ms" not in row:
        return row
    more = {"tokens_s": row["tokens"] / row["median_ms"] * 1e3} if "tokens" in row else {}
    if "prefill_ms" in row:  # of a whole rollout, its prompt too, a token of it
        more["rollout_token_ms"] = (row["prefill_ms"] + (REAL.new - 1) * row["median_ms"]) / REAL.new
    return {**row, **more, "floor_ms": floor, "share": floor / row["median_ms"]}


def best_of(rows: dict[str, list[dict]], stage: str, key: str, best: Callable, least: dict | None = None, **facts):
    """Of a stage's rows with these facts (and at least so much of others) the best value; None where none has one."""
    values = [
        row[key]
        for row in rows.get(stage, [])
        if key in row
        and all(row.get(name) == value for name, value in facts.items())
        and all(row.get(name, 0) >= value for name, value in (least or {}).items())
    ]
    return best(values) if values else None


def cell(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell(one)}" for key, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float) and abs(value) >= 1e4:  # no powers of ten on a page
        return f"{value:,.0f}"
    return short(value)


def table(rows: list[dict]) -> list[str]:
    """Rows as a table with the columns that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in ("bytes", "flops")))
    lines = [columns, ["---"] * len(columns)]
    lines += [[cell(row[key]) if row.get(key) is not None else "" for key in columns] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def roofline(rate: dict[str, float]) -> list[str]:
    """What the shapes need at these rates: decoding and updates, bf16."""
    P, T = REAL.prompt, REAL.new
    batches = sorted(REAL.batches)
    rows = []
    for name, shape in REAL.shapes.items():
        row = {"decode, bf16": name}
        for B in batches:
            step = step_bytes(shape, B, P, T, "bf16") / rate["copy_tb_s"] / 1e12
            whole = T * step + prefill_flops(shape, B, P) / rate["bf16"] / 1e12
            row[f"B = {B}: step us / tokens per s"] = f"{step * 1e6:.0f} / {B * T / whole:,.0f}"
        rows.append(row)
    updates = []
    for name, shape in REAL.shapes.items():
        row = {"update, policy and value network": name}
        for n in sorted(REAL.minibatches):
            needed = update_flops(shape, n, P, T) / rate["bf16"] / 1e9
            row[f"{n} episodes = {n * (P + T - 1):,} tokens, ms at 40 %"] = f"{needed / 0.4:.1f}"
        row["AdamW and clip, ms"] = f"{optimizer_bytes(shape) / rate['copy_tb_s'] / 1e9:.1f}"
        updates.append(row)
    return [*table(rows), "", *table(updates)]
