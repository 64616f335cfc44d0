"""Follow the residual stream through a method: which inputs a result still carries with coefficient one.

A tensor is a `Carry`: the inputs it contains as plain addends, and the inputs it depends on in any way. Addition keeps
addends, everything else (norms, attention, scaling) loses them. `Ledger.run` follows every path of a method, going
into methods of the same class, into submodules whose class is readable, and into functions of the same package.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eagle_adapters.codegen.carry import NONE, UNKNOWN, Carry, added, either, mixed, scaled
from eagle_adapters.codegen.classes import attribute_classes
from eagle_adapters.codegen.sources import ClassSource, FunctionSource, dotted

_ROWS = frozenset(("sequence_parallel_chunk", "tensor_model_parallel_all_gather"))
"""Functions that choose or gather rows; every row stays what it was (vllm 0.32.0, model_executor/models/utils.py)."""

# fmt: off
_SAME = frozenset((
    "to", "float", "half", "bfloat16", "contiguous", "view", "reshape", "clone", "type_as", "flatten", "type", "detach",
    "unsqueeze", "squeeze",
))
# fmt: on
"""Tensor methods after which the tensor still carries the same addends."""

_FACTS = frozenset(("shape", "dtype", "device", "size", "ndim", "dim", "numel"))
"""What can be asked of a tensor without depending on its values."""

FLOAT16 = "float16"
"""Note under which a test for float16 is kept."""

SUPER = "super()."

_PATHS = 128
_DEPTH = 4


@dataclass(slots=True)
class _Path:
    names: dict[str, Carry]
    tests: dict[str, bool] = field(default_factory=dict)
    result: Carry | None = None
    done: bool = False

    def fork(self) -> _Path:
        return _Path(dict(self.names), dict(self.tests))


_Target = tuple[ClassSource | FunctionSource, ast.FunctionDef, ClassSource | FunctionSource]
"""Where a function stands, the function, and whose methods and attributes it sees."""


class TooManyPathsError(Exception):
    """The method has more paths than are followed."""


class Ledger:
    """Runs methods of one class over carries."""

    def __init__(self, owner: ClassSource, notes: dict[str, str] | None = None) -> None:
        self.owner = owner
        self.notes: dict[str, str] = {} if notes is None else notes

    def run(self, name: str, given: Mapping[str, Carry], depth: int = _DEPTH) -> list[Carry]:
        """The results of the method over all its paths; parameters that are not given are unknown.

        Raises:
            TooManyPathsError: more than 128 paths.
        """
        found = self.owner.definition(name)
        if found is None:
            return [UNKNOWN]
        owner, node = found
        return Ledger(self.owner, self.notes)._function(node, given, owner, depth)

    def _function(
        self, node: ast.FunctionDef, given: Mapping[str, Carry], home: ClassSource | FunctionSource, depth: int
    ) -> list[Carry]:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        walker = _Walker(self, home, depth)
        start = _Path({a.arg: given.get(a.arg, UNKNOWN) for a in arguments})
        for argument, default in zip(reversed(node.args.args), reversed(node.args.defaults), strict=False):
            if argument.arg not in given and isinstance(default, ast.Constant) and default.value is None:
                start.names[argument.arg] = NONE
        paths = walker.block(node.body, [start])
        return [
            path.result if path.result is not None else NONE
            for path in paths
            if not (path.done and path.result is None)
        ]


class _Walker:
    def __init__(self, ledger: Ledger, home: ClassSource | FunctionSource, depth: int) -> None:
        self.ledger, self.home, self.depth = ledger, home, depth

    # statements

    def block(self, body: Sequence[ast.stmt], paths: list[_Path]) -> list[_Path]:
        for statement in body:
            going = [path for path in paths if not path.done]
            ended = [path for path in paths if path.done]
            if not going:
                break
            paths = ended + [after for path in going for after in self.statement(statement, path)]
            paths = _unique(paths)
            if len(paths) > _PATHS:
                raise TooManyPathsError
        return paths

    def statement(self, node: ast.stmt, path: _Path) -> list[_Path]:
        if isinstance(node, ast.Return):
            path.result = NONE if node.value is None else self.value(node.value, path)
            path.done = True
        elif isinstance(node, ast.Raise):
            path.done = True
        elif isinstance(node, ast.Assign):
            value = self.value(node.value, path)
            for target in node.targets:
                self.store(target, value, path)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.store(node.target, self.value(node.value, path), path)
        elif isinstance(node, ast.AugAssign):
            old, new = self.value(node.target, path), self.value(node.value, path)
            self.store(node.target, self.combine(node.op, old, new), path)
        elif isinstance(node, ast.Expr):
            self.value(node.value, path)
        elif isinstance(node, ast.If):
            return self.branch(node, path)
        elif isinstance(node, ast.For | ast.While | ast.With):
            return self.block(node.body, [path])
        elif isinstance(node, ast.Try):
            return self.block([*node.body, *node.finalbody], [path])
        return [path]

    def branch(self, node: ast.If, path: _Path) -> list[_Path]:
        decided = self.decide(node.test, path)
        if decided is not None:
            return self.block(node.body if decided else node.orelse, [path])
        key, sense = _test_key(node.test)
        yes, no = path, path.fork()
        yes.tests[key], no.tests[key] = sense, not sense
        return [*self.block(node.body, [yes]), *self.block(node.orelse, [no])]

    def store(self, target: ast.expr, value: Carry, path: _Path) -> None:
        if isinstance(target, ast.Name):
            path.names[target.id] = value
            for key in [k for k in path.tests if target.id in k.replace(".", " ").split()]:
                del path.tests[key]
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.items if value.items is not None and len(value.items) == len(target.elts) else None
            for i, element in enumerate(target.elts):
                self.store(element, parts[i] if parts is not None else mixed([value]), path)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            old = path.names.get(target.value.id, UNKNOWN)
            path.names[target.value.id] = Carry(reads=old.reads | value.reads, scaled=old.addends | old.scaled)

    # expressions

    def value(self, node: ast.expr, path: _Path) -> Carry:
        if isinstance(node, ast.Name):
            return path.names.get(node.id, UNKNOWN)
        if isinstance(node, ast.Constant):
            return NONE if node.value is None else UNKNOWN
        if isinstance(node, ast.Tuple | ast.List):
            return Carry(items=tuple(self.value(e, path) for e in node.elts))
        if isinstance(node, ast.BinOp):
            return self.combine(node.op, self.value(node.left, path), self.value(node.right, path))
        if isinstance(node, ast.IfExp):
            decided = self.decide(node.test, path)
            if decided is not None:
                return self.value(node.body if decided else node.orelse, path)
            return either(self.value(node.body, path), self.value(node.orelse, path))
        if isinstance(node, ast.Call):
            return self.call(node, path)
        if isinstance(node, ast.Subscript):
            base = self.value(node.value, path)
            if base.items is not None and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
                return (
                    base.items[node.slice.value] if -len(base.items) <= node.slice.value < len(base.items) else UNKNOWN
                )
            return scaled(mixed([base]) if base.items is not None else base)
        if isinstance(node, ast.Attribute):
            return UNKNOWN if node.attr in _FACTS or dotted(node) is not None else mixed([self.value(node.value, path)])
        if isinstance(node, ast.NamedExpr):
            value = self.value(node.value, path)
            self.store(node.target, value, path)
            return value
        if isinstance(node, ast.Starred):
            return self.value(node.value, path)
        return mixed([self.value(child, path) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])

    def combine(self, operator: ast.operator, left: Carry, right: Carry) -> Carry:
        if isinstance(operator, ast.Add):
            return added(left, right)
        if isinstance(operator, ast.Sub):
            return added(left, scaled(right))
        if isinstance(operator, ast.Mult | ast.Div):
            if not right.reads:
                return scaled(left)
            if not left.reads:
                return scaled(right)
        return mixed([left, right])

    def call(self, node: ast.Call, path: _Path) -> Carry:
        name = dotted(node.func) or _super_method(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        values = [self.value(a, path) for a in node.args]
        named = {k.arg: self.value(k.value, path) for k in node.keywords if k.arg}
        everything = mixed(
            [*values, *named.values(), *(self.value(k.value, path) for k in node.keywords if k.arg is None)]
        )
        if name in ("torch.add",) and len(values) == 2 and not named:
            return added(*values)
        if isinstance(node.func, ast.Attribute) and not name.startswith(("self.", SUPER)):
            base = self.value(node.func.value, path)
            if base.reads:
                return self.tensor_method(node, last, base, values, path)
        if name in _ROWS and values:
            self.ledger.notes.setdefault(name, self.where(node))
            return values[0]
        if "fused_add" in name and len(values) >= 2:
            self.ledger.notes.setdefault("fused add", self.where(node))
            return Carry(items=(everything, added(values[0], values[1])))
        given = [*values, *named.values()]
        if self.depth and any(v.addends or v.items for v in given):
            return self.enter(node, name, values, named, everything, pair=sum(bool(v.reads) for v in given) > 1)
        return everything

    def tensor_method(self, node: ast.Call, last: str, base: Carry, values: list[Carry], path: _Path) -> Carry:
        if last in _SAME:
            return base
        if last in _FACTS:
            return UNKNOWN
        if last in ("add", "add_") and len(values) == 1 and not node.keywords:
            result = added(base, values[0])
        elif last in ("mul_", "mul", "div", "div_"):
            result = scaled(base)
        elif last == "copy_" and values:
            result = values[0]
        else:
            result = mixed([base, *values])
        if last.endswith("_") and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            path.names[node.func.value.id] = result
        return result

    def enter(
        self, node: ast.Call, name: str, values: list[Carry], named: dict[str, Carry], everything: Carry, pair: bool
    ) -> Carry:
        """Follow a call; `everything` is what is known about the result when it cannot be followed."""
        results: list[Carry] = []
        for place, function, cls in self.targets(name, pair):
            bound = isinstance(place, ClassSource) and not _is_static(function)
            given = _bind(function, values, named, bound)
            inner = Ledger(cls, self.ledger.notes) if isinstance(cls, ClassSource) else self.ledger
            try:
                found_results = inner._function(function, given, place, self.depth - 1)
            except TooManyPathsError:
                return everything
            results += [r for r in found_results if r.reads or r.items]
        if not results:
            return everything
        result = results[0]
        for other in results[1:]:
            result = either(result, other)
        if len(values) >= 2 and result.items is not None and len(result.items) == 2 and result.items[1].addends:
            self.ledger.notes.setdefault(name, self.where(node))
        return result

    def targets(self, name: str, pair: bool) -> list[_Target]:
        """What a call by this name may run: methods, submodules, functions of the package.

        A submodule that gets one tensor is only entered when it is defined next to its owner: a norm or an attention
        of one tensor gives nothing that still carries it.
        """
        head, _, attribute = name.partition(".")
        this = self.ledger.owner
        found: list[_Target] = []
        if isinstance(self.home, ClassSource):
            if head in ("self", "cls") and "." not in attribute:
                own = this.definition(attribute)
                if own is not None:
                    return [(*own, this)]
                for cls in attribute_classes(this, attribute):
                    if pair or cls.module is this.module:
                        found += [(*forward, cls) for forward in _forwards(cls)]
            elif name.startswith(SUPER):
                method = name.removeprefix(SUPER)
                for base in list(self.home.lineage())[1:]:
                    definition = base.definition(method)
                    inherited = _forwards(base) if method == "forward" else [definition] if definition else []
                    if inherited:
                        return [(*each, this) for each in inherited]
            elif "." in name:
                owner, _, method = name.rpartition(".")
                known = self.home.module.lookup(owner)
                if isinstance(known, ClassSource) and (definition := known.definition(method)) is not None:
                    return [(*definition, known)]
        if not found and name:
            called = self.home.module.lookup(name)
            if isinstance(called, FunctionSource):
                found.append((called, called.node, called))
        return found

    def decide(self, test: ast.expr, path: _Path) -> bool | None:
        """The truth of a test that can be known: a None test of a known value, or a test this path has taken."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decide(test.operand, path)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            parts = [self.decide(v, path) for v in test.values]
            if isinstance(test.op, ast.And):
                return False if False in parts else (True if all(parts) else None)
            return True if True in parts else (False if all(p is False for p in parts) else None)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is | ast.IsNot):
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None and isinstance(test.left, ast.Name):
                value = path.names.get(test.left.id)
                if value is not None and (value.none or value.reads):
                    return value.none == isinstance(test.ops[0], ast.Is)
        key, sense = _test_key(test)
        if "torch.float16" in key and isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
            # Some layers scale the whole stream in float16 to keep it in range; noted, then left aside.
            self.ledger.notes.setdefault(FLOAT16, self.where(test))
            return False
        if key.endswith((".is_idle()", ".shape[0] == 0")):
            return not sense  # an idle rank has no rows, hence no states
        if key.endswith((".shape[0] != 0", ".shape[0] > 0")):
            return sense
        known = path.tests.get(key)
        return None if known is None else known == sense

    def where(self, node: ast.AST) -> str:
        return f"{self.home.module.file}:{getattr(node, 'lineno', 0)}"


