"""Parameterized notebooks: strip them for the pipeline, run them, refuse wrong parameters, keep the outputs comparable.

    python -m workbook.stages.nb strip notebooks/run.ipynb build/run.ipynb
    python -m workbook.stages.nb run build/run.ipynb executed/run.ipynb -p condition ppo_kl_0 [--html report.html]

The pipeline depends on the stripped copy, so saving a notebook in JupyterLab re-runs nothing. The executed copy holds
no clocks, ids, addresses or progress bars: the same result has the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import html
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

INJECTED = "# Parameters"  # first line of the cell that papermill adds
HIDE, INJECTS = "hide-input", "injected-parameters"  # tags of cells whose code is folded: of reports; papermill's own
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
# a variable: run nothing, fail with these words. So it is seen whether DVC would run a stage or has its result
ONLY_ASKED, ONLY_TRIED = "RLNLP_ONLY_ASKED", "nothing was run: it was only asked whether this has to"
WIDGET = "application/vnd.jupyter.widget-view+json"


class ParameterError(ValueError):
    """A notebook was given a parameter that it does not have, or of another type."""


def assignments(source: str) -> dict[str, Any]:
    """Name -> value of the lines `name = literal` in a cell (an annotation may stand between); others are left out."""
    found = {}
    for node in ast.parse(source).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and node.value is not None:
            try:
                found[targets[0].id] = ast.literal_eval(node.value)
            except ValueError:  # float("nan") and the like
                continue
    return found


def check_values(given: dict[str, Any], defaults: dict[str, Any], where: str) -> None:
    """Compare given parameters with a notebook's own: names exist, types agree (a default None takes anything).

    A whole number may stand for a float; true/false is never a number. Raises ParameterError naming the nearest name.
    """
    for name, value in given.items():
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ParameterError(
                f"{where}: unknown parameter {name!r}{hint} (parameters: {', '.join(defaults) or 'none'})"
            )
        kind = type(defaults[name])
        fits = kind is type(None) or type(value) is kind or (kind is float and type(value) is int)
        if not fits:
            raise ParameterError(
                f"{where}: parameter {name!r}: expected {kind.__name__}, e.g. {defaults[name]!r}; found {value!r}"
            )


def check_parameters(cells: list[str]) -> dict[str, Any]:
    """Check what papermill injected against the cell before it; a notebook's second code cell calls this with `In`.

    cells: IPython's list `In` of the sources that ran. Run by papermill, the kernel also dies with its parent from
    here on. In an interactive session there is nothing to check; one that was opened in notebooks/ moves to the folder
    above, where params.yaml is and the pipeline runs. Returns the injected parameters. Raises: ParameterError.
    """
    places = [i for i, source in enumerate(cells) if source.strip().partition("\n")[0].strip() == INJECTED]
    if not places:
        if not Path("params.yaml").exists() and Path("../params.yaml").exists():
            os.chdir("..")
            print(f"working folder: {Path.cwd()}")
        return {}
    from workbook.store.locks import die_with_parent

    die_with_parent()
    plain_progress()
    at = places[-1]
    own = cells[at - 1] if at else ""
    if not own.strip():
        raise ParameterError(
            "this notebook has no cell tagged `parameters`: its own values would replace the ones given"
        )
    given = assignments(cells[at])
    check_values(given, assignments(own), "this notebook")
    return given


def plain_progress() -> None:
    """Make `from tqdm.auto import tqdm` print text from here on: a widget would not show in a log."""
    import tqdm.auto
    import tqdm.std

    tqdm.auto.tqdm, tqdm.auto.trange = tqdm.std.tqdm, tqdm.std.trange


def parameters_of(notebook: Any, where: str) -> dict[str, Any]:
    """Name -> default of the one cell tagged `parameters`; {} without it. Raises ParameterError for several."""
    tagged = [c for c in notebook["cells"] if "parameters" in c.get("metadata", {}).get("tags", ())]
    if len(tagged) > 1:
        raise ParameterError(f"{where}: expected one cell tagged `parameters`, found {len(tagged)}")
    source = "".join(tagged[0]["source"]) if tagged else ""
    if source.strip().partition("\n")[0].strip() == INJECTED:
        raise ParameterError(
            f"{where}: the cell tagged `parameters` must not begin with {INJECTED!r}: papermill's own does"
        )
    return assignments(source)


def typed(text: str, default: Any) -> Any:
    """The value of a command line's text for a parameter of this default: text stays text; else JSON or Python."""
    if isinstance(default, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text


def strip(source: str | Path, target: str | Path) -> None:
    """Write a copy without outputs, counts, random ids and metadata (tags stay): what a stage depends on."""
    from workbook.store.files import atomic_write

    notebook = json.loads(Path(source).read_text(encoding="utf-8"))
    parameters_of(notebook, str(source))
    for i, cell in enumerate(notebook["cells"]):
        tags = cell.get("metadata", {}).get("tags")
        cell["id"], cell["metadata"] = f"cell-{i:03d}", {"tags": tags} if tags else {}
        cell.pop("attachments", None)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook["metadata"] = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    atomic_write(target, json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def scrub(notebook: Any) -> Any:
    """Take clocks, random ids, memory addresses, progress bars and widget views out of a notebook, in place."""
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"], notebook.metadata["language_info"] = dict(KERNEL), {"name": "python"}
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i:03d}"
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if {HIDE, INJECTS} & {*cell.metadata.get("tags", ())}:
            cell.metadata["jupyter"] = {"source_hidden": True}
        if cell.cell_type != "code":
            continue
        outputs, cell.outputs = cell.outputs, []
        for output in outputs:
            if output.get("name") == "stderr" or WIDGET in output.get("data", {}):
                continue
            if "text" in output:
                output["text"] = "".join(output["text"])
                if cell.outputs and "text" in cell.outputs[-1]:  # in how many pieces text arrived is chance
                    cell.outputs[-1]["text"] += output["text"]
                    continue
            cell.outputs.append(output)
        for output in cell.outputs:
            link_picture(output)
            if "text" in output:
                output["text"] = ADDRESS.sub("", output["text"])
            for kind in ("text/plain", "text/html"):
                if kind in output.get("data", {}):
                    output["data"][kind] = ADDRESS.sub("", "".join(output["data"][kind]))
    return notebook


def link_picture(output: Any) -> None:
    """Link a picture that lies in a file beside the notebook (`figures.parts.show`), so that it is stored once."""
    about = output.get("metadata", {}).get("image/svg+xml", {})
    if "file" in about:
        shown = f'<img src="{html.escape(about["file"])}" alt="{html.escape(about["alt"])}" style="max-width:100%">'
        output["data"] = {"text/html": shown, "text/plain": about["alt"]}
        output["metadata"] = {}


def ended_early(notebook: Any) -> Any:
    """What papermill does not call an error: a cell that ended the notebook by `sys.exit(0)`; None without one."""
    from papermill.exceptions import PapermillExecutionError

    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                said = (output.ename, output.evalue, output.traceback)
                return PapermillExecutionError(number, cell.execution_count, cell.source, *said)
    return None


def values_for(source: str, given: dict[str, str]) -> dict[str, Any]:
    """The values of a notebook's parameters, from the command line's text. Raises: OSError, ValueError."""
    notebook = json.loads(Path(source).read_text(encoding="utf-8"))
    defaults = parameters_of(notebook, source)
    values = {name: typed(text, defaults.get(name)) for name, text in given.items()}
    check_values(values, defaults, source)
    return values


def execute(source: str, target: str, values: dict[str, Any]) -> tuple[Any, Any]:
    """Run a notebook's cells in a kernel of its own; what it holds then, and papermill's error or None.

    target: papermill saves as it goes in a hidden file beside it, which is gone afterwards.
    """
    import logging

    # jsonschema, which nbformat brings, builds a grammar of web addresses where it finds one: 2.4 s of every stage
    sys.modules.setdefault("rfc3987_syntax", None)
    import nbformat
    import papermill
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    from workbook.stages import engine

    logging.getLogger("papermill").setLevel(logging.WARNING)
    sockets = tempfile.TemporaryDirectory(prefix="nb-", ignore_cleanup_errors=True)  # of this run alone
    config = Config(KernelManager={"transport": "ipc", "ip": f"{sockets.name}/k"})
    partial = Path(target).with_name(f".{Path(target).name}.{os.getpid()}.tmp.ipynb")
    try:
        executed = papermill.execute_notebook(
            source,
            str(partial),
            parameters=values,
            kernel_name="python3",
            language="python",
            progress_bar=False,
            request_save_on_cell_execute=False,
            engine_name=engine.NAME,
            config=config,
        )
        return executed, ended_early(executed)
    except PapermillExecutionError as error:
        return nbformat.read(partial, as_version=4), error
    finally:
        partial.unlink(missing_ok=True)
        sockets.cleanup()


def run(source: str, target: str, given: dict[str, str], html: str = "") -> int:
    """Execute a notebook with parameters (text of the command line) and write the scrubbed copy; the exit status.

    Wrong names and types are refused before a kernel starts. If a cell fails, the copy shows how far it came, and the
    exception is the last thing printed. Killing this process, however, ends the kernel too.
    """
    from workbook.store.files import atomic_write
    from workbook.store.locks import die_with_parent

    die_with_parent()
    try:
        values = values_for(source, given)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    executed, failed = execute(source, target, values)
    import nbformat  # here, so that a refusal does not wait for it

    atomic_write(target, nbformat.writes(scrub(executed)) + "\n")
    if failed is not None:
        print(ANSI.sub("", "\n".join(failed.traceback)), file=sys.stderr)
        print(f"\n{source}: cell {failed.exec_count} failed; see {target}", file=sys.stderr)
        print(f"{failed.ename}: {failed.evalue}", file=sys.stderr, flush=True)
        return 1
    if html:
        from workbook.stages.page import to_html

        to_html(executed, html, Path(html).stem)
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m workbook.stages.nb", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("strip", "run"):
        command = commands.add_parser(name)
        command.add_argument("source")
        command.add_argument("target")
        if name == "run":
            command.add_argument("-p", dest="given", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
            command.add_argument("--html", default="", help="also write this page")
    args = parser.parse_args(argv)
    if args.command == "run":
        if os.environ.get(ONLY_ASKED):
            print(ONLY_TRIED, file=sys.stderr)
            return 3
        from workbook.stages.processes import passing_tempdir

        with passing_tempdir("nb-"):
            return run(args.source, args.target, dict(args.given), args.html)
    try:
        strip(args.source, args.target)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
