"""Calls on new reads: the streaming predictor and the writers of its outputs."""
