"""The picture layouts of `eagle_adapters.tiny` against the models' own image processors.

Those need torchvision, which this engine's environment has and the core environment has not.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessor
from transformers.models.kimi_k25.image_processing_kimi_k25 import Kimi_K25ImageProcessor

from eagle_adapters.tiny import build_tiny, image_inputs, picture

HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@pytest.mark.parametrize(
    ("family", "processor"),
    [
        ("kimi_k25", Kimi_K25ImageProcessor(**HALF)),
        ("qwen2_5_vl", Qwen2VLImageProcessor(min_pixels=56 * 56, max_pixels=56 * 56, **HALF)),
    ],
)
def test_the_layout_is_the_processors_own(family, processor):
    pixels = (picture().permute(1, 2, 0) * 255).round().to(torch.uint8)
    expected = processor(Image.fromarray(pixels.numpy()), return_tensors="pt")
    exact = torch.from_numpy(np.asarray(pixels).copy()).permute(2, 0, 1).float() / 255
    found = image_inputs(build_tiny(family), exact)
    torch.testing.assert_close(found["pixel_values"], expected["pixel_values"], rtol=0, atol=1e-6)
    assert found["image_grid_thw"].tolist() == expected["image_grid_thw"].tolist()
