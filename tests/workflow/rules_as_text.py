"""The rules of the pipeline read as text, and its configuration completed from the schema, both without snakemake."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import yaml

REPOSITORY = Path(__file__).parents[2]
WORKFLOWS = REPOSITORY / "workflows"
RULE_FILES = sorted((WORKFLOWS / "rules").glob("*.smk"))


def load_pipeline():
    """Return the module that the rules call as ``pipeline``."""
    specification = importlib.util.spec_from_file_location("leech_pipeline", WORKFLOWS / "leech_pipeline.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


pipeline = load_pipeline()


class Rule(NamedTuple):
    name: str
    directives: dict[str, str]
    """Directive -> its text."""

    @property
    def shell(self):
        return ast.literal_eval(f"({self.directives['shell']})")


def read_rules(text):
    """Return the rules of a file."""
    rules = []
    for part in re.split(r"^rule ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition(":")
        # A rule ends at the first line that is not indented.
        body = re.split(r"^\S", body, maxsplit=1, flags=re.MULTILINE)[0]
        pieces = re.split(r"^    (\w+):", body, flags=re.MULTILINE)
        rules.append(Rule(name, dict(zip(pieces[1::2], pieces[2::2], strict=True))))
    return rules


RULES = [rule for path in RULE_FILES for rule in read_rules(path.read_text(encoding="utf-8"))]


def with_defaults(schema, given):
    """Return what was given, completed by the schema's defaults."""
    settled = dict(given)
    for name, property_schema in schema["properties"].items():
        if name not in settled and "default" in property_schema:
            settled[name] = property_schema["default"]
        if property_schema.get("type") == "object" and name in settled:
            settled[name] = with_defaults(property_schema, settled[name])
    return settled


def load_schema(name):
    return yaml.safe_load((WORKFLOWS / "schemas" / f"{name}.schema.yaml").read_text(encoding="utf-8"))


def settle(**given):
    """Return a configuration as the rules see it."""
    return with_defaults(load_schema("config"), {"reference": "reference.fa", **given})


def written_out(rule, config):
    """Return a rule's command with words in the place of snakemake's braces; flags made from ``config`` are the real ones."""
    options = re.search(r"\boptions=pipeline\.(\w+)\(config\)", rule.directives.get("params", ""))

    def word(match):
        name = match.group(1)
        if name == "params.options":
            return shlex.join(getattr(pipeline, options.group(1))(config))
        return "2" if name in {"threads", "params.threads_a_rank"} else name.replace(".", "_")

    return re.sub(r"\{([\w.]+)(?::q)?\}", word, rule.shell)


def leech_arguments(command):
    """Return the words after ``leech`` of a command that is one, without redirections; None for another program's."""
    words = shlex.split(re.sub(r"(?:&>|2?>)\s*\S+", "", command))
    while words and re.fullmatch(r"\w+=\S*", words[0]):
        del words[0]
    return words[1:] if words[0] == "leech" else None
