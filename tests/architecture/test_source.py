"""Rules that hold for the source as text: layers, names, sizes, and what is never used.

Each rule is one test over all modules and fails with the list of those that break it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leech"

LAYERS = (
    {"errors"},
    {"config", "console", "provenance"},
    {"data"},
    {"models"},
    {"evaluation", "prediction", "export"},
    {"training"},
    {"demo", "api"},
    {"cli"},
    {"__main__"},
)
"""From the bottom up; a module imports from layers below its own, and from its own package."""

HEIGHTS = {name: height for height, layer in enumerate(LAYERS) for name in layer}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "constants"}

HEAVY = {"torch", "numpy", "pysam", "rich", "pydantic", "escapepod", "sklearn", "scipy"}

PICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}

TREES = {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
"""Path below src/leech -> syntax tree."""


def part_of(path):
    """Return the package or module of leech that a file is in; '' for leech's own __init__."""
    return "" if path == Path("__init__.py") else path.parts[0].removesuffix(".py")


def imports(tree):
    """Return the dotted names of everything imported anywhere in a tree, inside functions too."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # A relative import keeps its dots here, and is refused by a rule of its own.
            names += [f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names]
    return names


def packages(tree):
    return {name.split(".")[0] for name in imports(tree)}


def upward(part, tree):
    """Return the imports by which a module of ``part`` reaches a neighbour of its own layer, or a higher one."""
    own = [name.split(".") for name in imports(tree) if name.startswith("leech.")]
    return [
        ".".join(name) for name in own if name[1] in HEIGHTS and name[1] != part and HEIGHTS[name[1]] >= HEIGHTS[part]
    ]


def pickles(tree):
    """Return what in a tree can run code from a file."""
    found = PICKLERS & packages(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if (
                called in {"torch.load", "torch.save", "eval", "exec"}
                or keywords.get("allow_pickle", "False") != "False"
            ):
                found.add(ast.unparse(node))
            if called in {"np.load", "numpy.load"} and "allow_pickle" not in keywords:
                found.add(ast.unparse(node))
    return found


def talks(tree):
    """Return what in a tree is the command line's business."""
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return called & {"print", "sys.exit", "exit", "os._exit"} | packages(tree) & {"click", "argparse"}


def offenders(rule, *, where=lambda path: True):
    """Return path -> what breaks a rule, for the modules that break it."""
    found = {str(path): rule(path, tree) for path, tree in TREES.items() if where(path)}
    return {path: broken for path, broken in found.items() if broken}


def test_there_is_source_to_judge_and_every_part_of_it_has_a_layer():
    parts = {part_of(path) for path in TREES} - {""}
    assert {"errors", "data", "models", "evaluation", "prediction", "training", "cli"} <= parts <= set(HEIGHTS)


def test_imports_point_down_only():
    assert offenders(lambda path, tree: upward(part_of(path), tree), where=part_of) == {}


def test_imports_are_absolute_so_that_their_layer_shows():
    assert offenders(lambda _, tree: [name for name in imports(tree) if name.startswith(".")]) == {}


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("data", "from leech.models.bundle import load_bundle"),
        ("data", "def f():\n    import leech.cli.main"),
        ("prediction", "from leech.evaluation.metrics import Ranking"),
        ("errors", "from leech.config import build"),
        ("models", "from leech import training"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_found(part, line):
    assert len(upward(part, ast.parse(line))) == 1


@pytest.mark.parametrize(
    "line", ["from leech.data.batches import Inputs", "import torch", "from leech import __version__"]
)
def test_an_import_that_points_down_or_out_is_not(line):
    assert upward("models", ast.parse(line)) == []


def test_a_package_init_holds_a_docstring_only():
    inits = [path for path in TREES if path.name == "__init__.py" and part_of(path)]
    assert inits
    assert offenders(lambda _, tree: len(tree.body) != 1 or not ast.get_docstring(tree), where=inits.__contains__) == {}


def test_data_knows_no_torch_but_in_batches():
    assert "torch" in packages(TREES[Path("data/batches.py")])
    elsewhere = lambda path: part_of(path) == "data" and path != Path("data/batches.py")  # noqa: E731
    assert offenders(lambda _, tree: {"torch"} & packages(tree), where=elsewhere) == {}


def test_what_flags_are_made_from_imports_nothing_heavy():
    # Statements at the top run at import; those in a function run when it is called.
    def at_import(_, tree):
        return HEAVY & {
            name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in packages(node)
        }

    def flags(path):
        return path.name in {"config.py", "recipe.py"} or part_of(path) in {
            "cli",
            "demo",
            "errors",
            "console",
            "provenance",
        }

    assert offenders(at_import, where=flags) == {}


def test_no_module_has_a_name_that_says_nothing():
    assert offenders(lambda path, _: VAGUE_NAMES & set(path.with_suffix("").parts)) == {}


def test_a_module_can_be_read_at_one_sitting():
    lengths = {path: len((SOURCE / path).read_text(encoding="utf-8").splitlines()) for path in TREES}
    assert {str(path): length for path, length in lengths.items() if length > 500} == {}


def test_every_module_says_what_it_is_for():
    assert offenders(lambda _, tree: not ast.get_docstring(tree)) == {}


def test_every_module_defers_its_annotations():
    later = lambda path: path.name != "__init__.py"  # noqa: E731
    assert offenders(lambda _, tree: "__future__.annotations" not in imports(tree), where=later) == {}


def test_no_file_that_is_read_can_run_code():
    assert offenders(lambda _, tree: pickles(tree)) == {}


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "torch.load(path)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=trusted)",
    ],
)
def test_reading_that_could_run_code_is_found(line):
    assert len(pickles(ast.parse(line))) == 1


def test_only_the_command_line_prints_exits_or_knows_its_words():
    # The console's plain progress lines are printed; that is what it is for.
    others = lambda path: part_of(path) not in {"cli", "console"}  # noqa: E731
    assert offenders(lambda _, tree: talks(tree), where=others) == {}


def test_the_source_runs_on_the_oldest_python_promised():
    vermin = Path(sys.executable).with_name("vermin")
    if not vermin.is_file():
        pytest.skip("vermin is not installed beside this Python")
    command = [str(vermin), "--quiet", "--no-tips", "--target=3.10-", "--violations", "--eval-annotations"]
    found = subprocess.run([*command, str(SOURCE)], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout
