"""Calling reads by a model of more than two states."""
