"""`wrap`, `unwrap`, `explain`: idempotent, reversible, all or nothing, on models and on classes."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import torch
import transformers

import eagle_adapters
from eagle_adapters import explain, plan_for, unwrap, wrap
from eagle_adapters.contract import check
from eagle_adapters.errors import AdaptationError, ContractError
from eagle_adapters.plan import Plan, Refusal
from eagle_adapters.tiny import build_tiny, text_inputs, tiny_config

LLAMA = transformers.LlamaForCausalLM


@pytest.fixture(scope="module")
def constructed() -> None:
    """transformers itself adds to a class when its first model is built and run."""
    for inner in ("llama", "opt"):
        model = llava_over(inner)
        model(**text_inputs(model))
    model = build_tiny("llama")
    model(**text_inputs(model))


@pytest.fixture(autouse=True)
def classes_as_before(constructed: None) -> Any:
    classes = (LLAMA, transformers.LlavaForConditionalGeneration, transformers.LlamaModel)
    before = {cls: list(vars(cls).items()) for cls in classes}
    yield
    assert {cls: list(vars(cls).items()) for cls in classes} == before


def llava_over(inner: str) -> Any:
    """A tiny LLaVA with another family's decoder."""
    text = {k: v for k, v in tiny_config(inner).items() if k != "architectures"}
    return build_tiny({**tiny_config("llava"), "text_config": {**text, "word_embed_proj_dim": 128}})


def hooks(model: Any) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_wrap_then_unwrap_is_the_identity() -> None:
    model = build_tiny("llama")
    instance = dict(vars(model))
    assert [f.code for f in check(model, "transformers")] == ["EA301", "EA301"]
    assert wrap(model) is model
    assert check(model, "transformers").as_list() == []
    assert unwrap(model) is model
    assert vars(model) == instance
    assert hooks(model) == 0
    assert not hasattr(model, "eagle3_capture")


def test_wrapping_twice_is_wrapping_once() -> None:
    model = wrap(build_tiny("llama"))
    count = hooks(model)
    assert hooks(wrap(model)) == count
    unwrap(model)
    with pytest.raises(AdaptationError, match="EA404"):
        unwrap(model)


def test_two_models_of_one_class_are_independent() -> None:
    first, second = wrap(build_tiny("llama")), wrap(build_tiny("llama", seed=1))
    unwrap(first)
    with torch.no_grad(), second.eagle3_capture([0]) as states:
        second(**text_inputs(second))
    assert len(states) == 1
    unwrap(second)


def test_a_wrapped_class_serves_every_model_of_it() -> None:
    assert wrap(transformers.LlavaForConditionalGeneration) is transformers.LlavaForConditionalGeneration
    try:
        for inner in ("llama", "opt"):  # one wrapper class, two shapes of decoder
            model = llava_over(inner)
            with torch.no_grad(), model.eagle3_capture([0, 8]) as states:
                model(**text_inputs(model))
            assert states[8].shape[-1] == 128
            assert model.get_embed_and_head()[1] is model.lm_head.weight
        assert explain(transformers.LlavaForConditionalGeneration).status == "adapted"
    finally:
        unwrap(transformers.LlavaForConditionalGeneration)


def test_models_of_one_class_with_other_decoders_do_not_get_each_others_paths() -> None:
    first = wrap(llava_over("llama"))
    second = llava_over("opt")
    try:
        with pytest.raises(AdaptationError, match="EA402"):
            wrap(second)
        assert hooks(second) == 0
    finally:
        unwrap(first)
    unwrap(wrap(second))


def test_explain_says_what_and_why_before_and_after() -> None:
    model = build_tiny("kimi_k25")
    before = explain(model)
    assert before.status == "adaptable"
    wrap(model)
    after = explain(model)
    unwrap(model)
    assert after.status == "adapted"
    assert isinstance(after.plan, Plan)
    assert after.plan.edits == before.plan.edits  # type: ignore[union-attr]
    assert json.loads(json.dumps(after.as_dict()))["plan"]["edits"][0]["name"] == "eagle3_capture"
    text = str(after)
    for part in ("model.language_model", "8 layers", "add_method", "has no `eagle3_capture`", "def get_embed_and_head"):
        assert part in text


def test_a_refusal_is_explained_and_raised_with_its_reason() -> None:
    model = build_tiny("gemma3n")
    assert isinstance(plan_for(model), Refusal)
    assert explain(model).status == "refused"
    assert "AltUp" in str(explain(model))
    with pytest.raises(AdaptationError, match="EA403"):
        wrap(model)
    assert not hasattr(model, "eagle3_capture")


def test_what_is_no_model_is_refused() -> None:
    for target in (object(), int):
        with pytest.raises(AdaptationError):
            wrap(target)
    with pytest.raises(ContractError, match="EA306"):
        wrap(build_tiny("llama"), engine="tensorrt")


def test_a_failing_attach_leaves_the_class_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from eagle_adapters.backends.transformers import BACKEND

    def fail(target: Any, plan: Plan) -> None:
        raise RuntimeError("attach")

    monkeypatch.setattr(type(BACKEND), "attach", lambda self, target, plan: fail(target, plan))
    model = build_tiny("llama")
    with pytest.raises(RuntimeError, match="attach"):
        wrap(model)
    assert not hasattr(model, "eagle3_capture")
    with pytest.raises(AdaptationError, match="EA404"):
        unwrap(model)


def test_threads_that_wrap_the_same_model_at_once() -> None:
    model = build_tiny("llama")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            wrap(model)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    unwrap(model)
    assert hooks(model) == 0


@pytest.mark.parametrize("kind", ["compile", "peft", "data_parallel"])
def test_a_model_inside_another_wrapper(kind: str) -> None:
    model = build_tiny("llama")
    if kind == "compile":
        outer: Any = torch.compile(model, backend="eager")
    elif kind == "data_parallel":
        outer = torch.nn.DataParallel(model)
    else:
        peft = pytest.importorskip("peft")
        outer = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    assert wrap(outer) is outer
    try:
        assert "eagle3_capture" in vars(LLAMA)
        inner = model
        with torch.no_grad(), inner.eagle3_capture([0, 8]) as states:
            inner(**text_inputs(inner))
        assert states[8].shape == (1, 12, 128)
    finally:
        unwrap(outer)


def test_public_names_are_all_there_and_nothing_else() -> None:
    for name in eagle_adapters.__all__:
        assert getattr(eagle_adapters, name).__name__ == name
    assert set(eagle_adapters.__all__) <= set(dir(eagle_adapters))
    with pytest.raises(AttributeError, match="no attribute 'unknown'"):
        eagle_adapters.unknown  # noqa: B018
