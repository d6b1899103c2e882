"""What the rules of the pipeline decide: samples, options of the commands, and what a job asks of its machine.

Hides: how the sample sheet is written, how a configuration becomes flags of leech, and the formulae for memory. Belongs here:
everything of the pipeline that is computed and can be tested without snakemake; it needs the standard library alone. Files,
commands and their order stand in ``rules/``, names and defaults of the configuration in ``schemas/``.

Invariants: ``config`` and ``row`` have been through their schemas, so that every key with a default is there. Memory is in MB
(10^6 bytes) and never multiplies a corpus by the number of processes, which all map the same pages.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Config = Mapping[str, Any]
Row = Mapping[str, str]

THREADS_A_RANK = 2
"""One computes and one fetches. Two that compute wait for each other on a busy machine: 8 times slower when measured."""

MAPPED_CORPUS_LIMIT_MB = 32_000
"""Of a larger corpus only so much is asked to stay in memory: its pages can be dropped and read again."""


class SheetError(ValueError):
    """Sample sheet or configuration say something that cannot be done; the message says what to change."""


def refuse_invalid(content: Mapping[str, Any], schema: Mapping[str, Any], where: str, word: str) -> None:
    """Refuse what a schema does not allow, in words that name the place; snakemake's own prints all of the schema.

    :param where: what the content is, for the message.
    :param word: what its names are called there: key or column.
    :raises SheetError: with up to three things that are wrong.
    """
    # Part of snakemake's environment, in which alone this is called.
    import jsonschema

    faults = sorted(jsonschema.Draft202012Validator(schema).iter_errors(content), key=lambda fault: list(fault.path))
    if faults:
        raise SheetError(f"{where}: " + "; ".join(_in_words(fault, word) for fault in faults[:3]) + ".")


def _in_words(fault: Any, word: str) -> str:
    place = ".".join(map(str, fault.absolute_path))
    if fault.validator != "additionalProperties":
        return f"{place}: {fault.message}" if place else fault.message
    known = sorted(fault.schema["properties"])
    told = []
    for name in sorted(set(fault.instance) - set(known), key=str):
        close = difflib.get_close_matches(str(name), known, 1)
        told.append(
            f"there is no {word} '{f'{place}.' if place else ''}{name}'"
            + (f", did you mean '{close[0]}'?" if close else "")
        )
    return f"{', '.join(told)} (known: {', '.join(known)})"


def whole_numbers(value: Any) -> Any:
    """Return a configuration with 2 in the place of 2.0, which the schema takes for an integer and a command line does not."""
    if isinstance(value, dict):
        return {name: whole_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_samples(path: Path) -> list[dict[str, str]]:
    """Return the rows of a sample sheet as they stand, cells stripped, empty ones left out.

    Lines that begin with '#' and empty lines are skipped; any line end and a byte order mark are allowed.

    :raises SheetError: no such file, no UTF-8, no rows, a column twice, a quoted cell, or a row with more or fewer cells than
        the header.
    """
    try:
        # Ends of lines as an editor sees them: splitlines would also cut at characters that a path may hold.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise SheetError(
            f"The sample sheet '{path}' cannot be read: {error.strerror}. Its path is 'samples'."
        ) from error
    except UnicodeDecodeError as error:
        raise SheetError(f"The sample sheet '{path}' is not UTF-8. Save it as tab-separated text in UTF-8.") from error
    kept = [
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")
    ]
    rows = list(csv.reader((line for _, line in kept), delimiter="\t", quoting=csv.QUOTE_NONE))
    if len(rows) < 2:
        raise SheetError(f"{path} has no samples. It needs a header line and one line per library, tab-separated.")
    header = [cell.strip() for cell in rows[0]]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise SheetError(f"{path} has the column {', '.join(twice)} twice. Which one counts cannot be told; leave one.")
    samples = []
    for (number, _), cells in zip(kept[1:], rows[1:], strict=True):
        if len(cells) != len(header):
            raise SheetError(
                f"Line {number} of {path} has {len(cells)} cells and the header {len(header)}. "
                "Columns are separated by tabs; an empty cell needs its tab too."
            )
        quoted = [cell for cell in map(str.strip, cells) if len(cell) > 1 and cell[0] == cell[-1] == '"']
        if quoted:
            raise SheetError(
                f"Line {number} of {path} has {quoted[0]} in quotes, which would count as part of it. Take them off; "
                "spaces and commas need none."
            )
        pairs = zip(header, (cell.strip() for cell in cells), strict=True)
        samples.append({name: cell for name, cell in pairs if cell})
    return samples


def settle_samples(rows: Iterable[Row], config: Config) -> dict[str, dict[str, str]]:
    """Return sample -> row with ``condition`` taken as ``label``, once rows and configuration agree.

    :raises SheetError: a name twice, a label given two ways, or labels, hold-outs and models that do not go together.
    """
    samples: dict[str, dict[str, str]] = {}
    for row in rows:
        name = row["sample"]
        if name in samples:
            raise SheetError(f"Sample '{name}' stands twice in {config['samples']}. Files are named after samples.")
        if row["label"] and row["condition"] and row["label"] != row["condition"]:
            raise SheetError(
                f"Sample '{name}' has label '{row['label']}' and condition '{row['condition']}', which are the same "
                "thing. Give one of them."
            )
        samples[name] = {**row, "label": row["label"] or row["condition"]}
    _require_plain_paths(samples, config)
    if not config["model"]:
        _require_two_states(samples, config)
        _require_known_hold_outs(samples, config)
        _require_filled_splits(config)
        _require_two_states_to_learn_from(samples, config)
        _require_one_site(config)
    if any(not row["bam"] for row in samples.values()) and not config["basecall"]["model"]:
        missing = ", ".join(name for name, row in samples.items() if not row["bam"])
        raise SheetError(f"No BAM is given for {missing}, and no basecall.model to make one with.")
    return samples


def _require_plain_paths(samples: Mapping[str, Row], config: Config) -> None:
    """Snakemake takes braces in a path for a wildcard."""
    paths = {name: config[name] for name in ("reference", "results", "model")}
    paths |= {f"{name} of sample '{sample}'": row[name] for sample, row in samples.items() for name in ("pod5", "bam")}
    paths |= {f"prepare.{name}": config["prepare"][name] for name in ("sites", "kmer_table", "options")}
    paths |= {f"{name}.options": config[name]["options"] for name in ("train", "predict")}
    for name, path in paths.items():
        if set(path) & set("{}"):
            raise SheetError(f"{name} is '{path}'; a path with braces cannot be used here. Rename or link it.")


def _require_one_site(config: Config) -> None:
    prepare = config["prepare"]
    if prepare["motif"] and prepare["sites"]:
        raise SheetError(
            "Both prepare.motif and prepare.sites are given, and there is one site. Set one of them to '', the motif perhaps "
            "in config/config.yaml, which --configfile is laid over."
        )
    if not (prepare["motif"] or prepare["sites"]):
        raise SheetError("Neither prepare.motif nor prepare.sites is given, so there is no site to cut around.")
    if prepare["motif"] and "motif_offset" not in prepare:
        raise SheetError("prepare.motif needs prepare.motif_offset, the focus base counted from the motif's first.")


def _require_two_states(samples: Mapping[str, Row], config: Config) -> None:
    labels = sorted({row["label"] for row in samples.values()} - {""})
    if len(labels) != 2:
        raise SheetError(
            f"Training tells two labels apart, and {config['samples']} has {len(labels)} ({', '.join(labels) or 'none'}). "
            "To call samples with a model that is there already, give its folder as 'model'."
        )
    positive = config["merge"]["positive_label"]
    if positive not in labels:
        raise SheetError(f"merge.positive_label is '{positive}'; it must be one of the labels {' and '.join(labels)}.")


def _require_filled_splits(config: Config) -> None:
    """Find a split that would be empty before hours of cutting."""
    merge, calibrate = config["merge"], config["calibrate"]
    shares = dict(zip(("train", "validation", "test", "calibration"), merge["split"], strict=False))
    if not math.isclose(sum(merge["split"]), 1, abs_tol=1e-6):
        raise SheetError(f"The shares in merge.split sum to {sum(merge['split']):g}; they must sum to 1.")
    needed = ["train", "validation", *(["calibration"] if calibrate["enabled"] else [])]
    empty = [name for name in (*needed, *([] if merge["hold_out"] else ["test"])) if not shares.get(name)]
    if "calibration" in empty:
        raise SheetError(
            "Calibrating needs reads of its own: give merge.split a fourth share, or set calibrate.enabled to false."
        )
    if empty:
        raise SheetError(f"merge.split leaves nothing for {' and '.join(empty)}, which the pipeline needs.")
    targets = [name for name in ("target_fpr", "target_precision", "target_recall") if name in calibrate]
    if len(targets) > 1:
        raise SheetError(
            f"There is one operating point, and calibrate gives {' and '.join(targets)}. Keep one of them."
        )


def _require_known_hold_outs(samples: Mapping[str, Row], config: Config) -> None:
    """Find a misspelt flow cell or sample before hours of cutting; other columns stand in the reads alone."""
    training = [row for row in samples.values() if row["label"]]
    for held_out in config["merge"]["hold_out"]:
        column, _, values = held_out.partition("=")
        if column not in {"flow_cell", "sample"} or not all(row[column] for row in training):
            continue
        unknown = set(values.split(",")) - {row[column] for row in training}
        if unknown:
            raise SheetError(
                f"merge.hold_out names {column} {', '.join(sorted(unknown))}, which no labelled sample of "
                f"{config['samples']} has."
            )


def _require_two_states_to_learn_from(samples: Mapping[str, Row], config: Config) -> None:
    """Find hold-outs that take a whole state, as far as the sheet tells."""
    left = [row for row in samples.values() if row["label"]]
    for held_out in config["merge"]["hold_out"]:
        column, _, values = held_out.partition("=")
        if column in {"flow_cell", "sample"}:
            left = [row for row in left if row[column] not in values.split(",")]
    labels = {row["label"] for row in left}
    if len(labels) < 2:
        raise SheetError(
            f"merge.hold_out leaves {f'only {labels.pop()!r}' if labels else 'no sample'} to train on; training needs both "
            "labels. Hold out fewer."
        )


def training_samples(samples: Mapping[str, Row], config: Config) -> list[str]:
    """Return the samples that chunks are cut from: those with a label, unless a model is given."""
    return [] if config["model"] else [name for name, row in samples.items() if row["label"]]


def called_samples(samples: Mapping[str, Row], config: Config) -> list[str]:
    """Return the samples that are called."""
    everything = config["predict"]["labelled"] or bool(config["model"])
    return [name for name, row in samples.items() if everything or not row["label"]]


def given(*paths: str) -> list[str]:
    """Return the paths that are not empty, so that a rule depends on a file only where one is named."""
    return [path for path in paths if path]


def network_file(config: Config) -> list[str]:
    """Return the file of the network, where it is not one of leech's own."""
    network = config["train"]["network"]
    return [network] if network.endswith(".toml") else []


