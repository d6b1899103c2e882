"""Runs of snakemake in a folder of their own, with a space in its name, and the stand-ins that they find on PATH."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 500


def program(name):
    """Return a program beside this Python, of 'make pipeline' or on PATH; skip the test where there is none."""
    installed = [Path(sys.executable).with_name(name), REPOSITORY / ".venv-pipeline" / "bin" / name]
    found = next((path for path in installed if path.is_file()), shutil.which(name))
    if not found:
        pytest.skip(f"{name} is not installed; 'make pipeline' brings what the pipeline needs")
    return Path(found)


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


class PipelineFolder:
    """A folder with inputs, and the environment of the runs in it: stand-ins first, then what is installed."""

    def __init__(self, root):
        self.root = root
        self.stand_ins = root / "stand ins"
        self.leech = program("leech")
        places = [self.stand_ins, program("snakemake").parent, self.leech.parent, os.environ["PATH"]]
        # Stand-ins find out about the folder from here; snakemake keeps its caches below HOME.
        self.environment = os.environ | {
            "PATH": os.pathsep.join(map(str, places)),
            "PYTHONPATH": str(REPOSITORY / "src"),
            "OMP_NUM_THREADS": "1",
            "HOME": str(root),
            "XDG_CACHE_HOME": str(root / "cache"),
            "RUN_FOLDER": str(root),
            "REAL_LEECH": str(self.leech),
        }
        self.environment.pop("SNAKEMAKE_PROFILE", None)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def command(self, *arguments):
        return ["snakemake", "--snakefile", str(REPOSITORY / "Snakefile"), "--configfile", "config.yaml", *arguments]

    def run(self, *arguments):
        """Run snakemake to its end; all that it says is in ``stdout``."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def plan(self, config):
        """Return the rules that would run with the configuration in a file."""
        planned = self.run("--dry-run", "--cores", "2", "--configfile", config)
        assert planned.returncode == 0, planned.stdout
        return set(re.findall(r"^(?:local)?rule (\w+):", planned.stdout, re.MULTILINE))

    def run_and_kill(self, *arguments, once):
        """Run snakemake until a file is there, then kill it and everything it started."""
        with (self.root / "killed.log").open("w") as log:
            process = subprocess.Popen(
                self.command(*arguments),
                cwd=self.root,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                deadline = time.monotonic() + LIMIT_S
                while not once.exists() and process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.05)
            finally:
                self._kill_all()
                process.wait()
        assert once.exists(), (self.root / "killed.log").read_text()

    def _kill_all(self):
        """Kill every process that has this folder in its environment, and those that they start meanwhile."""
        mark = f"RUN_FOLDER={self.root}".encode()
        found = True
        while found:
            found = False
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    if mark in (process / "environ").read_bytes().split(b"\0"):
                        os.kill(int(process.name), signal.SIGKILL)
                        found = True
                except OSError:  # Ended in between, or somebody else's.
                    continue
            time.sleep(0.05)

    def attempts(self, name):
        """Return the lines that a stand-in wrote about its calls."""
        record = self.root / f"{name}.calls"
        return record.read_text().splitlines() if record.exists() else []
