"""What may stand in `registry.yaml` and in `adapters/<family>/adapter.yaml`. Unknown fields are errors.

Statuses of a family in an engine, the only three words there are:

* `verified`: the captured states were compared with an independent reference in this engine; the row names the evidence
  file that `eagle-adapters verify` wrote, and claims the release in that file and no other.
* `unproven`: nothing is claimed. `eagle-adapters inspect` says what the installed engine has and what would be added.
* `refused`: it is known not to work; the row says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from eagle_adapters.boundaries import Convention, to_boundaries
from eagle_adapters.contract import Engine

Kind = Literal["registry", "adapter"]

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
"""A family: lower case, as its folder under `adapters/`."""
Architecture = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9_]*$")]
"""A class name as it stands in a config's `architectures`."""
Draft = Annotated[str, StringConstraints(pattern=r"^[\w.-]+/[\w.-]+$")]
"""A draft checkpoint's name on the hub, `owner/name`."""
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Url = Annotated[str, StringConstraints(pattern=r"^https://\S+$")]


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"{text!r} is not a version specifier such as '==0.32.0'") from error
    return text


def _release(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is not a version such as '0.32.0'") from error
    return text


EngineName = Annotated[Engine, Field(strict=False)]
Specifier = Annotated[str, AfterValidator(_specifier)]
Release = Annotated[str, AfterValidator(_release)]


class Row(BaseModel):
    """A mapping in a data file: read strictly, never changed."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Verified(Row):
    """Proven in this engine; `versions` claims the release in the evidence file and no other."""

    status: Literal["verified"]
    versions: Annotated[Specifier, StringConstraints(pattern=r"^==[0-9][^,*]*$")]
    evidence: Annotated[str, StringConstraints(pattern=r"^adapters/[a-z0-9_]+/evidence/[\w.+-]+\.json$")]


class Unproven(Row):
    """Nothing is claimed."""

    status: Literal["unproven"]


class Refused(Row):
    """Known not to work, with the reason; `versions` says where, all when absent."""

    status: Literal["refused"]
    reason: Text
    versions: Specifier | None = None


EngineRow = Annotated[Verified | Unproven | Refused, Field(discriminator="status")]


class Family(Row):
    """Architectures that share one decoder shape: one folder under `adapters/`, one status for each engine."""

    architectures: Annotated[tuple[Architecture, ...], Field(min_length=1)]
    engines: Annotated[Mapping[EngineName, EngineRow], Field(min_length=1)]


class DraftRow(Row):
    """A published draft whose layer ids are known, so that its convention need not be guessed."""

    num_layers: Annotated[int, Field(gt=0)]
    ids: Annotated[tuple[int, ...], Field(min_length=1)]
    convention: Annotated[Convention, Field(strict=False)]
    source: Url
    family: Name | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _ids_fit(self) -> DraftRow:
        to_boundaries(self.ids, self.convention, self.num_layers)
        return self


class Index(Row):
    """`registry.yaml`: what is supported where, and which drafts are known."""

    version: Literal[1]
    families: Mapping[Name, Family]
    drafts: Mapping[Draft, DraftRow] = Field(default_factory=dict)


class EngineFacts(Row):
    """How one engine's class is built, read from the named releases.

    `chain` leads from the target to the decoder, one attribute a step; `stream` says how the residual stream leaves a
    decoder layer: `single` as the layer's result, `pair` as (hidden, residual) whose sum it is, `callback` only through
    a capture function that the layer is handed, since the engine keeps the open residual elsewhere.
    """

    architecture: Architecture
    module: Text
    chain: tuple[Text, ...]
    stream: Literal["single", "pair", "callback"]
    releases: Annotated[tuple[Release, ...], Field(min_length=1)]


class Quirk(Row):
    """Something an engine does that has to be worked around, and until when."""

    engine: EngineName
    versions: Specifier
    what: Text
    why: Text
    upstream: Text
    remove_when: Text


class Adapter(Row):
    """`adapters/<family>/adapter.yaml`: what cannot be inferred about a family, or was proven."""

    family: Name
    title: Text
    sources: tuple[Url, ...] = ()
    engines: Annotated[Mapping[EngineName, EngineFacts], Field(min_length=1)]
    quirks: tuple[Quirk, ...] = ()


MODELS: dict[Kind, type[Row]] = {"registry": Index, "adapter": Adapter}


def json_schema(kind: Kind) -> dict[str, Any]:
    """The JSON schema of `registry.yaml` or `adapter.yaml`, for editors (`# yaml-language-server: $schema=FILE`)."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **MODELS[kind].model_json_schema()}