def _flags(pairs: Iterable[tuple[str, object]]) -> list[str]:
    return [word for flag, value in pairs if value not in ("", None) for word in (flag, str(value))]


def prepare_options(config: Config) -> list[str]:
    """Return the flags of ``leech data prepare`` that say where the site is and how chunks are cut."""
    prepare = config["prepare"]
    site: list[tuple[str, object]] = [("--sites", prepare["sites"])]
    if prepare["motif"]:
        site += [
            ("--motif", prepare["motif"]),
            ("--motif-offset", prepare.get("motif_offset")),
            ("--motif-occurrence", prepare["motif_occurrence"]),
        ]
    return _flags([*site, ("--kmer-table", prepare["kmer_table"]), ("--config", prepare["options"])])


def merge_options(config: Config) -> list[str]:
    """Return the flags of ``leech data merge``."""
    merge = config["merge"]
    options = ["--split", *map(str, merge["split"])]
    options += _flags([("--split-by", merge["split_by"]), *(("--hold-out", value) for value in merge["hold_out"])])
    options += ["--balance"] if merge["balance"] else []
    return [*options, *_flags([("--positive-label", merge["positive_label"]), ("--seed", merge["seed"])])]


def check_options(config: Config) -> list[str]:
    """Return the flags of ``leech data check``."""
    check = config["check"]
    allowed = ["--allow", *check["allow"]] if check["allow"] else []
    return [*allowed, *_flags([("--fail-above", check.get("fail_above"))])]