def _forwards(cls: ClassSource) -> list[tuple[ClassSource, ast.FunctionDef]]:
    """What a call of a module runs.

    The engines' custom operators define `forward_native` below a base whose `forward` chooses between it and platform
    forms that agree with it (vllm 0.32.0 `CustomOp`, sglang 0.5.23 `BaseFusedOp`).
    """
    for owner in cls.lineage():
        own = {s.name: s for s in owner.node.body if isinstance(s, ast.FunctionDef)}
        for name in ("forward", "forward_native"):
            if name in own:
                return [(owner, own[name])]
    return []


def _super_method(function: ast.expr) -> str:
    """`super().name` as one name, else nothing."""
    if (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Call)
        and dotted(function.value.func) == "super"
    ):
        return SUPER + function.attr
    return ""


def _bind(function: ast.FunctionDef, values: list[Carry], named: dict[str, Carry], bound: bool) -> dict[str, Carry]:
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
    if bound and names:
        names = names[1:]
    return {**dict(zip(names, values, strict=False)), **named}


def _is_static(function: ast.FunctionDef) -> bool:
    return any(dotted(d) == "staticmethod" for d in function.decorator_list)


def _test_key(test: ast.expr) -> tuple[str, bool]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        key, sense = _test_key(test.operand)
        return key, not sense
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
        return ast.unparse(ast.Compare(test.left, [ast.Is()], test.comparators)), False
    return ast.unparse(test), True


def _unique(paths: list[_Path]) -> list[_Path]:
    seen: list[_Path] = []
    for path in paths:
        if not any(
            p.names == path.names and p.result == path.result and p.done == path.done and p.tests == path.tests
            for p in seen
        ):
            seen.append(path)
    return seen
