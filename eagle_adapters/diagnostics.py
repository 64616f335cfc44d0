"""What the library has to say, as data: a `Diagnostic` has a stable code, a cause and a next step.

Nothing here prints. The command line renders diagnostics, exceptions carry them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

CODES: dict[str, str] = {
    # EA0xx: boundaries
    "EA001": "A layer id or boundary is out of range.",
    "EA002": "A layer id or boundary is given twice.",
    "EA003": "A boundary cannot be written in the asked convention.",
    "EA004": "The target has too few layers for the default boundaries.",
    "EA005": "The convention of the layer ids cannot be decided.",
    # EA1xx: data files, registry
    "EA101": "The data files (registry.yaml, adapters/) were not found.",
    "EA102": "There is no tiny config for this family.",
    "EA103": "The config names a model that transformers cannot build.",
    "EA104": "A picture cannot be read.",
    "EA105": "The model takes no picture, or in an unknown layout.",
    "EA106": "The target is no checkpoint.",
    "EA111": "A data file cannot be read.",
    "EA112": "A key is given twice in a data file.",
    "EA113": "YAML reads a value as something else than it looks like.",
    "EA114": "A field of a data file is missing, unknown or of the wrong kind.",
    "EA115": "The evidence of a status is missing or does not agree.",
    "EA116": "Two data files do not agree.",
    "EA117": "The registry has no family or architecture of this name.",
    # EA2xx: introspection
    "EA201": "Two equally good answers for the decoder.",
    "EA202": "No decoder was found.",
    "EA203": "The chosen decoder does not exist or has no layers.",
    "EA204": "The source of a class cannot be read.",
    "EA205": "The engine is not installed.",
    "EA206": "The target is not known to the engine.",
    # EA3xx: contract
    "EA301": "A hook is missing.",
    "EA302": "A hook has the wrong signature.",
    "EA303": "A hook has the wrong kind.",
    "EA304": "A hook name is dead: the engine no longer calls it.",
    "EA305": "An attribute or config field that the engine reads is missing.",
    "EA306": "The engine or its version has no contract here.",
    "EA307": "A hook is there but silently does nothing.",
    # EA4xx: plan, codegen, apply
    "EA401": "The plan does not fit the class as it is now.",
    "EA402": "The class is already adapted in another way.",
    "EA403": "The target cannot be adapted.",
    "EA404": "The target is not adapted.",
    "EA405": "Generated code does not compile.",
    "EA406": "A class is adapted by its source, and not verified in this engine version.",
    # EA42x-EA44x: codegen
    "EA420": "The source of a class or method cannot be read.",
    "EA421": "A forward has no loop over its layers.",
    "EA422": "The loop over the layers has a shape that cannot be rewritten.",
    "EA423": "The call of the layer is not understood.",
    "EA424": "The layers run more than once per forward.",
    "EA425": "The residual stream is not one tensor, or its form cannot be decided.",
    "EA426": "The forward captures states itself.",
    "EA427": "The forward returns more than the hidden state.",
    "EA428": "The stream is sharded over ranks inside the loop.",
    "EA429": "The stream is changed between two layers.",
    # EA50x: transformers backend
    "EA501": "A boundary was not captured.",
    "EA502": "A capture of this model is open already.",
    "EA503": "The decoder layers do not carry one residual stream.",
    # EA52x: vLLM backend
    "EA520": "The layer ids of the draft are stated twice, and differently.",
    "EA521": "A target class of vLLM cannot be adapted.",
    "EA522": "A wrapper does not hand on what its language model returns.",
    "EA523": "The states between the layers may be partial sums.",
    "EA524": "The states are scaled in float16.",
    "EA525": "The model is compiled already.",
    "EA526": "A mode of vLLM in which captured states are not proven.",
    "EA527": "The layer ids are not in ascending order.",
    "EA528": "The draft's fc does not fit the number of boundaries.",
    "EA529": "vLLM ignores a switch of the draft.",
    "EA530": "The draft needs a head of its own.",
    "EA531": "A boundary is out of the reach of a class's own capture.",
    "EA532": "The states between the layers may be one rank's share of the rows.",
    "EA533": "The draft needs an embedding of its own.",
    # EA54x: SGLang backend
    "EA540": "A target class of SGLang cannot be adapted.",
    "EA541": "The layer ids of the draft are stated twice, and differently.",
    "EA542": "A boundary is out of the reach of the target's own capture.",
    "EA543": "A parallel mode in which captured states are not proven.",
    "EA544": "The layer ids are not in ascending order.",
    "EA545": "This release of SGLang lacks a place where the plug-in stands.",
    "EA546": "A forward cannot be made to hand states to the logits processor.",
    # EA6xx: verify
    "EA601": "A boundary was asked for and is missing.",
    "EA602": "A boundary holds the states of another one.",
    "EA603": "The captured states are out of order.",
    "EA604": "A captured state has the final norm applied.",
    "EA605": "A captured state lacks the residual.",
    "EA606": "Two boundaries hold the same buffer.",
    "EA607": "A captured state is not finite.",
    "EA608": "A captured state does not match the reference.",
    "EA609": "The logits rebuilt from the last boundary are not the target's.",
    "EA610": "There is no reference to verify against.",
    "EA611": "Two boundaries of the reference are too much alike to tell apart.",
    "EA612": "The engine did not serve the target.",
    "EA613": "The engine's runner has no way to give a picture.",
    "EA614": "The engine is not installed.",
    "EA615": "The engine's kernels cannot be loaded here.",
    "EA616": "The engine ran with kernels that are not its own.",
    # EA7xx: drafts
    "EA700": "A file of a checkpoint cannot be read.",
    "EA701": "A weight file is malformed.",
    "EA702": "The checkpoint is not an EAGLE-3 draft.",
    "EA703": "A field of a config is missing or has an impossible value.",
    "EA704": "A checkpoint cannot be fetched from the hub.",
    "EA705": "A draft cannot be converted.",
    "EA706": "The weights of a draft are not at hand.",
    "EA710": "Two places state different layer ids.",
    "EA711": "A layer id is out of range.",
    "EA712": "A layer id is given twice.",
    "EA713": "The meaning of the layer ids is undecided.",
    "EA714": "The draft names no layer ids.",
    "EA715": "The layer ids are not ascending.",
    "EA716": "The engine would capture other boundaries than the draft was trained on.",
    "EA717": "The target cannot capture a boundary in this engine.",
    "EA720": "Statements of the number of captured states disagree.",
    "EA721": "The engine would build the fusion layer with another width.",
    "EA722": "The fusion layer and the use of captured states disagree.",
    "EA723": "The draft was made for another hidden size.",
    "EA724": "A tensor's shape disagrees with the config.",
    "EA725": "The number of layers disagrees with the tensors.",
    "EA730": "The vocabulary map points outside the vocabulary.",
    "EA731": "The vocabulary map is not strictly increasing.",
    "EA732": "The two vocabulary maps disagree.",
    "EA733": "The vocabulary map is missing.",
    "EA734": "The vocabulary map holds token ids instead of offsets.",
    "EA735": "The vocabulary map has the wrong size or kind.",
    "EA736": "The vocabularies of draft and target differ.",
    "EA737": "The head does not fit the draft vocabulary.",
    "EA738": "Multimodal token ids exceed the draft's embedding.",
    "EA740": "A tensor is missing.",
    "EA741": "A tensor is unknown.",
    "EA742": "A tensor is there twice.",
    "EA743": "A tensor holds one value throughout.",
    "EA744": "A tensor looks as if it was never trained.",
    "EA745": "A tensor holds values that are not finite.",
    "EA746": "The draft's embedding or head is unlike the target's.",
    "EA750": "The engine ignores a field of the draft.",
    "EA751": "A norm switch and the norm weights disagree.",
    "EA752": "The engine does not know the draft's class.",
    "EA753": "The engine cannot load the draft as it is.",
    "EA754": "The engine replaces or randomises the draft's embedding or head.",
    "EA760": "The rotary positions of draft and target differ.",
    "EA761": "The draft allows shorter contexts than the target.",
    "EA762": "Draft and target treat multimodal positions differently.",
    "EA770": "The target or the draft is quantised.",
    "EA771": "The target's states are rotated.",
    "EA772": "The target needs an adapter, or cannot be adapted.",
    "EA773": "It is not known whether the target has the interface.",
    "EA774": "The target's config has no language model in it.",
    "EA775": "The draft names another target.",
    # EA8xx: drafting, acceptance, calibration
    "EA801": "A draft has a part that the reference drafter cannot compute.",
    "EA802": "The weights of a draft do not fit its config.",
    "EA803": "Draft and target do not fit together.",
    "EA804": "The model cannot take back drafted tokens.",
    "EA805": "A number or a shape of drafting is out of range.",
    "EA806": "There is too little text to measure on.",
    "EA807": "The prompts cannot be read.",
    # EA84x: served acceptance
    "EA840": "Acceptance metrics cannot be read.",
    "EA841": "Acceptance figures contradict themselves.",
    # EA9xx: use and internal
    "EA901": "The command or call was used wrongly.",
    "EA902": "A known fault of an installed engine.",
    "EA903": "An engine will not load the plug-in.",
    "EA999": "Internal error: please report it.",
}
"""Every code with its title. Codes are API, message texts are not; `docs/errors.md` is generated from this table."""


class Severity(StrEnum):
    """How bad a finding is: an `ERROR` stops, a `WARNING` will hurt, a `NOTE` informs."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


