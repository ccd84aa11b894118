"""Settings of the course for nbgrader 0.9.6; run nbgrader in this folder. Why each is as it is: README.md.

Two preprocessors are ours: one grades a submission to its end even if it kills its kernel, one keeps hidden tests out
of the feedback.
"""

import os

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.preprocessors import ClearMetadataPreprocessor, CSSHTMLHeaderPreprocessor
from nbformat.v4 import new_output
from nbgrader import preprocessors

SECONDS = int(os.environ.get("RLNLP_CELL_SECONDS", "60"))  # what a cell may take
SLOW = {"setup", "models", "world", "rollouts", "before", "run"}  # our own that import or train: ten times as much


def seconds(cell):
    return SECONDS * (10 if cell.metadata.get("nbgrader", {}).get("grade_id") in SLOW else 1)


def error(name, text):
    return new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])


class Execute(preprocessors.Execute):
    """Runs a submission to its end whatever its code does.

    A kernel that dies, or goes on when it is told to stop, costs the points of its cell and of every cell after it. By
    itself nbgrader would give up on that submission and leave it without grades.
    """

    gone = ""

    def preprocess(self, *args, **kwargs):
        self.gone = ""
        return super().preprocess(*args, **kwargs)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code":
            return cell, resources
        if self.gone:
            cell.outputs = [error("NotRun", self.gone)]
            return cell, resources
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            text = "the kernel died in this cell: too much memory, or code that ends Python (exit, quit)"
        except CellTimeoutError:
            text = f"this cell did not end within {seconds(cell)} s and could not be stopped"
        self.gone = f"an earlier cell ended the run: {text}"
        cell.outputs = [error("RunEnded", text)]
        return cell, resources


class HideHiddenTests(preprocessors.ClearHiddenTests):
    """Feedback without hidden tests: of their cells it keeps the points and the message of what failed."""

    def preprocess_cell(self, cell, resources, cell_index):
        hidden = self.begin_test_delimeter in cell.source
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if hidden:  # a traceback quotes the lines around the one that failed
            cell.outputs = [error(o.ename, o.evalue) for o in cell.outputs if o.output_type == "error"]
        return cell, resources


c = get_config()  # noqa: F821 (nbgrader provides it)
c.CourseDirectory.course_id = "rlnlp"
# On a shared server: a folder that all can reach.
c.Exchange.root = os.environ.get("NBGRADER_EXCHANGE", os.path.abspath("exchange"))
c.ClearSolutions.code_stub = {"python": "# YOUR CODE HERE\nraise NotImplementedError('not written yet')"}
c.OverwriteCells.add_missing_cells = True  # a deleted test fails; it does not vanish
c.Autograde.autograde_preprocessors = [
    Execute,
    preprocessors.IgnorePattern,
    ClearMetadataPreprocessor,
    preprocessors.LimitOutput,
    preprocessors.SaveAutoGrades,
    preprocessors.AssignLatePenalties,
    preprocessors.CheckCellMetadata,
]
c.GenerateFeedback.preprocessors = [preprocessors.GetGrades, HideHiddenTests, CSSHTMLHeaderPreprocessor]

c.Execute.timeout_func = seconds
c.Execute.startup_timeout = 300  # a kernel on a busy machine
c.Execute.iopub_timeout = 30
LATE = f"this cell did not end within {SECONDS} s and was stopped: is there a loop that never ends?"
c.Execute.error_on_timeout = {"ename": "CellTimeoutError", "evalue": LATE, "traceback": [f"CellTimeoutError: {LATE}"]}

# How a learning platform names the files in its zip, for zip_collect: ada_ps6.ipynb,
# ps6_ada_attempt_2026-11-20_ps6.ipynb.
NAMED = r".*?[/_](?P<student_id>[^/_]+)_(?:attempt_[-0-9]+_)?(?P<file_id>ps\d|predictions)\.\w+$"
c.FileNameCollectorPlugin.named_regexp = NAMED
c.FileNameCollectorPlugin.valid_ext = [".ipynb", ".json"]  # ps6 hands in its predictions too
