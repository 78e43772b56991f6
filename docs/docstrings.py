"""Reads the docstrings of this package as mkdocstrings expects them."""

import re

import griffe


class Sections(griffe.Extension):
    """Names two sections as the parser knows them."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """`Example:` holds code; the arguments of a pytree, a dataclass, are its fields."""
        if not obj.docstring:
            return
        renamed = {"Example": "Examples"}
        if obj.is_class and any("pytree" in str(mark.value) for mark in obj.decorators):
            renamed["Args"] = "Attributes"
        for old, new in renamed.items():
            text = re.sub(rf"^{old}:$", f"{new}:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = text
