"""Find and index Python source files without importing them: module -> file -> names -> definitions."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path

OPAQUE = frozenset({"torch", "numpy", "triton"}) | sys.stdlib_module_names
"""Packages whose classes are named but not read."""

_UNSEARCHED = frozenset({"torch", "transformers"})
"""Packages full of `import *`, through which no name is searched for, but for `torch.nn`."""


@dataclass(eq=False, slots=True)
class SourceFile:
    """One parsed module.

    Attributes:
        module: its dotted name.
        path: the file.
        shown: the path as messages show it, from the top-level package on.
        tree: its syntax tree.
        names: what each module-level name is bound to, first binding first.
        stars: modules that are imported with `*`.
    """

    module: str
    path: Path
    shown: str
    tree: ast.Module
    names: dict[str, list[ast.stmt]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)

    @property
    def package(self) -> str:
        """What relative imports start from."""
        return self.module if self.path.name == "__init__.py" else self.module.rpartition(".")[0]

    def where(self, node: ast.AST) -> str:
        """`file:line` of a piece of the tree."""
        return f"{self.shown}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True, slots=True)
class ClassDefinition:
    """A class statement in a file; equal to itself only."""

    file: SourceFile
    node: ast.ClassDef
    qualname: str

    @property
    def name(self) -> str:
        """`module:QualName`."""
        return f"{self.file.module}:{self.qualname}"


@dataclass(frozen=True, slots=True)
class FunctionDefinition:
    """A function or method statement in a file, and the class it belongs to."""

    file: SourceFile
    node: ast.FunctionDef
    owner: ClassDefinition | None = None

    @property
    def name(self) -> str:
        """`module:QualName`."""
        return f"{self.owner.name}.{self.node.name}" if self.owner else f"{self.file.module}:{self.node.name}"


@dataclass(frozen=True, slots=True)
class External:
    """A name that is not read: `torch.nn.modules.linear:Linear`, or whatever could not be located."""

    name: str


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """A module used as a value."""

    module: str


@dataclass(frozen=True, slots=True)
class Expression:
    """A module-level assignment, to be evaluated in its file."""

    file: SourceFile
    node: ast.expr


Definition = ClassDefinition | FunctionDefinition | External | ModuleReference | Expression


class Files:
    """Source files by module name; located through `roots`, then `sys.path`, never imported."""

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        self._roots = [str(root) for root in roots]
        self._modules: dict[str, SourceFile | None] = {}
        self._tops: dict[str, Path | None] = {}

    def add(self, path: Path) -> SourceFile:
        """Index one file by its path; its module name is the one its packages give it.

        Raises:
            OSError: it cannot be read.
            SyntaxError: it is not Python.
        """
        path = path.resolve()
        parts = [path.stem] if path.name != "__init__.py" else []
        folder = path.parent
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        self._roots.insert(0, str(folder))
        module = ".".join(parts) or path.parent.name
        file = _parse(str(path), module, path.stat().st_mtime_ns)
        self._modules[module] = file
        return file

    def file(self, module: str) -> SourceFile | None:
        """The parsed module, or None when there is no source for it."""
        if module not in self._modules:
            path = self._locate(module)
            try:
                self._modules[module] = None if path is None else _parse(str(path), module, path.stat().st_mtime_ns)
            except (SyntaxError, UnicodeDecodeError, OSError):
                self._modules[module] = None
        return self._modules[module]

    def exists(self, module: str) -> bool:
        """Whether there is a source file for a module."""
        return self._modules.get(module) is not None or self._locate(module) is not None

    def place(self, module: str) -> Path | None:
        """The file of a module, or the folder of a package (which need not have an `__init__.py`), or None."""
        top, *rest = module.split(".")
        if top not in self._tops:
            self._tops[top] = self._locate_top(top)
        place = self._tops[top]
        for name in rest:
            if place is None or not place.is_dir():
                return None
            place = place / name if (place / name).is_dir() else place / f"{name}.py"
        return place if place is not None and place.exists() else None

    def _locate(self, module: str) -> Path | None:
        place = self.place(module)
        if place is not None and place.is_dir():
            place = place / "__init__.py"
        return place if place is not None and place.is_file() else None

    def _locate_top(self, top: str) -> Path | None:
        spec = PathFinder.find_spec(top, [*self._roots, *sys.path])
        if spec is None:  # editable installs have finders of their own
            try:
                spec = importlib.util.find_spec(top)
            except (ImportError, ValueError):
                return None
        if spec is None:
            return None
        if spec.submodule_search_locations:
            return Path(next(iter(spec.submodule_search_locations)))
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None

    def look_up(
        self, file: SourceFile, name: str, trail: frozenset[tuple[str, str]] = frozenset()
    ) -> Definition | None:
        """What a module-level name means, imports followed to the definition; None when it is not there."""
        if (file.module, name) in trail:
            return None
        trail |= {(file.module, name)}
        opaque = file.module.partition(".")[0] in OPAQUE
        fallback: Definition | None = None
        for statement in file.names.get(name, ()):
            found = self._bound(file, statement, name, trail)
            if isinstance(found, External | Expression):
                fallback = fallback or found
            elif found is not None:
                return External(found.name) if opaque and not isinstance(found, ModuleReference) else found
        if fallback is not None:
            return fallback
        for module in file.stars if _searched(file.module) else ():
            star = self.file(module)
            if star is not None and (found := self.look_up(star, name, trail)) is not None:
                return found
        return None

    def lazy(self, name: str) -> Definition | None:
        """A model class that `transformers` exports under its own name (5.19.0, models/*/modeling_*.py)."""
        folder = self.place("transformers.models")
        pattern = re.compile(rf"^class {re.escape(name)}\b", re.MULTILINE)
        for path in sorted(folder.glob("*/modeling_*.py")) if folder is not None else ():
            if pattern.search(path.read_text("utf-8")):
                return self.member(f"transformers.models.{path.parent.name}.{path.stem}", name)
        return None

    def _bound(
        self, file: SourceFile, statement: ast.stmt, name: str, trail: frozenset[tuple[str, str]]
    ) -> Definition | None:
        if isinstance(statement, ast.ClassDef):
            return ClassDefinition(file, statement, name)
        if isinstance(statement, ast.FunctionDef):
            return FunctionDefinition(file, statement)
        if isinstance(statement, ast.Import | ast.ImportFrom):
            return self.imported(file, statement, name, trail)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            return Expression(file, statement.value)
        return None

    def imported(
        self,
        file: SourceFile,
        statement: ast.Import | ast.ImportFrom,
        name: str,
        trail: frozenset[tuple[str, str]] = frozenset(),
    ) -> Definition | None:
        """What an import statement binds `name` to."""
        for alias in statement.names:
            if (alias.asname or alias.name.partition(".")[0]) != name and alias.asname != name:
                continue
            if isinstance(statement, ast.Import):
                return ModuleReference(alias.name if alias.asname else name)
            return self.member(absolute(file, statement), alias.name, trail)
        return None

    def member(self, module: str, name: str, trail: frozenset[tuple[str, str]] = frozenset()) -> Definition:
        """What `module.name` is: a definition, a submodule, or an external name."""
        if module.partition(".")[0] in OPAQUE and self.exists(f"{module}.{name}"):
            return ModuleReference(f"{module}.{name}")
        file = self.file(module)
        found = self.look_up(file, name, trail) if file is not None else None
        if found is not None:
            return found
        if self.exists(f"{module}.{name}"):
            return ModuleReference(f"{module}.{name}")
        return External(f"{module}:{name}")


def absolute(file: SourceFile, statement: ast.ImportFrom) -> str:
    """The absolute name of the module that an import statement names."""
    if not statement.level:
        return statement.module or ""
    base = file.package.split(".")
    base = base[: len(base) - (statement.level - 1)]
    return ".".join([*base, *([statement.module] if statement.module else [])])


def _searched(module: str) -> bool:
    return module.partition(".")[0] not in _UNSEARCHED or module.startswith("torch.nn")


@lru_cache(maxsize=512)
def _parse(path: str, module: str, mtime: int) -> SourceFile:
    text = Path(path).read_text("utf-8")
    tree = ast.parse(text, path)
    depth = module.count(".") + (Path(path).name == "__init__.py")
    shown = "/".join(Path(path).parts[-(depth + 1) :])
    file = SourceFile(module, Path(path), shown, tree)
    for statement in _module_level(tree.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            file.names.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                file.names.setdefault(alias.asname or alias.name.partition(".")[0], []).append(statement)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.name == "*":
                    file.stars.append(absolute(file, statement))
                else:
                    file.names.setdefault(alias.asname or alias.name, []).append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    file.names.setdefault(target.id, []).append(statement)
    return file


def _module_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those under `if`, `try` and `with`."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statement, ast.If | ast.Try | ast.With):
                yield from _module_level(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _module_level(handler.body)
