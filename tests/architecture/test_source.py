"""Rules that hold for the source as text: layers, names, sizes, and what is never used."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "leech"
MODULES = sorted(SOURCE.rglob("*.py"))

LAYERS = (
    {"errors"},
    {"config", "console", "provenance"},
    {"data"},
    {"models"},
    {"evaluation", "prediction", "export"},
    {"training"},
    {"demo"},
    {"cli"},
)
"""From the bottom up; a module imports from layers below its own, and from its own package."""

HEIGHTS = {name: height for height, layer in enumerate(LAYERS) for name in layer}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "constants"}


def part_of(path: Path) -> str:
    """Return the package or module of leech that a file is in; '' for leech itself."""
    place = path.relative_to(SOURCE).parts
    return "" if place == ("__init__.py",) else place[0].removesuffix(".py")


def dotted_name(path: Path) -> str:
    parts = ("leech", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[str]:
    """Return the dotted names of everything imported anywhere in a module, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute, so that a module's layer shows"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def upward(part: str, tree: ast.AST) -> list[str]:
    """Return the imports by which a module of ``part`` reaches its own layer's neighbours or a higher one."""
    reached = [name for name in imports(tree) if name.split(".")[0] == "leech" and "." in name]
    return [
        name
        for name in reached
        if name.split(".")[1] in HEIGHTS and name.split(".")[1] != part and HEIGHTS[name.split(".")[1]] >= HEIGHTS[part]
    ]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.fixture(params=MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES])
def module(request: pytest.FixtureRequest) -> Path:
    path = request.param
    assert isinstance(path, Path)
    return path


def test_every_part_of_the_source_has_a_layer() -> None:
    assert {part_of(path) for path in MODULES} - {""} <= set(HEIGHTS)


def test_imports_point_down_only(module: Path) -> None:
    if part_of(module):
        assert upward(part_of(module), parse(module)) == []


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("data", "from leech.models.bundle import load_bundle"),
        ("data", "def f():\n    import leech.cli.main"),
        ("prediction", "from leech.evaluation.metrics import Auroc"),
        ("errors", "from leech.config import build"),
        ("models", "from leech import training"),
    ],
)
def test_an_import_that_points_up_or_sideways_is_found(part: str, line: str) -> None:
    assert len(upward(part, ast.parse(line))) == 1


def test_a_package_init_holds_a_docstring_only(module: Path) -> None:
    if module.name != "__init__.py" or part_of(module) == "":
        pytest.skip("not the __init__ of a package below leech")
    body = parse(module).body
    assert len(body) == 1
    assert ast.get_docstring(parse(module))


def test_data_knows_no_torch_but_in_batches(module: Path) -> None:
    if part_of(module) == "data" and module.name != "batches.py":
        assert not [name for name in imports(parse(module)) if name.split(".")[0] == "torch"]


def test_modules_that_make_flags_import_nothing_heavy_at_the_top(module: Path) -> None:
    if module.name not in {"config.py", "recipe.py"} and part_of(module) not in {"cli", "errors"}:
        pytest.skip("makes no flags")
    # Only the statements that run at import; a function's body runs when it is called.
    top = [node for node in parse(module).body if isinstance(node, ast.Import | ast.ImportFrom)]
    heavy = {"torch", "numpy", "pysam", "rich", "pydantic", "escapepod", "sklearn", "scipy"}
    assert not heavy & {name.split(".")[0] for node in top for name in imports(node)}


def test_no_module_has_a_name_that_says_nothing(module: Path) -> None:
    assert not VAGUE_NAMES & set(module.relative_to(SOURCE).with_suffix("").parts)


def test_a_module_can_be_read_at_one_sitting(module: Path) -> None:
    assert len(module.read_text(encoding="utf-8").splitlines()) <= 500


def test_every_module_says_what_it_is_for(module: Path) -> None:
    assert ast.get_docstring(parse(module))


def test_every_module_defers_its_annotations(module: Path) -> None:
    if module.name != "__init__.py":
        assert "__future__.annotations" in set(imports(parse(module)))


def test_nothing_is_unpickled(module: Path) -> None:
    tree = parse(module)
    found = {
        name for name in imports(tree) if name.split(".")[0] in {"pickle", "cloudpickle", "dill", "joblib", "shelve"}
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            found |= {called} & {"torch.load", "torch.save", "pickle.load", "pickle.loads"}
            found |= {
                "allow_pickle"
                for keyword in node.keywords
                if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False"
            }
    assert not found


def test_numpy_files_are_read_with_pickle_refused_in_words(module: Path) -> None:
    for node in ast.walk(parse(module)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"np.load", "numpy.load"}:
            assert "allow_pickle" in {keyword.arg for keyword in node.keywords}, f"line {node.lineno}"


def test_only_the_command_line_prints_exits_or_knows_click(module: Path) -> None:
    if part_of(module) == "cli":
        pytest.skip("the command line")
    tree = parse(module)
    assert "click" not in {name.split(".")[0] for name in imports(tree)}
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    # The console prints progress lines; that is what it is for.
    allowed = {"print"} if part_of(module) == "console" else set()
    assert not (called & {"print", "sys.exit", "exit", "os._exit"}) - allowed


def test_the_source_runs_on_the_oldest_python_promised() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    if not vermin.is_file() and shutil.which("vermin") is None:
        pytest.skip("vermin is not installed")
    command = [str(vermin) if vermin.is_file() else "vermin", "--quiet", "--no-tips", "--target=3.10-", "--violations"]
    found = subprocess.run(
        [*command, "--eval-annotations", str(SOURCE)], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stdout