_RANK = {Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 2}


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding.

    Attributes:
        code: stable code, a key of `CODES`.
        message: what is wrong, with the object's name in it.
        severity: `error`, `warning` or `note`.
        expected: what should have been there.
        found: what was there instead.
        where: `file:line`, an attribute path, or a field path.
        consequence: what happens if one goes on anyway.
        next_step: the next command or edit.
    """

    code: str
    message: str
    severity: Severity = Severity.ERROR
    expected: str | None = None
    found: str | None = None
    where: str | None = None
    consequence: str | None = None
    next_step: str | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES:
            raise KeyError(f"unknown diagnostic code {self.code!r}: add it to eagle_adapters.diagnostics.CODES")

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; absent parts are left out."""
        out: dict[str, Any] = {"code": self.code, "severity": self.severity.value, "message": self.message}
        for name in ("expected", "found", "where", "consequence", "next_step"):
            value = getattr(self, name)
            if value is not None:
                out[name] = value
        return out

    def __str__(self) -> str:
        lines = [f"{self.code} {self.severity.value}: {self.message}"]
        labels = (
            ("expected", "expected"),
            ("found", "found"),
            ("where", "where"),
            ("then", "consequence"),
            ("next", "next_step"),
        )
        for label, name in labels:
            value = getattr(self, name)
            if value is not None:
                lines.append(f"  {label}: {value}")
        return "\n".join(lines)


@dataclass(slots=True)
class Report:
    """An ordered collection of diagnostics; true when it holds any."""

    diagnostics: list[Diagnostic] = field(default_factory=list)

    def add(self, code: str, message: str, severity: Severity = Severity.ERROR, **parts: str | None) -> Diagnostic:
        """Append a diagnostic built from its parts and return it."""
        diagnostic = Diagnostic(code, message, severity, **parts)
        self.diagnostics.append(diagnostic)
        return diagnostic

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Append many."""
        self.diagnostics.extend(diagnostics)

    @property
    def worst(self) -> Severity | None:
        """The highest severity in the report, or None when it is empty."""
        return max((d.severity for d in self.diagnostics), key=_RANK.__getitem__, default=None)

    @property
    def errors(self) -> list[Diagnostic]:
        """The diagnostics of severity `error`."""
        return [d for d in self.diagnostics if d.severity is Severity.ERROR]

    def as_list(self) -> list[dict[str, Any]]:
        """The JSON form."""
        return [d.as_dict() for d in self.diagnostics]

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.diagnostics)

    def __len__(self) -> int:
        return len(self.diagnostics)

    def __str__(self) -> str:
        return "\n".join(map(str, self.diagnostics))