def train_options(config: Config) -> list[str]:
    """Return the flags of ``leech model train``, those for ``train_gpus`` among them."""
    gpus = config["train_gpus"]
    return _flags(
        [
            ("--gpus", max(1, gpus)),
            ("--device", "cuda" if gpus else "cpu"),
            ("--batch-size", config["batch_size"] or None),
            ("--model", config["train"]["network"]),
            ("--seed", config["train"]["seed"]),
            ("--config", config["train"]["options"]),
        ]
    )


def calibrate_options(config: Config) -> list[str]:
    """Return the flags of ``leech model calibrate``."""
    calibrate = config["calibrate"]
    targets = ((f"--target-{figure}", calibrate.get(f"target_{figure}")) for figure in ("fpr", "precision", "recall"))
    return _flags([("--method", calibrate["method"]), *targets])


def predict_options(config: Config) -> list[str]:
    """Return the flags of ``leech predict``."""
    return _flags([("--config", config["predict"]["options"])])


def report_options(config: Config, samples: Mapping[str, Row]) -> list[str]:
    """Return the flags of ``leech report`` that name what there is to show, beside the model."""
    results = config["results"]
    folders = [f"{results}/tables/{sample}" for sample in called_samples(samples, config)]
    options = ["--calls", *folders] if folders else []
    if not config["model"]:
        found = {"metrics": "metrics.json", "scores": "scores.tsv.gz", "corpus": "corpus"}
        options += _flags((f"--{flag}", f"{results}/{name}") for flag, name in found.items())
    return options


def train_ranks(config: Config) -> int:
    """Return the processes that train."""
    return max(1, int(config["train_gpus"]))


