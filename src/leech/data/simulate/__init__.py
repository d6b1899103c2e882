"""Reads with known truth: references, pore model, molecules, and the files a sequencing run would leave."""
