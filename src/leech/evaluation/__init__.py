"""How good a model is: metrics and the evaluation of a model on a corpus."""
