"""The tokenizer of the pair: every byte is its own token, and its id is its value."""

from __future__ import annotations

from pathlib import Path

SPECIAL = ("<bos>", "<eos>", "<pad>", "<image>", "<video>", "<vision>", "</vision>")
"""Tokens 256 to 262, in order."""


def save(folder: Path) -> None:
    """Write `tokenizer.json` and its config, so that prompts may be text."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    bos, eos, pad = SPECIAL[:3]
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad)
    fast.save_pretrained(folder)


def byte_characters() -> list[str]:
    """The printable character by which byte-level tokenizers stand for each byte (GPT-2's `bytes_to_unicode`)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]
