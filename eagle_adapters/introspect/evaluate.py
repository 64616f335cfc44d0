"""Follow what constructors do, without running them: every value an expression may have.

Both branches of an `if` are followed, a branch that raises is dropped, a loop body is followed once. Everything but
modules, classes, functions, strings and literal containers has no value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from eagle_adapters.introspect.classes import Classes, is_property, is_static
from eagle_adapters.introspect.files import (
    ClassDefinition,
    Definition,
    Expression,
    External,
    FunctionDefinition,
    ModuleReference,
)
from eagle_adapters.introspect.instances import DYNAMIC, Instance
from eagle_adapters.introspect.statements import Statements, extend, instances_in, items_in
from eagle_adapters.introspect.values import Arguments, Bound, Closure, Frame, Imported, Items, Values, unite

MAX_DEPTH = 14
"""How many calls deep constructors are followed."""

_SAME_MODULE = frozenset({"to", "eval", "train", "half", "cuda", "cpu", "float", "bfloat16", "requires_grad_", "apply"})
"""Methods that give the module they are called on."""

_SAME_ARGUMENT = frozenset({"compile", "deepcopy", "list", "tuple", "dict", "OrderedDict", "reversed", "iter", "cast"})
"""Functions that give their argument, or a copy of it."""

_FACTORIES = frozenset({"from_config", "from_pretrained", "_from_config"})
"""Class methods that make an instance of the class; on an `AutoModel`, of the class the checkpoint chooses."""

_MAKES = re.compile(r"(build|make|create|init|construct|load|wrap|model|layer|module|block|class|cls|decoder|llm)")
"""Names of functions that may give a module; other functions of other files are not followed."""

_ADDING = frozenset({"add_module", "register_module", "append", "insert", "extend", "update"})

_KNOWN = _SAME_ARGUMENT | _SAME_MODULE | {"partial", "getattr", "setattr", "super"}

_MODULE_LIST = External("torch.nn.modules.container:ModuleList")

_VLLM_REGISTRY = "vllm.model_executor.models"


class Interpreter(Statements):
    """Evaluates expressions and calls; fills the slots of instances.

    Args:
        classes: the class hierarchies to look in.
        inner: the class to use where the checkpoint would choose the decoder's.
    """

    def __init__(self, classes: Classes, inner: ClassDefinition | None = None) -> None:
        self.classes = classes
        self.files = classes.files
        self.inner = inner
        self._makers: list[Instance] = []
        self._depth = 0
        self._constants: dict[int, Values] = {}

    def construct(self, instance: Instance) -> None:
        """Fill the slots of an instance by following its constructor."""
        function = self.classes.method(instance.cls, "__init__")
        self._makers.append(instance)
        depth, self._depth = self._depth, 0
        try:
            if function is not None:
                self.call(Bound(function, Arguments(((instance,),))), instance.arguments, instance.where)
            elif instance.is_container:
                self._fill(instance, instance.arguments, instance.where)
        finally:
            self._depth = depth
            self._makers.pop()

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
                return self._call(node, frame)
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
                return (Items("list", [("0", self.evaluate(element, self._inside(generators, frame)))]),)
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
        return next((value for value in self.evaluate(node, frame) if isinstance(value, str)), "0")

    def _subscript(self, value: ast.expr, index: ast.expr, frame: Frame) -> Values:
        values = self.evaluate(value, frame)
        if isinstance(index, ast.Slice):
            return values
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
            return (Bound(External("builtins:same"), Arguments(((owner,),))),) if name in _SAME_MODULE else ()
        if isinstance(owner, ModuleReference):
            return self.defined(self.files.member(owner.module, name))
        if isinstance(owner, ClassDefinition):
            if name in _FACTORIES:
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

    # Calls

    def _call(self, node: ast.Call, frame: Frame) -> Values:
        if _is_idle(node.func, frame):
            return ()
        if isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
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
            made: list[Values] = []
            for maker in arguments.at(parameters.index("layer_fn"), "layer_fn"):
                made.append(self.call(maker, Arguments(), where))
            layers = Items("list", [("0", unite(*made) or (self._dynamic(where),))])
            return (self._instance(_MODULE_LIST, Arguments(((layers,),)), where),)
        if is_static(function) and function.owner is not None and instances_in(arguments.at(0, "")):
            arguments = Arguments(arguments.positional[1:], arguments.named)
        return self._run_function(function.node, arguments, Frame(function.file, owner=function.owner))

    def _run_function(self, node: ast.FunctionDef | ast.Lambda, arguments: Arguments, frame: Frame) -> Values:
        frame.variables.update(self._bind(node.args, arguments, frame))
        if isinstance(node, ast.Lambda):
            return self.evaluate(node.body, frame)
        self.run(node.body, frame)
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
        """vllm 0.32.0, models/utils.py: the class named in `architectures`, else the one the checkpoint names."""
        names = [
            name
            for value in arguments.named.get("architectures", ())
            for name in (value.every() if isinstance(value, Items) else ())
            if isinstance(name, str)
        ]
        found = [cls for name in names if (cls := self.architecture(name)) is not None]
        return tuple(self._instance(cls, Arguments(), where) for cls in found) or (self._dynamic(where),)

    def architecture(self, name: str) -> ClassDefinition | None:
        """The class that vLLM's registry has for an architecture (vllm 0.32.0, models/registry.py)."""
        file = self.files.file(f"{_VLLM_REGISTRY}.registry")
        for statement in file.tree.body if file is not None else ():
            value = getattr(statement, "value", None)
            for key, entry in zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value == name and isinstance(entry, ast.Tuple):
                    module, qualname = (getattr(part, "value", "") for part in entry.elts[:2])
                    found = self.files.member(f"{_VLLM_REGISTRY}.{module}", qualname)
                    return found if isinstance(found, ClassDefinition) else None
        return None

    def _construct(self, cls: ClassDefinition | External, arguments: Arguments, where: str) -> Values:
        module, _, name = cls.name.rpartition(":")
        factory = name.rpartition(".")
        if isinstance(cls, External) and factory[2] in _FACTORIES:
            if factory[0].startswith("AutoModel"):
                return (self._dynamic(where),)
            cls, name = External(f"{module}:{factory[0]}"), factory[0]
        if name in _SAME_ARGUMENT or cls.name in ("builtins:same", "builtins:any"):
            return _mapping(name, arguments) if name in ("dict", "OrderedDict") else arguments.at(0, "")
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

    def _dynamic(self, where: str) -> Instance:
        maker = self._makers[-1] if self._makers else None
        return Instance(self, External(DYNAMIC), Arguments(), where, maker=maker, dynamic=True)

    def _fill(self, container: Instance, arguments: Arguments, where: str) -> None:
        """What the constructors of ModuleList, ModuleDict and Sequential do with their arguments."""
        for index, values in enumerate(arguments.positional):
            for value in values:
                if isinstance(value, Items | Instance) and (isinstance(value, Items) or value.is_container):
                    for name, held in value.pairs if isinstance(value, Items) else value.pairs():
                        container.put(name, held, where)
                else:
                    container.put(str(index), (value,), where)


