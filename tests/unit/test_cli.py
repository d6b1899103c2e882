"""Every command: its help, its options down to the core function, its errors and exit codes.

The core functions are replaced by one that records what it was given, so that nothing heavy is imported.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from leech import __version__
from leech.cli.main import COMMANDS, main
from leech.cli.options import exposed_fields
from leech.cli.reference import commands, reference
from leech.config import dump_toml
from leech.console import Table, logger
from leech.errors import ConfigError, InputError

ROOT = Path(__file__).parents[2]

READS = ("--pod5", "reads.pod5", "--bam", "reads.bam", "--reference", "reference.fa")

CORES = {
    "data simulate": ("leech.data.simulate.write", "simulate", ("-o", "out")),
    "data prepare": (
        "leech.data.prepare",
        "prepare",
        (*READS, "--motif", "CCAGGC", "--motif-offset", "2", "-o", "out"),
    ),
    "data merge": ("leech.data.compose", "merge", ("a", "b", "-o", "out")),
    "data inspect": ("leech.data.inspect", "inspect", ("corpus",)),
    "data view": (
        "leech.data.portrait",
        "portray",
        ("corpus", "--read-id", "00000000-0000-0000-0000-000000000000", "-o", "out"),
    ),
    "data check": ("leech.evaluation.shortcuts", "check", ("corpus",)),
    "model train": ("leech.training.train", "train", ("--data", "corpus", "-o", "out")),
    "model benchmark": ("leech.training.benchmark", "benchmark", ("--data", "corpus")),
    "model calibrate": ("leech.evaluation.calibrate", "calibrate", ("--model", "m", "--data", "corpus", "-o", "out")),
    "model inspect": ("leech.models.description", "describe", ("model",)),
    "eval test": ("leech.evaluation.evaluate", "evaluate", ("--model", "m", "--data", "corpus", "-o", "out")),
    "eval compare": ("leech.evaluation.compare", "compare", ("a", "b", "--data", "corpus", "-o", "out")),
    "predict": ("leech.prediction.predict", "predict", ("--model", "m", *READS, "-o", "out")),
    "report": ("leech.evaluation.report.write", "report", ("--metrics", "m.json", "-o", "out")),
    "demo": ("leech.demo", "run_demo", ()),
}
"""Command -> (module of its core function, its name, the shortest command line)."""

LEAVES = {" ".join(path): command for path, command in commands() if not isinstance(command, click.Group)}

OWN = {"help", "as_json", "config_file", "verbose", "quiet"}
"""Options that are not the core function's business; tests of their own follow."""

OTHERWHERE = {("predict", "samples")}
"""Options that lead to another core function, which has tests of its own."""

OPTIONS = [
    pytest.param(name, option, id=f"{name} {option.opts[-1]}")
    for name, command in LEAVES.items()
    for option in command.params
    if isinstance(option, click.Option) and option.name not in OWN and (name, option.name) not in OTHERWHERE
]


class Result:
    failure = None

    def to_mapping(self):
        return {"answer": 42}

    def tables(self):
        return [Table(title="First", columns=("what",), rows=[("a",)]), Table(title="Second", columns=("n",), rows=[])]

    def refuse_incomplete(self):
        pass


