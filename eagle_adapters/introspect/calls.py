"""Follow calls: functions, methods, closures, constructors of modules and of containers of modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from eagle_adapters.introspect.architectures import vllm_architecture
from eagle_adapters.introspect.classes import Classes, is_static
from eagle_adapters.introspect.evaluate import Expressions
from eagle_adapters.introspect.files import ClassDefinition, External, FunctionDefinition
from eagle_adapters.introspect.instances import DYNAMIC, Instance
from eagle_adapters.introspect.known import ADDING, FACTORIES, MODULE_LIST, SAME_ARGUMENT, is_idle, mapping
from eagle_adapters.introspect.statements import extend, instances_in
from eagle_adapters.introspect.values import Arguments, Bound, Closure, Frame, Items, Values, unite

MAX_DEPTH = 14
"""How many calls deep constructors are followed."""

MAX_CALLS = 300
"""How many functions are followed for one module; constructors that need more do something else than make modules."""

MAX_RECURSION = 3
"""How often one function may be inside itself (a constructor that makes modules of its own class, say)."""


class Interpreter(Expressions):
    """Evaluates expressions and calls; fills the slots of instances.

    Args:
        classes: the class hierarchies to look in.
        inner: the class to use where the checkpoint would choose the decoder's.
    """

    def __init__(self, classes: Classes, inner: ClassDefinition | None = None) -> None:
        super().__init__(classes)
        self.inner = inner
        self._makers: list[Instance] = []
        self._running: list[ast.FunctionDef | ast.Lambda] = []
        self._depth = 0
        self._left = MAX_CALLS

    def construct(self, instance: Instance) -> None:
        """Fill the slots of an instance by following its constructor."""
        function = self.classes.method(instance.cls, "__init__")
        self._makers.append(instance)
        depth, self._depth = self._depth, 0
        left, self._left = self._left, MAX_CALLS
        try:
            if function is not None:
                self.call(Bound(function, Arguments(((instance,),))), instance.arguments, instance.where)
            elif instance.is_container:
                self._fill(instance, instance.arguments, instance.where)
        finally:
            self._depth, self._left = depth, left
            self._makers.pop()

    def call_node(self, node: ast.Call, frame: Frame) -> Values:
        """What a call expression may give."""
        if is_idle(node.func, frame):
            return ()
        if isinstance(node.func, ast.Attribute) and node.func.attr in ADDING:
            self._add(node, frame)
        arguments = self._arguments(node, frame)
        where = frame.file.where(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr") and len(arguments.positional) > 1:
            return self._by_name(node.func.id, arguments, where)
        return unite(*(self.call(function, arguments, where) for function in self.evaluate(node.func, frame)))

    def _arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        positional: list[Values] = []
        for argument in node.args:
            values = self.evaluate(argument, frame)
            if isinstance(argument, ast.Starred):
                held = [value for value in values if isinstance(value, Items)]
                positional += [item for items in held for _, item in items.pairs]
            else:
                positional.append(values)
        named = {word.arg: self.evaluate(word.value, frame) for word in node.keywords if word.arg is not None}
        return Arguments(tuple(positional), named)

    def _by_name(self, function: str, arguments: Arguments, where: str) -> Values:
        names = [value for value in arguments.positional[1] if isinstance(value, str)]
        owners = arguments.positional[0]
        if function == "setattr":
            for owner in instances_in(owners):
                for name in names:
                    owner.put(name, arguments.at(2, ""), where)
            return ()
        return unite(*(self.member(owner, name) for owner in owners for name in names), arguments.at(2, "default"))

    def _add(self, node: ast.Call, frame: Frame) -> None:
        assert isinstance(node.func, ast.Attribute)
        where = frame.file.where(node)
        values = [self.evaluate(argument, frame) for argument in node.args]
        for held in self.evaluate(node.func.value, frame):
            if node.func.attr in ("add_module", "register_module") and len(values) > 1 and isinstance(held, Instance):
                for name in values[0]:
                    if isinstance(name, str):
                        held.put(name, values[1], where)
            elif node.func.attr in ("append", "insert") and values:
                extend(
                    held,
                    (
                        Items(
                            "list",
                            [
                                (
                                    str(
                                        len(held.pairs)
                                        if isinstance(held, Items)
                                        else len(held.pairs())
                                        if isinstance(held, Instance)
                                        else 0
                                    ),
                                    values[-1],
                                )
                            ],
                        ),
                    ),
                    where,
                )
            elif node.func.attr in ("extend", "update") and values:
                extend(held, values[0], where)

    def call(self, function: object, arguments: Arguments, where: str) -> Values:
        """What calling a value may give."""
        if self._depth >= MAX_DEPTH:
            return ()
        self._depth += 1
        try:
            if isinstance(function, Bound):
                return self.call(function.function, arguments.after(function.ahead), where)
            if isinstance(function, Closure):
                inside = Frame(function.frame.file, dict(function.frame.variables), function.frame.owner)
                return self._run_function(function.node, arguments, inside)
            if isinstance(function, FunctionDefinition):
                return self._function(function, arguments, where)
            if isinstance(function, ClassDefinition | External):
                return self._construct(function, arguments, where)
            return ()
        finally:
            self._depth -= 1

    def _function(self, function: FunctionDefinition, arguments: Arguments, where: str) -> Values:
        name = function.node.name
        parameters = [parameter.arg for parameter in function.node.args.args]
        if name == "init_vllm_registered_model":
            return self._registered(arguments, where)
        if "layer_fn" in parameters:  # make_layers of both engines and its relatives
            layers = Items("list")
            for _ in range(2):
                makers = arguments.at(parameters.index("layer_fn"), "layer_fn")
                layers.append(
                    unite(*(self.call(maker, Arguments(), where) for maker in makers)) or (self._dynamic(where),)
                )
            return (self._instance(MODULE_LIST, Arguments(((layers,),)), where),)
        if is_static(function) and function.owner is not None and any(instances_in(arguments.at(0, ""))):
            arguments = Arguments(arguments.positional[1:], arguments.named)
        return self._run_function(function.node, arguments, Frame(function.file, owner=function.owner))

    def _run_function(self, node: ast.FunctionDef | ast.Lambda, arguments: Arguments, frame: Frame) -> Values:
        if self._running.count(node) > MAX_RECURSION or self._left <= 0:
            return ()
        self._left -= 1
        frame.variables.update(self._bind(node.args, arguments, frame))
        self._running.append(node)
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, frame)
            self.run(node.body, frame)
        finally:
            self._running.pop()
        return unite(*frame.returns)

    def _bind(self, signature: ast.arguments, arguments: Arguments, frame: Frame) -> Iterator[tuple[str, Values]]:
        ordered = [*signature.posonlyargs, *signature.args]
        defaults: dict[str, ast.expr | None] = dict(
            zip([parameter.arg for parameter in ordered[::-1]], signature.defaults[::-1], strict=False)
        )
        defaults |= {p.arg: d for p, d in zip(signature.kwonlyargs, signature.kw_defaults, strict=True)}
        for index, parameter in enumerate([*ordered, *signature.kwonlyargs]):
            name = parameter.arg
            if name in arguments.named:
                yield name, arguments.named[name]
            elif index < len(ordered) and index < len(arguments.positional):
                yield name, arguments.positional[index]
            else:
                yield name, self.evaluate(defaults.get(name), Frame(frame.file))
        if signature.vararg is not None:
            rest = Items("tuple")
            for values in arguments.positional[len(ordered) :]:
                rest.append(values)
            yield signature.vararg.arg, (rest,)

    def _registered(self, arguments: Arguments, where: str) -> Values:
        """The class that `architectures` names, else what the checkpoint names (vllm 0.32.0, models/utils.py)."""
        names = [
            name
            for value in arguments.named.get("architectures", ())
            for name in (value.every() if isinstance(value, Items) else ())
            if isinstance(name, str)
        ]
        found = [cls for name in names if (cls := vllm_architecture(self.files, name)) is not None]
        return tuple(self._instance(cls, Arguments(), where) for cls in found) or (self._dynamic(where),)

    def _construct(self, cls: ClassDefinition | External, arguments: Arguments, where: str) -> Values:
        module, _, name = cls.name.rpartition(":")
        factory = name.rpartition(".")
        if isinstance(cls, External) and factory[2] in FACTORIES:
            if factory[0].startswith("AutoModel"):
                return (self._dynamic(where),)
            cls, name = External(f"{module}:{factory[0]}"), factory[0]
        if name in SAME_ARGUMENT or cls.name in ("builtins:same", "builtins:any"):
            return mapping(name, arguments) if name in ("dict", "OrderedDict") else arguments.at(0, "")
        if cls.name == "builtins:fill":
            for instance in instances_in(arguments.at(0, "")):
                self._fill(instance, Arguments(arguments.positional[1:]), where)
            return ()
        if name == "partial":
            ahead = Arguments(arguments.positional[1:], arguments.named)
            return tuple(Bound(function, ahead) for function in arguments.at(0, ""))
        if module == "builtins" or (module.startswith("torch") and not module.startswith("torch.nn")):
            return ()
        return (self._instance(cls, arguments, where),) if self.classes.is_module(cls) else ()

    def _instance(self, cls: ClassDefinition | External, arguments: Arguments, where: str) -> Instance:
        return Instance(self, cls, arguments, where, maker=self._makers[-1] if self._makers else None)

    def part_of(self, container: Instance) -> Instance:
        """A slice of a container: its first item only, so that it shows as a part."""
        items = Items("list", container.pairs()[:1])
        return self._instance(container.cls, Arguments(((items,),)), container.where)

    def _dynamic(self, where: str) -> Instance:
        maker = self._makers[-1] if self._makers else None
        return Instance(self, External(DYNAMIC), Arguments(), where, maker=maker, dynamic=True)

    def _fill(self, container: Instance, arguments: Arguments, where: str) -> None:
        """What the constructors of ModuleList, ModuleDict and Sequential do with their arguments."""
        for index, values in enumerate(arguments.positional):
            for value in values:
                if isinstance(value, Items):
                    extend(container, (value,), where)
                elif isinstance(value, Instance) and value.is_container:
                    extend(container, (Items("list", value.pairs()),), where)
                else:
                    container.put(str(index), (value,), where)