def _mapping(kind: str, arguments: Arguments) -> Values:
    """What `dict` and `OrderedDict` give for a mapping, for pairs, and for keywords."""
    made = Items(kind)
    for value in arguments.at(0, ""):
        for name, item in value.pairs if isinstance(value, Items) else ():
            pair = next((held for held in item if isinstance(held, Items) and len(held.pairs) == 2), None)
            if pair is None or value.kind in ("dict", "OrderedDict"):
                made.pairs.append((name, item))
            else:
                key = next((held for held in pair.pairs[0][1] if isinstance(held, str)), name)
                made.pairs.append((key, pair.pairs[1][1]))
    made.pairs += arguments.named.items()
    return (made,)


def _is_idle(function: ast.expr, frame: Frame) -> bool:
    """Whether a called name is a function of another file that gives no module, so that its file need not be read."""
    base = function.value if isinstance(function, ast.Attribute) else function
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if not isinstance(base, ast.Name) or not name[:1].islower() or name in _FACTORIES or name in _KNOWN:
        return False
    known = frame.variables.get(base.id)
    if known is not None and not any(isinstance(value, Imported) for value in known):
        return False
    if base is not function and base.id[:1].isupper():
        return False
    here = any(isinstance(bound, ast.FunctionDef) for bound in frame.file.names.get(name, ()))
    return not here and not _MAKES.search(name)
