"""One page of results, and what MultiQC shows of them."""