@pytest.fixture(autouse=True)
def _logger_as_before():
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def signature(module, function):
    """Return a core function's signature from its source, because importing it may cost seconds."""
    source = ROOT.joinpath("src", *module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    (node,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == function]
    required = len(node.args.args) - len(node.args.defaults)
    assert required == len(node.args.args), "a core function has no defaults; they are the configuration's"
    kinds = inspect.Parameter
    parameters = [kinds(argument.arg, kinds.POSITIONAL_OR_KEYWORD) for argument in node.args.args]
    parameters += [kinds(argument.arg, kinds.KEYWORD_ONLY) for argument in node.args.kwonlyargs]
    return inspect.Signature(parameters)


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs a command line and returns what its core function was given, by parameter."""

    def run_command(name, *arguments):
        module, function, shortest = CORES[name]
        calls = []

        def core(*positional, **named):
            calls.append((positional, named))
            return Result()

        if module == "leech.demo":
            # Its module holds the configuration too, and is light.
            monkeypatch.setattr(f"{module}.{function}", core)
        else:
            monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{function: core}))
        assert main([*name.split(), *shortest, *arguments]) == 0
        ((positional, named),) = calls
        return signature(module, function).bind(*positional, **named).arguments

    return run_command


def flat(call):
    """Return a call's arguments by name, the fields of configurations one by one."""
    values = {}
    for key, value in call.items():
        if key in {"progress", "stamp"}:
            continue
        if dataclasses.is_dataclass(value):
            values |= {f"{type(value).__name__}.{f.name}": getattr(value, f.name) for f in dataclasses.fields(value)}
        else:
            values[key] = value
    return values


def configurations(call):
    return [value for key, value in call.items() if key != "stamp" and dataclasses.is_dataclass(value)]


def other_value(option, default):
    """Return (words on the command line, the value they stand for), another than the default wherever there is another."""
    flag = option.opts[-1]
    if option.is_flag:
        if not option.secondary_opts:
            return [flag], True
        return ([option.secondary_opts[0]], False) if default else ([flag], True)
    if isinstance(option.type, click.Choice):
        choice = next((choice for choice in option.type.choices if choice != default), default)
        return [flag, choice], choice
    if option.nargs == 2:
        return [flag, "7", "9"], (7, 9)
    if option.name == "split" and option.multiple:
        return [flag, "0.5", "0.25", "0.25"], (0.5, 0.25, 0.25)
    if isinstance(option.type, click.Path):
        return [flag, "elsewhere"], Path("elsewhere")
    if option.type is click.INT:
        value = 7 if default is None else default + 1
    elif option.type is click.FLOAT:
        value = (default or 0.5) / 2
    else:
        value = "ACGT"
    return [flag, str(value)], value


def test_every_command_is_tested_here():
    assert set(LEAVES) == set(CORES)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_each_option_reaches_the_core_function_and_changes_nothing_else(run, name, option):
    before = run(name)
    defaults = {f.name: getattr(value, f.name) for value in configurations(before) for f in exposed_fields(type(value))}
    words, value = other_value(option, defaults.get(option.name))
    after = run(name, *words)
    if option.multiple and not isinstance(value, tuple):
        value = (*defaults[option.name], value)
    changed = {key: now for key, now in flat(after).items() if now != flat(before)[key]}
    if value == defaults.get(option.name):
        # The one choice there is so far.
        assert isinstance(option.type, click.Choice)
        assert len(option.type.choices) == 1
        assert changed == {}
    else:
        assert [(key.split(".")[-1], now) for key, now in changed.items()] == [(option.name, value)]


@pytest.mark.parametrize("name", LEAVES)
def test_each_field_that_users_may_set_has_an_option_whose_default_is_the_dataclass_s_alone(run, name):
    options = {option.name: option for option in LEAVES[name].params}
    for value in configurations(run(name)):
        for field in exposed_fields(type(value)):
            assert options[field.name].default is None
            given = f"--{field.name.replace('_', '-')}" in CORES[name][2]
            if field.default is not dataclasses.MISSING and not given:
                assert getattr(value, field.name) == field.default


@pytest.mark.parametrize("name", [name for name in LEAVES if "config_file" in {p.name for p in LEAVES[name].params}])
def test_a_configuration_file_reaches_every_field_and_flags_override_it(run, name, tmp_path):
    before = run(name)
    file, expected = {}, {}
    for option in LEAVES[name].params:
        owner = [v for v in configurations(before) if option.name in {f.name for f in exposed_fields(type(v))}]
        if owner and f"--{option.name.replace('_', '-')}" not in CORES[name][2]:
            _, value = other_value(option, getattr(owner[0], option.name))
            if option.multiple and not isinstance(value, tuple):
                value = (value,)
            file[option.name] = str(value) if isinstance(value, Path) else value
            expected[f"{type(owner[0]).__name__}.{option.name}"] = value
    path = tmp_path / "settings.toml"
    path.write_text("".join(f"{key} = {json.dumps(value, default=str)}\n" for key, value in file.items()))
    after = flat(run(name, "--config", str(path)))
    assert expected
    assert after == {**flat(before), **expected}
    flag, field = ("--workers", "workers") if "workers" in file else ("--seed", "seed")
    overridden = flat(run(name, "--config", str(path), flag, "3"))
    assert [key.split(".")[-1] for key in after if after[key] != overridden[key]] == [field]


def test_required_values_may_come_from_the_file(run, tmp_path, monkeypatch):
    monkeypatch.setitem(CORES, "data prepare", (*CORES["data prepare"][:2], ("-o", "out")))
    path = tmp_path / "settings.toml"
    path.write_text('pod5 = ["a"]\nbam = "b"\nreference = "r"\nmotif = "CCA"\nmotif_offset = 0\n')
    values = flat(run("data prepare", "--config", str(path)))
    assert values["ReadSources.pod5"] == (Path("a"),)
    assert values["Recipe.motif"] == "CCA"


def test_what_train_writes_down_can_be_given_back(run, tmp_path):
    first = run("model train", "--epochs", "3", "--learning-rate", "0.001", "--positive-label", "charged")
    path = tmp_path / "train.toml"
    path.write_text(dump_toml(first["config"]))
    assert flat(run("model train", "--config", str(path))) == flat(first)


@pytest.mark.parametrize("name", ["data prepare", "predict"])
def test_pod5_takes_several_values_after_one_flag_and_the_flag_again(run, name, monkeypatch):
    rest = CORES[name][2][2:] if name == "data prepare" else ("--model", "m", *READS[2:], "-o", "out")
    monkeypatch.setitem(CORES, name, (*CORES[name][:2], rest))
    expected = (Path("a.pod5"), Path("b.pod5"), Path("c"))
    for words in (("--pod5", "a.pod5", "b.pod5", "c"), ("--pod5", "a.pod5", "--pod5", "b.pod5", "c")):
        assert flat(run(name, *words))["ReadSources.pod5"] == expected


@pytest.mark.parametrize("name", CORES)
def test_results_are_tables_on_stdout_and_json_when_asked(run, name, capsys):
    run(name)
    assert capsys.readouterr().out == "First\nwhat\na\n\nSecond\nn\n"
    run(name, "--json")
    assert json.loads(capsys.readouterr().out) == {"answer": 42}


def test_the_stamp_tells_the_command_line(run):
    stamp = run("data merge", "--seed", "3")["stamp"]
    assert stamp.command == ("leech", "data", "merge", "a", "b", "-o", "out", "--seed", "3")
    assert stamp.time_utc.endswith("+00:00")


def test_the_stamp_tells_settings_and_inputs(run, tmp_path, monkeypatch):
    for name in ("reads.pod5", "reads.bam", "reference.fa"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    stamp = run("data prepare")["stamp"]
    assert [Path(entry.path).name for entry in stamp.inputs] == ["reads.pod5", "reads.bam", "reference.fa"]
    assert run("data prepare")["stamp"].config_digest == stamp.config_digest
    assert run("data prepare", "--samples-before", "7")["stamp"].config_digest != stamp.config_digest


def test_a_reader_that_has_enough_ends_the_run_without_a_word():
    program = (
        "import sys; from types import SimpleNamespace; from leech.cli.main import main\n"
        "result = SimpleNamespace(to_mapping=lambda: {}, tables=lambda: [])\n"
        "sys.modules['leech.data.inspect'] = SimpleNamespace(inspect=lambda *_, **__: result)\n"
        "sys.exit(main(['data', 'inspect', 'corpus', '--json']))"
    )
    read_end, write_end = os.pipe()
    os.close(read_end)
    # Buffered, as a user's Python is, so that only a flush meets the closed pipe.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        [sys.executable, "-c", program],
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    os.close(write_end)
    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, "")


def failing(monkeypatch, error):
    def core(*_, **__):
        raise error

    monkeypatch.setitem(sys.modules, "leech.data.inspect", SimpleNamespace(inspect=core))
    return main(["data", "inspect", "corpus"])


@pytest.mark.parametrize(
    ("error", "code"), [(InputError("bad file", hint="mend it"), 1), (ConfigError("bad option"), 2)]
)
def test_an_expected_error_becomes_words_on_stderr_and_its_exit_code(monkeypatch, capsys, error, code):
    assert failing(monkeypatch, error) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else "")


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        failing(monkeypatch, ZeroDivisionError())


