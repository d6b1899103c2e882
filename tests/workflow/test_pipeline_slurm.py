"""The SLURM profile with the stock plugin, against stand-ins for SLURM's commands that run each job here at once.

leech is a stand-in too, which makes what a command was to make: what is looked at is what a cluster would be asked for.
"""

from __future__ import annotations

import re
import shlex

import pytest
from snakemake_runs import REPOSITORY, PipelineFolder, write_program

pytestmark = pytest.mark.timeout(1200)

CONFIG = """\
samples: samples.tsv
reference: reference.fa
prepare: {motif: CCAGGC, motif_offset: 2, workers: 3}
merge: {positive_label: charged}
calibrate: {enabled: false}
runtime: {train: 90}
train_gpus: 4
"""

SHEET = "sample\tpod5\tbam\tlabel\na\ta.pod5\ta.bam\tcharged\nb\tb.pod5\tb.bam\tuncharged\n"

# Runs the wrapped command as SLURM would, notes how it ended, and writes its own arguments down, one call a line. A job that is
# preempted is killed with all that belongs to it, and begun again under its number.
SBATCH = """\
#!/bin/bash
# Jobs are submitted side by side: one at a time takes a number and writes its line.
until mkdir "$RUN_FOLDER/sbatch.lock" 2> /dev/null; do sleep 0.02; done
number=$(( $(cat "$RUN_FOLDER/sbatch.calls" 2> /dev/null | wc -l) + 1 ))
{ printf '%q ' "$@"; echo; } >> "$RUN_FOLDER/sbatch.calls"
rmdir "$RUN_FOLDER/sbatch.lock"
while (( $# )); do
    case "$1" in
        --wrap=*) command=${1#--wrap=} ;;
        --output) log=${2//%j/$number}; shift ;;
    esac
    shift
done
run() {
    SLURM_JOB_ID=$number setsid bash -c "$command" > "$log" 2>&1 &
    job=$!
    until [[ -e "$RUN_FOLDER/preempt" ]] || ! kill -0 $job 2> /dev/null; do sleep 0.1; done
    if [[ -e "$RUN_FOLDER/preempt" ]]; then kill -KILL -- -$job; rm "$RUN_FOLDER/preempt"; wait $job; run; else wait $job; fi
}
if run; then state=COMPLETED; else state=FAILED; fi
echo "$number|$state" >> "$RUN_FOLDER/states"
echo "$number"
"""

SACCT = """\
#!/bin/bash
if [[ "$*" == *JobIdRaw* ]]; then cat "$RUN_FOLDER/states"; fi
"""

SACCTMGR = """\
#!/bin/bash
echo lab
"""

SRUN = """\
#!/bin/bash
echo "$*" >> "$RUN_FOLDER/srun.calls"
while [[ "$1" == -* ]]; do shift; done
exec "$@"
"""

# Training is preempted at its first start.
LEECH = """\
#!/bin/bash
echo "$*" >> "$RUN_FOLDER/leech.calls"
if [[ "$1 $2" == "model train" && $(grep -c "^model train" "$RUN_FOLDER/leech.calls") == 1 ]]; then
    touch "$RUN_FOLDER/preempt"
    sleep 20
    exit 75
fi
while (( $# )); do
    if [[ "$1" == -o ]]; then
        if [[ "$2" == *.* ]]; then touch "$2"; else mkdir "$2"; fi
    fi
    shift
done
"""


@pytest.fixture(scope="module")
def submitted(tmp_path_factory):
    """Run up to the model and return the folder, and the arguments of sbatch by rule, in order."""
    folder = PipelineFolder(tmp_path_factory.mktemp("cluster"))
    folder.write("config.yaml", CONFIG)
    folder.write("samples.tsv", SHEET)
    for name in ("reference.fa", "a.pod5", "a.bam", "b.pod5", "b.bam"):
        folder.write(name, "")
    stand_ins = {"sbatch": SBATCH, "sacct": SACCT, "srun": SRUN, "leech": LEECH, "sacctmgr": SACCTMGR}
    for name in ("sinfo", "squeue", "scontrol", "scancel"):
        stand_ins[name] = "#!/bin/bash\n"
    for name, text in stand_ins.items():
        write_program(folder.stand_ins / name, text)
    profile = REPOSITORY / "workflows" / "profiles" / "slurm"
    arguments = ["--workflow-profile", str(profile), "--default-resources", "slurm_account=lab", "slurm_partition=cpu"]
    arguments += ["--set-resources", "train:slurm_partition=gpu", "--latency-wait", "5"]
    arguments += ["--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1"]
    run = folder.run(*arguments, "results/model")
    assert run.returncode == 0, run.stdout
    calls = {}
    for line in folder.attempts("sbatch"):
        words = shlex.split(line)
        rule = re.match(r"rule_(\w+?)(?:_wildcards_.*)?$", words[words.index("--comment") + 1]).group(1)
        calls.setdefault(rule, []).append(words)
    return folder, calls


def value(words, flag):
    """Return what follows a flag, or stands behind its '='."""
    (found,) = [index for index, word in enumerate(words) if word == flag or word.startswith(f"{flag}=")]
    return words[found].partition("=")[2] or words[found + 1]


def test_every_job_says_in_its_comment_which_rule_it_is(submitted):
    _, calls = submitted
    assert {rule: len(jobs) for rule, jobs in calls.items()} == {"prepare": 2, "merge": 1, "check": 1, "train": 1}


def test_four_gpus_bring_their_cpus_and_memory(submitted):
    _, calls = submitted
    for train in calls["train"]:
        assert value(train, "--gpus") == "4"
        assert value(train, "--nodes") == "1"  # where all its ranks run
        assert value(train, "--cpus-per-task") == "8"
        assert value(train, "--mem") == "13900"  # 700 + 4 x 300 + 4 x 3000, and an empty corpus
        assert value(train, "-t") == "90"
        assert value(train, "-p") == "gpu"


def test_other_jobs_ask_for_no_gpu(submitted):
    _, calls = submitted
    for prepare in calls["prepare"]:
        assert not [word for word in prepare if word.startswith(("--gpus", "--gres"))]
        assert value(prepare, "--cpus-per-task") == "3"
        assert value(prepare, "--mem") == "1050"  # 300 + 3 x 250
        assert value(prepare, "-A") == "lab"
        assert value(prepare, "-p") == "cpu"


def test_every_job_may_be_queued_again(submitted):
    _, calls = submitted
    assert all("--requeue" in job for jobs in calls.values() for job in jobs)


def test_a_training_that_was_preempted_is_begun_again_by_slurm_and_told_to_go_on(submitted):
    folder, _ = submitted
    trainings = [line for line in folder.attempts("leech") if line.startswith("model train")]
    assert len(trainings) == 2
    assert all("--resume --gpus 4 --device cuda" in line for line in trainings)
    states = [line.partition("|")[2] for line in (folder.root / "states").read_text().splitlines()]
    assert states == ["COMPLETED"] * 5
