"""leech: read states off raw nanopore current at one known site of an RNA.

Importing this package imports nothing heavy: the public names are resolved on first use.
"""

__version__ = "0.1.0"
