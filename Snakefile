# From POD5 and BAM to a model, calls and tables: docs/pipeline.md. Commands stand in workflows/rules, what they decide in
# workflows/leech_pipeline.py.
import re
import sys
import tomllib
from pathlib import Path

import yaml
from snakemake.utils import min_version, validate

min_version("9.0")

sys.path.insert(0, str(Path(workflow.basedir, "workflows")))

import leech_pipeline as pipeline


configfile: "config/config.yaml"


SCHEMAS = {
    name: yaml.safe_load(
        Path(workflow.basedir, f"workflows/schemas/{name}.schema.yaml").read_text()
    )
    for name in ("config", "samples")
}
pipeline.refuse_invalid(config, SCHEMAS["config"], "The configuration", "key")
# Fills in what is not given.
validate(config, "workflows/schemas/config.schema.yaml")
config.update(pipeline.whole_numbers(config))
# A slash at its end or a dot in front would make other names of the same files.
config["results"] = str(Path(config["results"]).expanduser())

ROWS = pipeline.read_samples(Path(config["samples"]))
for row in ROWS:
    pipeline.refuse_invalid(
        row,
        SCHEMAS["samples"],
        f"{config['samples']}, sample {row.get('sample', '?')}",
        "column",
    )
    validate(row, "workflows/schemas/samples.schema.yaml")
SAMPLES = pipeline.settle_samples(ROWS, config)
PLACES = pipeline.Places(config, SAMPLES)
PINS = tomllib.loads(Path(workflow.basedir, "workflows/pins.toml").read_text())


wildcard_constraints:
    sample="|".join(map(re.escape, SAMPLES)),


include: "workflows/rules/basecall.smk"
include: "workflows/rules/filter.smk"
include: "workflows/rules/corpus.smk"
include: "workflows/rules/model.smk"
include: "workflows/rules/predict.smk"
include: "workflows/rules/report.smk"


rule all:
    default_target: True
    input:
        PLACES.targets(),
    localrule: True
