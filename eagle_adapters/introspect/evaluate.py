"""Evaluate the expressions of a constructor, without running it: every value each may have.

Both branches of an `if` are followed, a branch that raises is dropped, a loop body is followed once. Everything but
modules, classes, functions, strings and literal containers has no value.
"""

from __future__ import annotations

import ast
from abc import abstractmethod

from eagle_adapters.introspect.classes import Classes, is_property
from eagle_adapters.introspect.files import (
    ClassDefinition,
    Definition,
    Expression,
    External,
    ModuleReference,
)
from eagle_adapters.introspect.instances import Instance
from eagle_adapters.introspect.known import (
    FACTORIES,
    SAME_MODULE,
)
from eagle_adapters.introspect.statements import Statements, extend, instances_in, items_in
from eagle_adapters.introspect.values import Arguments, Bound, Closure, Frame, Imported, Items, Values, unite


class Expressions(Statements):
    """Evaluates expressions; calls are made by the class that extends this one.

    Args:
        classes: the class hierarchies to look in.
    """

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.files = classes.files
        self._constants: dict[int, Values] = {}

    @abstractmethod
    def call(self, function: object, arguments: Arguments, where: str) -> Values:
        """What calling a value may give."""

    @abstractmethod
    def part_of(self, container: Instance) -> Instance:
        """A slice of a container: its first item only, so that it shows as a part."""

    @abstractmethod
    def call_node(self, node: ast.Call, frame: Frame) -> Values:
        """What a call expression may give."""

    def evaluate(self, node: ast.expr | None, frame: Frame) -> Values:
        """Every value an expression may have."""
        match node:
            case ast.Constant(value=str() as text):
                return (text,)
            case ast.Constant(value=int() as number) if not isinstance(number, bool):
                return ()
            case ast.Name(id=name):
                return self._name(name, frame)
            case ast.Attribute(value=value, attr=attr):
                return self._attribute(value, attr, frame)
            case ast.Call():
                return self.call_node(node, frame)
            case ast.IfExp(body=body, orelse=orelse):
                return unite(self.evaluate(body, frame), self.evaluate(orelse, frame))
            case ast.BoolOp(values=values):
                return unite(*(self.evaluate(value, frame) for value in values))
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                frame.variables[name] = self.evaluate(value, frame)
                return frame.variables[name]
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                items = Items("list" if isinstance(node, ast.List) else "tuple")
                for element in elements:
                    if isinstance(element, ast.Starred):
                        extend(items, self.evaluate(element.value, frame), "")
                    else:
                        items.append(self.evaluate(element, frame))
                return (items,)
            case ast.Dict(keys=keys, values=values):
                pairs = [
                    (self.key_of(key, frame), self.evaluate(value, frame))
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                ]
                return (Items("dict", pairs),)
            case (
                ast.ListComp(elt=element, generators=generators) | ast.GeneratorExp(elt=element, generators=generators)
            ):
                inside = self._inside(generators, frame)
                return (Items("list", [(name, self.evaluate(element, inside)) for name in ("0", "1")]),)
            case ast.DictComp(key=key, value=value, generators=generators):
                inside = self._inside(generators, frame)
                return (Items("dict", [(self.key_of(key, inside), self.evaluate(value, inside))]),)
            case ast.JoinedStr(values=parts):
                texts = [part.value if isinstance(part, ast.Constant) else "0" for part in parts]
                return ("".join(map(str, texts)),)
            case ast.Subscript(value=value, slice=index):
                return self._subscript(value, index, frame)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                items = Items("list")
                extend(items, unite(self.evaluate(left, frame), self.evaluate(right, frame)), "")
                return (items,) if items.pairs else ()
            case ast.BinOp(left=left, op=ast.Mult()):
                return self.evaluate(left, frame)
            case ast.Lambda():
                return (Closure(node, frame),)
            case ast.Starred(value=value):
                return self.evaluate(value, frame)
        return ()

    def _inside(self, generators: list[ast.comprehension], frame: Frame) -> Frame:
        inside = Frame(frame.file, dict(frame.variables), frame.owner)
        for generator in generators:
            values = items_in(self.evaluate(generator.iter, inside))
            if isinstance(generator.target, ast.Name):
                inside.variables[generator.target.id] = values
        return inside

    def key_of(self, node: ast.expr, frame: Frame) -> str:
        """An expression as a key of a dict; unknown keys are `0`."""
        return next((value for value in self.evaluate(node, frame) if isinstance(value, str)), "0")

    def _subscript(self, value: ast.expr, index: ast.expr, frame: Frame) -> Values:
        values = self.evaluate(value, frame)
        if isinstance(index, ast.Slice):
            return tuple(Items("list", value.pairs[:1]) for value in values if isinstance(value, Items)) + tuple(
                self.part_of(value) for value in values if isinstance(value, Instance) and value.is_container
            )
        keys = [key for key in self.evaluate(index, frame) if isinstance(key, str)]
        if isinstance(index, ast.Constant) and isinstance(index.value, int):
            keys = [str(index.value)]
        found: list[Values] = []
        for held in values:
            pairs = held.pairs if isinstance(held, Items) else held.pairs() if isinstance(held, Instance) else []
            exact = [item for key, item in pairs if key in keys]
            found += exact or [item for _, item in pairs]
            if isinstance(held, ClassDefinition | External):  # Class[Type]
                found.append((held,))
        return unite(*found)

    def _name(self, name: str, frame: Frame) -> Values:
        if name in frame.variables:
            values = frame.variables[name]
            if len(values) == 1 and isinstance(values[0], Imported):
                values = self.defined(self.files.imported(frame.file, values[0].statement, name))
                frame.variables[name] = values
            return values
        return self.defined(self.files.look_up(frame.file, name), (External(f"builtins:{name}"),))

    def defined(self, found: Definition | None, otherwise: Values = ()) -> Values:
        """The values of a module-level definition."""
        if isinstance(found, Expression):
            key = id(found.node)
            if key not in self._constants:
                self._constants[key] = ()  # a name that is defined by itself has no value
                self._constants[key] = self.evaluate(found.node, Frame(found.file))
            return self._constants[key]
        return (found,) if found is not None else otherwise

    def _attribute(self, value: ast.expr, attr: str, frame: Frame) -> Values:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "super":
            return self._super(value, attr, frame)
        return unite(*(self.member(owner, attr) for owner in self.evaluate(value, frame)))

    def _super(self, call: ast.Call, attr: str, frame: Frame) -> Values:
        owner = frame.owner
        if call.args:
            owner = next((v for v in self.evaluate(call.args[0], frame) if isinstance(v, ClassDefinition)), owner)
        found: list[object] = []
        for instance in instances_in(frame.variables.get("self", ())):
            function = self.classes.method(instance.cls, attr, owner)
            if function is not None:
                found.append(Bound(function, Arguments(((instance,),))))
            elif attr == "__init__" and instance.is_container:
                found.append(Bound(External("builtins:fill"), Arguments(((instance,),))))
        return tuple(found)

    def member(self, owner: object, name: str) -> Values:
        """What `owner.name` may be."""
        if isinstance(owner, Instance):
            held = owner.get(name)
            if held is not None:
                return held
            function = self.classes.method(owner.cls, name)
            if function is not None:
                bound = Bound(function, Arguments(((owner,),)))
                return self.call(bound, Arguments(), "") if is_property(function) else (bound,)
            value = self.classes.attribute(owner.cls, name)
            if value is not None:
                return self.defined(value)
            return (Bound(External("builtins:same"), Arguments(((owner,),))),) if name in SAME_MODULE else ()
        if isinstance(owner, ModuleReference):
            return self.defined(self.files.member(owner.module, name))
        if isinstance(owner, ClassDefinition):
            if name in FACTORIES:
                auto = owner.qualname.startswith("AutoModel")
                return (External(f"{owner.name}.{name}") if auto else owner,)
            function = self.classes.method(owner, name)
            return (function,) if function is not None else self.defined(self.classes.attribute(owner, name))
        if isinstance(owner, External):
            module, _, qualname = owner.name.rpartition(":")
            return (External(f"{module}:{qualname}.{name}" if module != "builtins" else f"builtins:{name}"),)
        if isinstance(owner, Items) and name == "values":
            return (Bound(External("builtins:list"), Arguments(((owner,),))),)
        if isinstance(owner, Items) and name == "get":
            return (Bound(External("builtins:any"), Arguments((owner.every(),))),)
        return ()
