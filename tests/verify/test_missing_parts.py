"""An engine that is not there, or whose kernels are not, is said so with the next step; a stand-in is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_adapters.errors import AdaptationError
from eagle_adapters.verify import runner_for, served, verification, verify
from eagle_adapters.verify.sglang.kernels import find_kernels

STAND_IN = Path(__file__).parents[1] / "sglang" / "standin"


@pytest.fixture(autouse=True)
def _forget_kernels():
    find_kernels.cache_clear()
    yield
    find_kernels.cache_clear()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_that_is_not_installed_is_said_before_anything_is_computed(engine, monkeypatch) -> None:
    monkeypatch.setattr(served, "find_spec", lambda name: None)
    monkeypatch.setattr(verification, "load_model", lambda checkpoint: pytest.fail("a model was built"))
    with pytest.raises(AdaptationError) as caught:
        verify("llama", runner_for(engine))
    assert caught.value.code == "EA614"
    assert f"eagle-adapters[{engine}]" in str(caught.value)


def test_sglang_without_kernels_names_the_error_and_the_way_out(monkeypatch, tmp_path) -> None:
    broken = tmp_path / "sgl_kernel"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('libcuda.so.1: cannot open shared object file')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AdaptationError) as caught:
        runner_for("sglang").start()
    assert caught.value.code == "EA615"
    assert "libcuda.so.1" in str(caught.value)
    assert "tests/sglang/standin" in str(caught.value)


def test_a_stand_in_is_named_in_the_evidence(monkeypatch) -> None:
    monkeypatch.setattr(served, "find_spec", lambda name: object())
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    (remark,) = runner_for("sglang").remarks()
    assert (remark.code, remark.severity) == ("EA616", "note")
    assert "stand-in" in (remark.found or "")
