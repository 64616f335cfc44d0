"""Read classes and methods as source text, without importing them: what loop and residual analysis work on.

`class_source(cls)` starts from a live class, `class_source_at(root, module, name)` from a package folder; both give
the same `ClassSource`, whose names (bases, layer classes, norms) are looked up in the files next to it.
"""

from __future__ import annotations

import ast
import copy
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import AdaptationError

_DEPTH = 12
"""How many re-exports or base classes are followed before a look-up gives up."""


@dataclass(frozen=True, slots=True)
class MethodSource:
    """The text of one method and where it stands.

    Attributes:
        name: the method's name.
        owner: `module:QualName` of the class that defines it.
        text: its source with decorators, at column 0; what `source_digest` hashes.
        file: the file it stands in.
        line: the file's line number of the text's first line.
        tree: a changed syntax tree to read instead of the text; its nodes keep the line numbers of the text.
    """

    name: str
    owner: str
    text: str
    file: str
    line: int
    tree: ast.FunctionDef | None = field(default=None, compare=False, repr=False)

    def parse(self) -> ast.FunctionDef:
        """A fresh syntax tree of the text; line numbers count from 1 within the text.

        Raises:
            AdaptationError: EA420, the text is not one plain method.
        """
        if self.tree is not None:
            return copy.deepcopy(self.tree)
        try:
            body = ast.parse(self.text).body
        except SyntaxError as error:
            raise AdaptationError(self._unreadable(repr(error))) from error
        if len(body) != 1 or not isinstance(body[0], ast.FunctionDef):
            raise AdaptationError(self._unreadable(type(body[0]).__name__ if body else "nothing"))
        return body[0]

    def where(self, node: ast.AST) -> str:
        """`file:line` of a node of `parse()`."""
        return f"{self.file}:{self.line + getattr(node, 'lineno', 1) - 1}"

    def _unreadable(self, found: str) -> Diagnostic:
        return Diagnostic(
            "EA420",
            f"the source of {self.owner}.{self.name} cannot be read as one method",
            expected="one plain `def`",
            found=found,
            where=f"{self.file}:{self.line}",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One source file, parsed once.

    Attributes:
        name: dotted module name.
        file: its path.
        root: the folder that holds the top package.
        text: the source.
        tree: its syntax tree; never changed.
        names: top-level name -> class, function, assigned value, or the import that brings it.
    """

    name: str
    file: Path
    root: Path
    text: str
    tree: ast.Module = field(compare=False, repr=False)
    names: dict[str, ast.AST] = field(compare=False, repr=False)

    def lookup(self, name: str, depth: int = _DEPTH) -> ClassSource | FunctionSource | ValueSource | None:
        """What a top-level name stands for, through imports; None outside the package or when unknown."""
        head, _, rest = name.partition(".")
        node = self.names.get(head)
        if node is None or depth == 0:
            return None
        if isinstance(node, ast.ClassDef):
            return _nested(ClassSource(self, node, head), rest)
        if isinstance(node, ast.FunctionDef):
            return None if rest else FunctionSource(self, node)
        if isinstance(node, ast.ImportFrom):
            return self._imported(node, head, rest, depth)
        if isinstance(node, ast.Import):
            return self._module_member(node, head, rest, depth)
        return None if rest else ValueSource(self, node)

    def _imported(
        self, node: ast.ImportFrom, head: str, rest: str, depth: int
    ) -> ClassSource | FunctionSource | ValueSource | None:
        base = self.name.split(".")
        if node.level:
            is_package = self.file.name == "__init__.py"
            base = base[: len(base) - node.level + (1 if is_package else 0)]
            source = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
        else:
            source = node.module or ""
        original = next(alias.name for alias in node.names if (alias.asname or alias.name) == head)
        module = load_module(self.root, source)
        if module is not None and original in module.names:
            return module.lookup(f"{original}.{rest}" if rest else original, depth - 1)
        submodule = load_module(self.root, f"{source}.{original}")
        return submodule.lookup(rest, depth - 1) if submodule is not None and rest else None

    def _module_member(
        self, node: ast.Import, head: str, rest: str, depth: int
    ) -> ClassSource | FunctionSource | ValueSource | None:
        alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == head)
        parts = (alias.name if alias.asname else head).split(".") + (rest.split(".") if rest else [])
        for cut in range(len(parts) - 1, 0, -1):
            module = load_module(self.root, ".".join(parts[:cut]))
            if module is not None:
                return module.lookup(".".join(parts[cut:]), depth - 1)
        return None


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A top-level function and its module."""

    module: Module
    node: ast.FunctionDef

    def where(self, node: ast.AST) -> str:
        """`file:line` of one of its nodes."""
        return f"{self.module.file}:{getattr(node, 'lineno', self.node.lineno)}"


@dataclass(frozen=True, slots=True)
class ValueSource:
    """A top-level assigned value and its module."""

    module: Module
    node: ast.AST


@dataclass(frozen=True, slots=True)
class ClassSource:
    """A class as source: its definition and the module its names are looked up in."""

    module: Module
    node: ast.ClassDef
    qualname: str

    @property
    def name(self) -> str:
        """`module:QualName`."""
        return f"{self.module.name}:{self.qualname}"

    @property
    def where(self) -> str:
        """`file:line` of the class statement."""
        return f"{self.module.file}:{self.node.lineno}"

    def lineage(self, depth: int = _DEPTH) -> Iterator[ClassSource]:
        """The class and its readable bases, in an order that suits plain single and mix-in inheritance."""
        yield self
        if depth == 0:
            return
        for base in self.node.bases:
            found = self.module.lookup(dotted(base) or "")
            if isinstance(found, ClassSource):
                yield from found.lineage(depth - 1)

    def definition(self, name: str) -> tuple[ClassSource, ast.FunctionDef] | None:
        """The method `name` and the class that defines it."""
        for owner in self.lineage():
            for statement in owner.node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == name:
                    return owner, statement
        return None

    def method(self, name: str) -> MethodSource | None:
        """The source of the method `name`, also when inherited."""
        found = self.definition(name)
        if found is None:
            return None
        owner, node = found
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        lines = owner.module.text.splitlines(keepends=True)[first - 1 : node.end_lineno]
        return MethodSource(name, owner.name, textwrap.dedent("".join(lines)), str(owner.module.file), first)


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of names and attributes, else None; subscripts such as `Generic[T]` are looked through."""
    if isinstance(node, ast.Subscript):
        return dotted(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def class_source(cls: type) -> ClassSource:
    """The source of a live class.

    Raises:
        AdaptationError: EA420, its file cannot be found or does not define it.
    """
    module_name, parts = cls.__module__, cls.__module__.split(".")
    file = getattr(sys.modules.get(module_name), "__file__", None)
    found = None
    if file is not None:
        path = Path(file)
        steps = len(parts) + (1 if path.name == "__init__.py" else 0)
        root = path.parents[steps - 1] if steps <= len(path.parents) else path.parent
        module = _load_file(str(path), module_name, str(root))
        if module is not None:
            found = module.lookup(cls.__qualname__)
    if not isinstance(found, ClassSource):
        raise AdaptationError(
            Diagnostic(
                "EA420",
                f"the source of {module_name}:{cls.__qualname__} cannot be read",
                expected="a class statement in its module's file",
                found=str(file),
                next_step="adapt a class that is defined in a source file",
            )
        )
    return found


def class_source_at(root: Path, module: str, name: str) -> ClassSource | None:
    """The class `name` of `module`, read from the package folder's parent `root`; nothing is imported."""
    loaded = load_module(root, module)
    found = None if loaded is None else loaded.lookup(name)
    return found if isinstance(found, ClassSource) else None


def load_module(root: Path, name: str) -> Module | None:
    """The module `name` below `root`, or None when there is no such source file."""
    if not name:
        return None
    base = root.joinpath(*name.split("."))
    for file in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if file.is_file():
            return _load_file(str(file), name, str(root))
    return None


@lru_cache(maxsize=512)
def _load_file(file: str, name: str, root: str) -> Module | None:
    try:
        text = Path(file).read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return Module(name, Path(file), Path(root), text, tree, dict(_top_level(tree.body)))


def _top_level(body: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            yield statement.name, statement
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                yield alias.asname or alias.name, statement
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name.split(".")[0], statement
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value
        elif isinstance(statement, ast.If):
            yield from _top_level(statement.orelse)
            yield from _top_level(statement.body)
        elif isinstance(statement, ast.Try):
            for handler in statement.handlers:
                yield from _top_level(handler.body)
            yield from _top_level(statement.body)


def _nested(found: ClassSource, rest: str) -> ClassSource | None:
    for name in rest.split(".") if rest else []:
        inner = [s for s in found.node.body if isinstance(s, ast.ClassDef) and s.name == name]
        if not inner:
            return None
        found = ClassSource(found.module, inner[0], f"{found.qualname}.{name}")
    return found
