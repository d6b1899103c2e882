"""The numpy world: signal, moves, anchors, chunks and the corpus on disk."""