def test_an_interrupt_is_one_line_and_130(monkeypatch, capsys):
    assert failing(monkeypatch, KeyboardInterrupt()) == 130
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert output.err.startswith("interrupted")


def test_being_told_to_end_cleans_up_like_an_interrupt(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from types import SimpleNamespace\n"
        "from leech.cli.main import main; from leech.provenance import atomic_file\n"
        "def inspect(*_, **__):\n"
        "    with atomic_file(Path('out.json')):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "sys.modules['leech.data.inspect'] = SimpleNamespace(inspect=inspect)\n"
        "sys.exit(main(['data', 'inspect', 'corpus']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    # 128 + 15.
    assert (done.returncode, done.stderr.count("interrupted")) == (143, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_command_leaves_the_signals_as_they_were(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    failing(monkeypatch, InputError("bad file"))
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("name", ["data merge", "model train", "eval test", "predict", "data prepare"])
def test_an_output_that_is_an_input_is_refused_with_force_too(run, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = {
        "data merge": "a",
        "model train": "corpus",
        "eval test": "corpus",
        "predict": "m",
        "data prepare": "reads.bam",
    }
    (tmp_path / given[name]).mkdir()
    words = [*name.split(), *CORES[name][2], "-o", given[name], "--force"]
    assert main(words) == 2
    assert f"Output '{given[name]}' is the input '{given[name]}'" in capsys.readouterr().err


def test_python_dash_m_runs_the_same_command_line():
    def run(*words):
        command = [sys.executable, "-m", "leech", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert run("--version").stdout == f"leech, version {__version__}\n"
    assert run("--help").stdout.startswith("Usage: leech [OPTIONS]")
    assert run("dat").returncode == 2


def test_the_console_script_runs_the_same_command_line():
    script = Path(sys.executable).with_name("leech")
    if not script.is_file():
        pytest.skip("leech is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"leech, version {__version__}\n"
    wrong = subprocess.run([script, "dat"], capture_output=True, text=True, timeout=60, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dat"], "Did you mean 'data'?"),
        (["data", "prepar"], "Did you mean 'prepare'?"),
        (["train"], "Did you mean 'leech model train'?"),
        (["prepar"], "Did you mean 'leech data prepare'?"),
        (["inspect"], "Did you mean 'leech data inspect' or 'leech model inspect'?"),
        (["data", "prepare", "-o", "out", "--pod5", "--bam", "x"], "'--pod5' needs a value"),
        (["quux"], "Commands: data, model, eval, predict, report, demo."),
        (["data", "prepare", "--pod", "x"], "'--pod5'"),
        (["model", "train", "--epoch", "3"], "'--epochs'"),
        (["model", "train", "--epochs", "many"], "'many' is not a valid integer"),
        (["model", "train", "--device", "tpu"], "'tpu' is not one of"),
        (["model", "train"], "--data"),
        (["model", "train", "--data", "d"], "--output"),
        (["data", "merge", "-o", "out"], "CORPUS"),
        (["data", "merge", "a", "-o", "out", "--split", "0.5", "0.5"], "--split"),
        (["data", "merge", "a", "-o", "out", "--split", "0.5", "0.5", "0.5"], "must sum to 1"),
        (
            ["model", "train", "--data", "d", "-o", "out", "--epochs", "0"],
            "error: --epochs must be between 1 and 100000, got 0",
        ),
        (["data", "prepare", "-o", "out"], "Missing option '--pod5'"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2_with_the_way_out(capsys, words, message):
    assert main(words) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["data", "-h"]])
def test_what_was_asked_for_is_exit_code_0_on_stdout(capsys, words):
    assert main(words) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert (__version__ if words == ["--version"] else "Usage:") in output.out


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(("flag", "level"), [(None, "INFO"), ("-v", "DEBUG"), ("--quiet", "WARNING")])
def test_verbose_and_quiet_set_the_level(monkeypatch, late, flag, level):
    monkeypatch.setitem(sys.modules, "leech.data.inspect", SimpleNamespace(inspect=lambda *_, **__: Result()))
    flags = [flag] if flag else []
    words = ["data", "inspect", "corpus"]
    assert main([*words, *flags] if late else [*flags, *words]) == 0
    assert logger.level == getattr(logging, level)


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_help_is_there_at_once_and_imports_nothing_heavy(path):
    program = (
        "import sys, time; start = time.process_time(); from leech.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        # CPU time, because a busy machine makes the clock on the wall say nothing.
        "assert time.process_time() - start < 0.3\n"
        "heavy = {'torch', 'numpy', 'pysam', 'rich', 'pydantic', 'escapepod', 'sklearn', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *path, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0
    assert result.stderr == "[]\n"
    assert result.stdout.startswith("Usage: leech")


def test_every_command_has_its_one_line_of_help():
    assert all(text.endswith(".") for group in COMMANDS.values() for _, text in group.values())


def test_the_page_of_commands_is_current():
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == reference(), "run 'make cli-docs'"


def test_an_argument_that_is_no_text_is_refused_because_no_output_could_name_it(capsys):
    # b"reads\xff.bam" as Python hands it over.
    assert main(["predict", "--model", "m", *READS, "-o", "reads\udcff.bam"]) == 2
    assert r"'reads\udcff.bam' is not UTF-8" in capsys.readouterr().err
