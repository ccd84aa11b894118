"""The preference study for some seeds into a folder, with simulated raters or with people's ratings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from workbook.study import pictures, results
from workbook.study.collected import Waiting
from workbook.study.protocol import Config, run


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.study", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0")
    parser.add_argument("--raters", choices=("simulated", "people"), default="simulated")
    for name, field in Config.model_fields.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=f"{field.description} (default {field.default})")
    args = vars(parser.parse_args(argv))
    given = {name: args[name] for name in Config.model_fields if args[name] is not None}
    folders = [args["folder"] / f"seed{seed}" for seed in range(args["seeds"])]
    try:
        config = Config.model_validate(given, strict=False)
        for seed, folder in enumerate(folders):
            run(config, seed, folder, args["raters"], progress=True)
    except Waiting as waiting:
        print(waiting)
        return 0
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rows = results.per_seed(folders)
    rows.to_csv(args["folder"] / "per_seed.csv", index=False)
    pictures.shares(rows).savefig(args["folder"] / "shares.png")
    print(f"{args['raters']} raters\n{results.summary(rows).astype(float).round(3).to_string()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
