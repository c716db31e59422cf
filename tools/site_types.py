"""An extension of griffe (`mkdocs.yml`): it tells the API reference the arguments of a class of the declaration.

griffe reads sources and imports nothing, so it does not know that `declaration_class` makes a dataclass.
"""

from typing import Any

import griffe


class DeclarationClasses(griffe.Extension):
    """Gives each class of the declaration the `__init__` that it has, with the types and defaults of its fields."""

    def on_class_members(self, *, cls: Any, **_: Any) -> None:
        """Add the method, where the class has none of its own."""
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
