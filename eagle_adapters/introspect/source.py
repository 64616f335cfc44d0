"""The source agent: reads a target from its class definitions, without importing the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from eagle_adapters.diagnostics import Diagnostic
from eagle_adapters.errors import IntrospectionError
from eagle_adapters.introspect.anatomy import Agent, Anatomy
from eagle_adapters.introspect.calls import Interpreter
from eagle_adapters.introspect.classes import Classes
from eagle_adapters.introspect.files import ClassDefinition, Files, SourceFile
from eagle_adapters.introspect.instances import Instance
from eagle_adapters.introspect.survey import survey
from eagle_adapters.introspect.values import Arguments


def inspect_class(
    name: str, *, roots: Sequence[str | Path] | None = None, decoder: str | None = None, inner: str | None = None
) -> Anatomy:
    """The anatomy of a target class, read from source; nothing of it is imported or run.

    Args:
        name: `module:Class`, or `path/to/file.py:Class`.
        roots: folders to find top-level packages in, before `sys.path`.
        decoder: path of the text decoder (or of its layers, or of a module around it) when it must be chosen.
        inner: `module:Class` of the decoder (or of the causal LM around it) where the checkpoint would choose it.

    Returns:
        The anatomy. N and hidden size are unknown to source. When the checkpoint chooses the decoder's class and no
        `inner` is given, the chain ends in a dynamic link and `layers` is None.

    Raises:
        IntrospectionError: EA201 two equally good decoders, EA202 none found, EA203 `decoder` names none, EA204 no
            source of the class.
    """
    files = Files([Path(root) for root in roots or ()])
    cls = _class(files, name)
    interpreter = Interpreter(Classes(files), _class(files, inner) if inner is not None else None)
    target = Instance(interpreter, cls, Arguments(), cls.file.where(cls.node))
    return survey(target, Agent.SOURCE, decoder)


def _class(files: Files, name: str) -> ClassDefinition:
    module, _, qualname = name.rpartition(":")
    file: SourceFile | None = None
    if module.endswith(".py"):
        try:
            file = files.add(Path(module))
        except (OSError, SyntaxError) as error:
            _missing(name, f"{module}: {error}")
    elif module:
        file = files.file(module)
    if file is None:
        _missing(name, f"no source of module {module!r}" if module else "no module in the name")
    found = files.look_up(file, qualname)
    if not isinstance(found, ClassDefinition) and file.module == "transformers":
        found = files.lazy(qualname)
    if not isinstance(found, ClassDefinition):
        _missing(name, f"no class {qualname!r} in {file.path}")
    return found


def _missing(name: str, found: str) -> NoReturn:
    raise IntrospectionError(
        Diagnostic(
            "EA204",
            f"the source of {name!r} cannot be read",
            expected="module:Class of an installed package, or file.py:Class",
            found=found,
            next_step="check the spelling, install the package, or name its folder with roots=[...]",
        )
    )
