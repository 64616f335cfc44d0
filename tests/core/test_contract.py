"""The contract as data, and the comparison of classes with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from eagle_adapters.contract import Engine, Kind, check, contract_for, contracts
from eagle_adapters.diagnostics import Severity
from eagle_adapters.errors import ContractError


class Sglang:
    """Everything SGLang asks of a class."""

    def set_eagle3_layers_to_capture(self, layer_ids: list[int] | None = None) -> None: ...
    def get_embed_and_head(self) -> tuple[Any, Any]:
        return None, None

    def set_embed_and_head(self, embed: Any, head: Any) -> None: ...
    def get_input_embeddings(self) -> Any: ...


class Vllm:
    """Everything vLLM asks of a class."""

    supports_eagle3 = True
    has_own_lm_head = False
    has_own_embed_tokens = False

    def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None: ...
    def get_eagle3_default_aux_hidden_state_layers(self) -> tuple[int, ...]:
        return (2, 4, 5)


class Transformers:
    """Everything an adapted transformers class has."""

    def eagle3_capture(self, boundaries: Sequence[int] | None = None) -> AbstractContextManager[Any]:
        return nullcontext()

    def get_embed_and_head(self) -> tuple[Any, Any]:
        return None, None


COMPLETE = {Engine.SGLANG: Sglang, Engine.VLLM: Vllm, Engine.TRANSFORMERS: Transformers}


@pytest.mark.parametrize("engine", Engine)
def test_a_complete_class_has_no_findings(engine: Engine) -> None:
    assert check(COMPLETE[engine], engine).as_list() == []


@pytest.mark.parametrize(
    ("engine", "hook"),
    [(c.engine, h) for c in (contract_for(e) for e in Engine) for h in c if h.required and h.kind is not Kind.DEAD],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_each_missing_piece_is_named(engine: Engine, hook: Any) -> None:
    lacking = type("Lacking", (), {k: v for k, v in vars(COMPLETE[engine]).items() if k != hook.name})
    (finding,) = check(lacking, engine)
    assert finding.severity is Severity.ERROR
    assert finding.code == ("EA305" if hook.kind is Kind.ATTRIBUTE else "EA301")
    assert f"`{hook.name}`" in finding.message
    assert hook.called_by in str(finding)


def test_an_empty_class_lacks_every_required_piece_at_once() -> None:
    names = {finding.message.split("`")[1] for finding in check(type("Empty", (), {}), Engine.VLLM).errors}
    assert names == {h.name for h in contract_for(Engine.VLLM) if h.required and h.kind is not Kind.DEAD}


def test_a_wrong_signature_is_found_though_the_name_is_there() -> None:
    class Wrong(Sglang):
        def set_eagle3_layers_to_capture(self) -> None:  # type: ignore[override]
            """Takes no ids."""

    (finding,) = check(Wrong, Engine.SGLANG)
    assert finding.code == "EA302"
    assert finding.found is not None
    assert "too many positional arguments" in finding.found
    assert finding.where is not None
    assert finding.where.startswith(__file__)


def test_old_sglang_also_called_the_setter_without_ids() -> None:
    class Strict(Sglang):
        def set_eagle3_layers_to_capture(self, layer_ids: list[int]) -> None:  # type: ignore[override]
            """Needs the ids."""

    assert check(Strict, Engine.SGLANG, "0.5.23").as_list() == []
    assert [f.code for f in check(Strict, Engine.SGLANG, "0.5.9")] == ["EA302"]


def test_an_attribute_where_a_method_belongs() -> None:
    odd = type("Odd", (Vllm,), {"set_aux_hidden_state_layers": 3})
    assert [f.code for f in check(odd, Engine.VLLM)] == ["EA303"]


def test_a_dead_name_is_reported_only_while_the_new_one_is_missing() -> None:
    old = lambda self: (2, 4, 5)  # noqa: E731
    both = type("Both", (Vllm,), {"get_eagle3_aux_hidden_state_layers": old})
    fields = {k: v for k, v in vars(Vllm).items() if k != "get_eagle3_default_aux_hidden_state_layers"}
    only_old = type("OnlyOld", (), {**fields, "get_eagle3_aux_hidden_state_layers": old})
    assert check(both, Engine.VLLM).as_list() == []
    assert [f.code for f in check(only_old, Engine.VLLM)] == ["EA301", "EA304"]
    assert check(only_old, Engine.VLLM, "0.16.0").as_list() == []


def test_a_member_that_raises_is_missing_for_the_engine() -> None:
    class Raises(Sglang):
        def __getattribute__(self, name: str) -> Any:
            if name == "lm_head":
                raise RuntimeError(name)
            return super().__getattribute__(name)

    assert [f.code for f in check(Raises(), Engine.SGLANG)] == ["EA305", "EA305"]


def test_config_fields_are_checked_on_a_model() -> None:
    model = Vllm()
    model.config = SimpleNamespace(image_token_id=7)  # type: ignore[attr-defined]
    (finding,) = check(model, Engine.VLLM)
    assert (finding.code, finding.severity) == ("EA305", Severity.WARNING)
    model.config.image_token_index = 7  # type: ignore[attr-defined]
    assert check(model, Engine.VLLM).as_list() == []


def test_versions_and_engines_without_a_contract() -> None:
    with pytest.raises(ContractError, match="EA306"):
        contract_for("vllm", "0.9.2")
    with pytest.raises(ContractError, match="EA306"):
        check(Vllm, "tensorrt")


@pytest.mark.parametrize("contract", contracts(), ids=lambda c: f"{c.engine}{c.versions}")
def test_every_hook_says_who_calls_it_when_and_what_it_returns(contract: Any) -> None:
    names = [hook.name for hook in contract]
    assert len(names) == len(set(names))
    for hook in contract:
        assert hook.called_by
        assert hook.when
        assert hook.returns
        assert (hook.kind is Kind.METHOD) == bool(hook.calls)
