"""Run the statements of a constructor over values: assignments, branches, loops, `with`, local imports."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from eagle_adapters.introspect.instances import Instance, Slot
from eagle_adapters.introspect.values import Closure, Frame, Imported, Items, Values, unite


class Statements(ABC):
    """Runs statements; the expressions in them are evaluated by the class that extends this one."""

    @abstractmethod
    def evaluate(self, node: ast.expr | None, frame: Frame) -> Values:
        """Every value an expression may have."""

    @abstractmethod
    def key_of(self, node: ast.expr, frame: Frame) -> str:
        """An expression as a key of a dict; unknown keys are `0`."""

    def run(self, body: Sequence[ast.stmt], frame: Frame) -> bool:
        """Run statements; false when the end is not reached (return, raise)."""
        return all(self._statement(statement, frame) for statement in body)

    def _statement(self, statement: ast.stmt, frame: Frame) -> bool:
        match statement:
            case ast.Assign(targets=targets, value=value):
                values = self.evaluate(value, frame)
                for target in targets:
                    self._assign(target, values, value, statement, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self.evaluate(value, frame), value, statement, frame)
            case ast.AugAssign(target=target, value=value):
                added = self.evaluate(value, frame)
                for held in self.evaluate(_load(target), frame):
                    extend(held, added, frame.file.where(statement))
            case ast.Expr(value=value):
                self.evaluate(value, frame)
            case ast.If(test=test, body=body, orelse=orelse):
                return self._branches([body, orelse], frame, always=_constant(test))
            case ast.For(target=target, iter=over, body=body):
                self._assign(target, items_in(self.evaluate(over, frame)), over, statement, frame)
                self.run(body, frame)
            case ast.While(body=body):
                self.run(body, frame)
            case ast.With(items=items, body=body):
                return self._with(items, body, frame)
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                reached = self._branches([[*body, *orelse], *(handler.body for handler in handlers)], frame)
                return self.run(final, frame) and reached
            case ast.Match(cases=cases):
                return self._branches([*(case.body for case in cases), []], frame)
            case ast.Return(value=value):
                frame.returns.append(self.evaluate(value, frame) if value is not None else ())
                return False
            case ast.Raise():
                return False
            case ast.FunctionDef(name=name):
                frame.variables[name] = (Closure(statement, frame),)
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    frame.variables[name] = (Imported(statement, name),)
            case ast.Delete(targets=targets):
                for target in targets:
                    if isinstance(target, ast.Attribute):
                        for owner in instances_in(self.evaluate(target.value, frame)):
                            owner.slots.pop(target.attr, None)
        return True

    def _branches(self, bodies: Sequence[list[ast.stmt]], frame: Frame, always: bool | None = None) -> bool:
        """Run alternative bodies from the same state and unite what they leave; false when none reaches its end."""
        if always is not None:
            return self.run(bodies[0] if always else bodies[1], frame)
        owner = next(iter(instances_in(frame.variables.get("self", ()))), None)
        variables, slots = dict(frame.variables), dict(owner.slots) if owner else {}
        left: list[tuple[dict[str, Values], dict[str, Slot]]] = []
        reached = False
        for body in bodies:
            frame.variables = dict(variables)
            if owner:
                owner.slots = dict(slots)
            returned = len(frame.returns)
            ends = self.run(body, frame)
            reached = reached or ends
            if ends or len(frame.returns) > returned:  # a branch that raises leaves nothing
                left.append((frame.variables, owner.slots if owner else {}))
        frame.variables = dict(variables)
        for names, _ in left:
            for name, values in names.items():
                several = [other.get(name, ()) for other, _ in left]
                frame.variables[name] = values if len(left) == 1 else unite(*several)
        if owner:
            owner.slots = Slot.united([members for _, members in left]) if left else dict(slots)
        return reached

    def _with(self, items: list[ast.withitem], body: list[ast.stmt], frame: Frame) -> bool:
        owner = next(iter(instances_in(frame.variables.get("self", ()))), None)
        before = dict(owner.slots) if owner else {}
        reached = self.run(body, frame)
        marks = {getattr(getattr(item.context_expr, "func", None), "attr", "") for item in items}
        if owner and "_mark_language_model" in marks:  # vllm 0.32.0, models/interfaces.py
            owner.declared += [name for name, slot in owner.slots.items() if before.get(name) is not slot]
        return reached

    def _assign(self, target: ast.expr, values: Values, source: ast.expr, at: ast.stmt, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.variables[target.id] = values
        elif isinstance(target, ast.Attribute):
            for owner in instances_in(self.evaluate(target.value, frame)):
                owner.put(target.attr, values, frame.file.where(at), called=isinstance(source, ast.Call))
        elif isinstance(target, ast.Subscript):
            for held in self.evaluate(target.value, frame):
                extend(held, (Items("list", [(self.key_of(target.slice, frame), values)]),), frame.file.where(at))
        elif isinstance(target, ast.Tuple | ast.List):
            known = [value for value in values if isinstance(value, Items) and len(value.pairs) == len(target.elts)]
            for index, part in enumerate(target.elts):
                if known:
                    self._assign(part, unite(*(value.pairs[index][1] for value in known)), source, at, frame)
                elif not _is_bound(part):  # `start, end, self.layers = make_layers(...)`
                    self._assign(part, values, source, at, frame)


def instances_in(values: Values) -> Iterator[Instance]:
    """The modules among values."""
    return (value for value in values if isinstance(value, Instance))


def items_in(values: Values) -> Values:
    """What a loop over these values may bind its variable to."""
    found: list[Values] = []
    for value in values:
        if isinstance(value, Items):
            found.append(value.every())
        elif isinstance(value, Instance):
            found += [item for _, item in value.pairs()]
    return unite(*found)


def extend(held: object, added: Values, where: str) -> None:
    """Add the items of lists or dicts to a list, dict or container of modules."""
    for value in added:
        if isinstance(value, Items):
            if isinstance(held, Items):
                held.pairs += value.pairs
            elif isinstance(held, Instance):
                for name, values in value.pairs:
                    held.put(name, values, where)


def _constant(test: ast.expr) -> bool | None:
    if isinstance(test, ast.Constant):
        return bool(test.value)
    return False if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING" else None


def _load(target: ast.expr) -> ast.expr:
    copied = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
    return ast.fix_missing_locations(copied)


def _is_bound(target: ast.expr) -> bool:
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return "start" in name or "end" in name.split("_")
