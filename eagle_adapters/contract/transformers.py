"""What an adapted `transformers` model offers: this library's own hooks, as `transformers` itself asks for nothing."""

from __future__ import annotations

from packaging.specifiers import SpecifierSet

from eagle_adapters.contract.hooks import Call, Contract, Engine, Hook, Kind

CONTRACTS = (
    Contract(
        Engine.TRANSFORMERS,
        SpecifierSet(">=5.16,<5.20"),
        (
            Hook(
                "eagle3_capture",
                Kind.METHOD,
                "(self, boundaries: Sequence[int] | None = None) -> AbstractContextManager[CapturedStates]",
                "eagle_adapters, verify and speculate",
                "around forward or generate",
                "a context that records the residual stream at the boundaries, one entry for each decoder forward",
                (Call(), Call(1)),
            ),
            Hook(
                "get_embed_and_head",
                Kind.METHOD,
                "(self) -> tuple[Tensor, Tensor]",
                "eagle_adapters, speculate",
                "when a draft has no embedding or head of its own",
                "the embedding and head weights, each [vocab, hidden]",
                (Call(),),
            ),
        ),
    ),
)
