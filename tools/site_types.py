"""An extension of griffe (`mkdocs.yml`) that adds the arguments of the declaration's classes to the API reference.

griffe reads sources and imports nothing, so it does not know that `declaration_class` makes a dataclass.
"""

from typing import Any

import griffe


class DeclarationClasses(griffe.Extension):
    """Adds to each class of the declaration its `__init__`, with the types and defaults of the fields."""

    def on_class_members(self, *, cls: Any, **_: Any) -> None:
        """Add `__init__` to a class with the decorator `declaration_class`, unless it defines its own."""
        is_declared = any("declaration_class" in str(decorator.value) for decorator in cls.decorators)
        if not is_declared or "__init__" in cls.members:
            return
        fields = [each for each in cls.members.values() if each.is_attribute and each.annotation is not None]
        keyword = griffe.ParameterKind.keyword_only
        parameters = griffe.Parameters(
            griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword),
            *(
                griffe.Parameter(each.name, annotation=each.annotation, kind=keyword, default=each.value)
                for each in fields
            ),
        )
        cls.set_member("__init__", griffe.Function("__init__", lineno=cls.lineno, parameters=parameters, parent=cls))