def train_threads(config: Config) -> int:
    """Return the CPUs of a training job."""
    return THREADS_A_RANK * train_ranks(config)


def gpu_count(config: Config, gpus: int) -> int:
    """Return the resource ``gpu``; 0 where GPUs are asked for as ``gres``."""
    return gpus if config["gpu_request"] == "gpu" else 0


def gpu_gres(config: Config, gpus: int) -> str:
    """Return the resource ``gres``; empty where there are no GPUs, or they are asked for as ``gpu``."""
    return f"gpu:{gpus}" if gpus and config["gpu_request"] == "gres" else ""


def lsf_gpus(gpus: int) -> str:
    """Return what bsub is told about GPUs, which the LSF plugin takes from no resource of its own."""
    return f"-gpu num={gpus}" if gpus else ""


def folder_mb(paths: Iterable[str | Path]) -> int:
    """Return the size of files and folders, in MB, rounded up; what is not there yet counts for nothing."""
    files = [file for path in map(Path, paths) for file in (path.rglob("*") if path.is_dir() else [path])]
    return math.ceil(sum(file.stat().st_size for file in files if file.is_file()) / 1e6)


def train_memory_mb(config: Config, corpora: Sequence[str | Path]) -> int:
    """Return the memory of a training job.

    Measured (benchmarks/results, "Training on one and several ranks"): anonymous memory of 623 to 1,328 MB at 1 to 4 ranks,
    hence 350 MB and 250 MB a rank, here with room for a larger network; and the corpus, which is in memory once whatever
    the number of ranks. What CUDA takes on the host is an allowance a GPU and was not measured.
    """
    ranks, gpus = train_ranks(config), int(config["train_gpus"])
    return 700 + 300 * ranks + 3000 * gpus + min(folder_mb(corpora), MAPPED_CORPUS_LIMIT_MB)


def cut_memory_mb(workers: int) -> int:
    """Return the memory of a job that decodes reads and cuts chunks.

    Measured: 55 MB for the parent and 43 MB a worker, and up to 200 MB a process when boundaries are refined.
    """
    return 300 + 250 * workers


def score_memory_mb(*, workers: int = 0, corpora: Sequence[str | Path] = ()) -> int:
    """Return the memory of a job that runs a network over chunks: of ``corpora``, or of reads that ``workers`` cut.

    Measured: 410 MB resident to call with two workers, 270 MB to test, networks and libraries included.
    """
    return 1000 + cut_memory_mb(workers) + min(folder_mb(corpora), MAPPED_CORPUS_LIMIT_MB)


def merge_memory_mb(corpora: Sequence[str | Path]) -> int:
    """Return the memory of a job that goes through the small columns of corpora.

    Measured: 196 to 237 MB to merge, 361 MB to draw, a million chunks of 1.94 GB.
    """
    return 400 + math.ceil(0.1 * folder_mb(corpora))


class Places:
    """Where each artefact of a sample lies: given in the sheet, or made below ``results``."""

    def __init__(self, config: Config, samples: Mapping[str, Row]) -> None:
        self.config = config
        self.samples = samples
        self.results: str = config["results"]

    def bam(self, sample: str) -> str:
        """Return the aligned BAM of a sample."""
        made = f"{self.results}/alignments/{self.config['basecall']['aligner']}/{sample}.bam"
        return self.samples[sample]["bam"] or made

    def pod5(self, sample: str) -> str:
        """Return the POD5 that the sample's reads are taken from."""
        filtered = self.config["filter"]["enabled"]
        return f"{self.results}/pod5/{sample}.pod5" if filtered else self.samples[sample]["pod5"]

    def corpora(self) -> list[str]:
        """Return the corpora of the samples with a label."""
        return [f"{self.results}/corpora/{sample}" for sample in training_samples(self.samples, self.config)]

    def model(self) -> str:
        """Return the model that is tested and that calls."""
        made = "model.calibrated" if self.config["calibrate"]["enabled"] else "model"
        return str(self.config["model"] or f"{self.results}/{made}")

    def called(self) -> list[str]:
        """Return the samples that are called."""
        return called_samples(self.samples, self.config)

    def tested(self) -> list[str]:
        """Return what testing a model leaves, where one is trained here."""
        if self.config["model"]:
            return []
        return [f"{self.results}/{name}" for name in ("metrics.json", "scores.tsv.gz", "corpus")]

    def targets(self) -> list[str]:
        """Return what the pipeline is there to make."""
        calls = [f"{self.results}/calls/{sample}.bam" for sample in self.called()]
        pages = [f"{self.results}/report.html"] if calls or not self.config["model"] else []
        trained = [] if self.config["model"] else [f"{self.results}/{name}" for name in ("corpus.html", "check.json")]
        return [*calls, *self.tested()[:2], *trained, *pages]
