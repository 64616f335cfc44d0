"""The plug-in on a skeleton of the modules it stands at: for EAGLE-3 targets only, and never failing in silence."""

from __future__ import annotations

import importlib
import logging
import sys
from types import SimpleNamespace

import pytest

from eagle_adapters.backends.sglang.request import remember, request_for
from eagle_adapters.errors import AdaptationError, BoundaryError
from eagle_adapters.plugins import sglang as plugin

FILES = {
    "sglang/__init__.py": "",
    "sglang/srt/__init__.py": "",
    "sglang/srt/runtime_context.py": "ALGORITHM = 'EAGLE3'\n"
    "from types import SimpleNamespace\n"
    "def get_spec():\n    return SimpleNamespace(speculative_algorithm=ALGORITHM)\n",
    "sglang/srt/model_loader/__init__.py": "",
    "sglang/srt/model_loader/loader.py": "def _initialize_model(model_config, load_config=None):\n"
    "    return model_config.cls()\n",
    "sglang/srt/model_executor/__init__.py": "",
    "sglang/srt/model_executor/model_runner.py": "def resolve_spec_aux_hidden_state_config(**kwargs):\n"
    "    return kwargs['config']\n",
}


@pytest.fixture
def sglang(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("EAGLE_ADAPTERS", raising=False)
    monkeypatch.delenv("EAGLE_ADAPTERS_CONVENTION", raising=False)
    yield lambda name: importlib.import_module(f"sglang.srt.{name}")
    remember(None)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        del sys.modules[name]


class Target:
    def forward(self):
        return 1


def config(*, draft=False):
    return SimpleNamespace(cls=type("Target", (Target,), {}), is_draft_model=draft)


def test_nothing_is_imported(sglang):
    plugin.register()
    assert not any(name.partition(".")[0] == "sglang" for name in sys.modules)


def test_a_failed_adaptation_raises_from_the_hook_and_is_logged(sglang, caplog):
    plugin.register()
    with caplog.at_level(logging.ERROR):
        model = sglang("model_loader.loader")._initialize_model(config())
    for hook in (model.get_embed_and_head, lambda: model.set_eagle3_layers_to_capture([1, 3, 4])):
        with pytest.raises(AdaptationError):
            hook()
    assert "Target cannot be served with EAGLE-3" in caplog.text


def test_a_release_with_other_inner_functions_is_refused_for_eagle3_only(sglang, tmp_path, caplog):
    (tmp_path / "sglang/srt/model_executor/model_runner.py").write_text("", "utf-8")
    plugin.register()
    sglang("model_executor.model_runner")
    loader = sglang("model_loader.loader")
    with pytest.raises(AdaptationError) as caught:
        loader._initialize_model(config()).set_eagle3_layers_to_capture([1, 3, 4])
    assert caught.value.code == "EA545"
    sglang("runtime_context").ALGORITHM = None
    assert not hasattr(loader._initialize_model(config()), "set_eagle3_layers_to_capture")


def test_a_draft_is_left_alone(sglang):
    plugin.register()
    model = sglang("model_loader.loader")._initialize_model(config(draft=True))
    assert not hasattr(model, "set_eagle3_layers_to_capture")


def test_other_servers_are_left_alone(sglang):
    plugin.register()
    sglang("runtime_context").ALGORITHM = None
    model = sglang("model_loader.loader")._initialize_model(config())
    assert not hasattr(model, "set_eagle3_layers_to_capture")


def test_it_can_be_switched_off(sglang, monkeypatch):
    monkeypatch.setenv("EAGLE_ADAPTERS", "off")
    plugin.register()
    model = sglang("model_loader.loader")._initialize_model(config())
    assert not hasattr(model, "set_eagle3_layers_to_capture")


def _resolve(sglang, **fields):
    draft = SimpleNamespace(hf_config=SimpleNamespace(to_dict=lambda: fields), model_path="a/draft")
    found = SimpleNamespace(
        eagle_use_aux_hidden_state=True, eagle_aux_hidden_state_layer_ids=None, draft_model_config=draft
    )
    algorithm = SimpleNamespace(is_eagle3=lambda: True)
    return sglang("model_executor.model_runner").resolve_spec_aux_hidden_state_config(
        config=found, spec_algorithm=algorithm
    )


def test_ids_at_the_top_level_reach_the_engine(sglang):
    plugin.register()
    found = _resolve(sglang, eagle_aux_hidden_state_layer_ids=[1, 3, 4])
    assert found.eagle_aux_hidden_state_layer_ids == [1, 3, 4]
    assert request_for([1, 3, 4]).draft == "a/draft"


def test_ids_that_contradict_each_other_stop_the_server(sglang):
    plugin.register()
    nested = {"eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    with pytest.raises(BoundaryError) as caught:
        _resolve(sglang, eagle_aux_hidden_state_layer_ids=[1, 3, 4], eagle_config=nested)
    assert caught.value.code == "EA541"
