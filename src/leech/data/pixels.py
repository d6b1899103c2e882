"""A drawing as an image of pixels.

Hides: the library that turns SVG into PNG, and which font it writes with. Belongs here: pixels alone; what is drawn is decided
in ``drawing.py`` and ``page.py``, so that an image never shows anything else than the SVG does. Invariants: the same drawing at
the same width gives the same bytes with the same fonts installed; an image never lacks its words.
"""

from __future__ import annotations

from leech.errors import InputError, MissingExtraError

DEFAULT_SCALE = 2.0
"""Pixels per unit of the drawing where no width is asked for: sharp on paper and on screens of high density."""

_FAMILIES = (
    *("DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica", "Helvetica Neue", "Segoe UI"),
    *("Roboto", "Open Sans", "FreeSans", "Nimbus Sans", "Ubuntu", "Cantarell"),
)
"""Fonts of systems that leech runs on, the first one that is installed; the library knows none by itself."""

_STYLE = f"svg text {{ font-family: {', '.join(map(repr, _FAMILIES))} }}"

_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'


def to_png(drawing: str, width: int | None) -> bytes:
    """Return an SVG drawing as PNG.

    :param width: pixels; the height follows. None for :data:`DEFAULT_SCALE` times the drawing's own.
    :raises MissingExtraError: the library is not installed.
    :raises InputError: no font is installed, so that letters and numbers would be missing.
    """
    try:
        from resvg_py import svg_to_bytes
    except ImportError as error:
        raise MissingExtraError(
            "Writing .png takes the package resvg_py, which is not installed.",
            hint="Install it with pip install 'leech[png]', or write .svg.",
        ) from error
    # Words in a font that is not found are left out without an error.
    words, none = (_PROBE.format(content) for content in ('<text x="2" y="15">A</text>', ""))
    if svg_to_bytes(svg_string=words, style_sheet=_STYLE) == svg_to_bytes(svg_string=none, style_sheet=_STYLE):
        raise InputError(
            f"No font was found to write with, so the image would lack its letters and numbers (looked for: "
            f"{', '.join(_FAMILIES)}).",
            hint="Install one of these fonts, for example the system's package of DejaVu, or write .svg.",
        )
    scale = DEFAULT_SCALE if width is None else None
    image: bytes = svg_to_bytes(svg_string=drawing, style_sheet=_STYLE, zoom=scale, width=width)
    return image
