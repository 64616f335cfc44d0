"""Functions and methods that the source agent knows by name, so that it need not read them."""

from __future__ import annotations

import ast
import re

from eagle_adapters.introspect.files import External
from eagle_adapters.introspect.values import Arguments, Frame, Imported, Items, Values

SAME_MODULE = frozenset({"to", "eval", "train", "half", "cuda", "cpu", "float", "bfloat16", "requires_grad_", "apply"})
"""Methods that give the module they are called on."""

SAME_ARGUMENT = frozenset({"compile", "deepcopy", "list", "tuple", "dict", "OrderedDict", "reversed", "iter", "cast"})
"""Functions that give their argument, or a copy of it."""

FACTORIES = frozenset({"from_config", "from_pretrained", "_from_config"})
"""Class methods that make an instance of the class; on an `AutoModel`, of the class the checkpoint chooses."""

MAKES = re.compile(r"(build|make|create|init|construct|load|wrap|model|layer|module|block|class|cls|decoder|llm)")
"""Names of functions that may give a module; other functions of other files are not followed."""

ADDING = frozenset({"add_module", "register_module", "append", "insert", "extend", "update"})

KNOWN = SAME_ARGUMENT | SAME_MODULE | {"partial", "getattr", "setattr", "super"}

MODULE_LIST = External("torch.nn.modules.container:ModuleList")


def mapping(kind: str, arguments: Arguments) -> Values:
    """What `dict` and `OrderedDict` give for a mapping, for pairs, and for keywords."""
    made = Items(kind)
    for value in arguments.at(0, ""):
        if not isinstance(value, Items):
            continue
        for name, item in value.pairs:
            pair = next((held for held in item if isinstance(held, Items) and len(held.pairs) == 2), None)
            if pair is None or value.kind in ("dict", "OrderedDict"):
                made.pairs.append((name, item))
            else:
                key = next((held for held in pair.pairs[0][1] if isinstance(held, str)), name)
                made.pairs.append((key, pair.pairs[1][1]))
    made.pairs += arguments.named.items()
    return (made,)


def is_idle(function: ast.expr, frame: Frame) -> bool:
    """Whether a called name is a function of another file that gives no module, so that its file need not be read."""
    base = function.value if isinstance(function, ast.Attribute) else function
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if not isinstance(base, ast.Name) or not name[:1].islower() or name in FACTORIES or name in KNOWN:
        return False
    known = frame.variables.get(base.id)
    if known is not None and not any(isinstance(value, Imported) for value in known):
        return False
    bound = frame.file.names.get(base.id, ())
    if base is not function and (base.id[:1].isupper() or any(isinstance(_value(made), ast.Dict) for made in bound)):
        return False  # a class, or a table of classes
    here = any(isinstance(made, ast.FunctionDef) for made in frame.file.names.get(name, ()))
    return not here and not MAKES.search(name)


def _value(statement: ast.stmt) -> ast.expr | None:
    value = getattr(statement, "value", None)
    return value if isinstance(value, ast.expr) else None
