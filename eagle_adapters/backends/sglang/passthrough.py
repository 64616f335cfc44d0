"""Write the form of a causal model's forward that hands the states its decoder captured to the logits processor."""

from __future__ import annotations

import ast
import copy

from eagle_adapters.codegen.sources import ClassSource, MethodSource
from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

PROCESSOR = "self.logits_processor"
STATES = "aux_hidden_states"


def running_forward(cls: ClassSource) -> MethodSource | None:
    """The class's forward; where that only ends in `return super().forward(...)`, the one of the base it calls."""
    for base in cls.lineage():
        found = base.method("forward")
        if found is None or found.owner != base.name or not _passes_up(found):
            return found
    return None


def _passes_up(method: MethodSource) -> bool:
    tree = method.parse()
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return)]
    last = tree.body[-1]
    return (
        returns == [last]
        and isinstance(last, ast.Return)
        and isinstance(last.value, ast.Call)
        and ast.unparse(last.value.func) == "super().forward"
    )


def calls_processor(method: MethodSource) -> bool:
    """Whether the forward calls its logits processor."""
    return any(ast.unparse(call.func) == PROCESSOR for call in _calls(method.parse()))


def hands_states_on(method: MethodSource) -> bool:
    """Whether the forward does so by itself."""
    tree = method.parse()
    return any(
        ast.unparse(call.func) == PROCESSOR
        and (
            any(isinstance(a, ast.Name) and STATES in a.id for a in call.args)
            or any(k.arg == STATES for k in call.keywords)
        )
        for call in _calls(tree)
    )


def head_given(method: MethodSource) -> str | None:
    """The path, from `self`, of what the forward gives the logits processor as head; None when it is no plain path."""
    for call in _calls(method.parse()):
        if ast.unparse(call.func) == PROCESSOR and len(call.args) > 2:
            path = ast.unparse(call.args[2])
            if path.startswith("self.") and path.replace(".", "").replace("_", "").isalnum():
                return path.removeprefix("self.")
    return None


def pass_states_on(method: MethodSource) -> str:
    """The new text of the forward: `(hidden, states)` is taken apart right after the model was called.

    A forward that takes the pair apart by itself, and only forgets the states then, keeps its own lines
    (sglang 0.5.23, models/glm4v.py).

    Raises:
        AdaptationError: EA546, the forward has no call `self.logits_processor(input_ids, <hidden>, head, batch)` whose
            hidden states come from one assignment.
    """
    tree = method.parse()
    processors = [call for call in _calls(tree) if ast.unparse(call.func) == PROCESSOR]
    names = {_root_name(call) for call in processors}
    if len(names) != 1 or None in names:
        raise _refused(method, f"{len(processors)} calls of {PROCESSOR}")
    hidden = names.pop()
    assert hidden is not None
    sources = [a for a in ast.walk(tree) if isinstance(a, ast.Assign) and _assigns(a, hidden) and _calls_model(a.value)]
    if not sources:
        raise _refused(method, f"no assignment of a model call to `{hidden}`")
    states = _taken_apart(tree, hidden)
    if states is None:
        states = STATES
        _insert_after(
            tree, sources, ast.parse(f"if isinstance({hidden}, tuple):\n    {hidden}, {states} = {hidden}\n").body
        )
    for call in processors:
        call.keywords.append(ast.keyword(STATES, ast.Name(states, ast.Load())))
    start = 1 if ast.get_docstring(tree) is not None else 0
    tree.body[start:start] = ast.parse(f"{states} = None").body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _taken_apart(tree: ast.AST, hidden: str) -> str | None:
    """The second name of `hidden, <states> = hidden`, where the forward has such a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 2:
            first, second = node.targets[0].elts
            parts = (first, node.value)
            if isinstance(second, ast.Name) and all(isinstance(p, ast.Name) and p.id == hidden for p in parts):
                return second.id
    return None


def _calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def _root_name(call: ast.Call) -> str | None:
    """The variable whose value goes in as hidden states, perhaps cast on the way (`hidden_states.float()`)."""
    value: ast.expr | None = call.args[1] if len(call.args) > 1 else None
    for keyword in call.keywords:
        if keyword.arg == "hidden_states":
            value = keyword.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    return value.id if isinstance(value, ast.Name) else None


def _assigns(statement: ast.Assign, name: str) -> bool:
    return (
        len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == name
    )


def _calls_model(value: ast.expr) -> bool:
    """`self.model(...)`, `self.language_model.model(...)`, `general_mm_embed_routine(...)`."""
    if not isinstance(value, ast.Call):
        return False
    text = ast.unparse(value.func)
    return text == "general_mm_embed_routine" or (text.startswith("self.") and text != PROCESSOR)


def _insert_after(tree: ast.AST, statements: list[ast.Assign], inserted: list[ast.stmt]) -> None:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if not isinstance(body, list):
                continue
            out: list[ast.stmt] = []
            for statement in body:
                out.append(statement)
                if any(statement is found for found in statements):
                    out += copy.deepcopy(inserted)
            body[:] = out


def _refused(method: MethodSource, found: str) -> AdaptationError:
    return AdaptationError(
        Diagnostic(
            "EA546",
            f"{method.owner}.{method.name} cannot be made to hand states to the logits processor",
            expected=f"hidden = model(...), then {PROCESSOR}(input_ids, hidden, head, batch)",
            found=found,
            where=f"{method.file}:{method.line}",
            next_step="report this class; it cannot be served with EAGLE-3 until then",
        )
    )
