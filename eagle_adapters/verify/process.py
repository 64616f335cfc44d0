"""A child process that holds an engine: asked line by line on its standard input, answering on a pipe of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class EngineProcess:
    """`python -m MODULE DESCRIPTOR`, used as a context manager.

    Importing an engine costs tens of seconds and starting one costs few: the process pays for the import once. What it
    and its children print goes to the log; its answers are the lines written to the file descriptor it is told.
    """

    def __init__(self, module: str, environment: Mapping[str, str], log: Path | None = None) -> None:
        """Start the process.

        Args:
            module: what runs in it; its `main` reads a request a line and answers each by one line.
            environment: variables on top of the present ones.
            log: file that what it prints is appended to; thrown away when None.
        """
        reader, writer = os.pipe()
        sink: Any = log.open("ab") if log is not None else subprocess.DEVNULL
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(writer)],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                pass_fds=[writer],
                env={**os.environ, **environment},
            )
        finally:
            os.close(writer)
            if log is not None:
                sink.close()
        self._log = log
        self._answers = os.fdopen(reader, "r", encoding="utf-8")

    def ask(self, request: str) -> str:
        """The answer to one request.

        Raises:
            ChildProcessError: the process ended; the end of its log is in the text.
        """
        assert self._process.stdin is not None
        answer = ""
        try:
            self._process.stdin.write(f"{request}\n".encode())
            self._process.stdin.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            pass  # the process is gone: said below, with its log
        if not answer:
            said = self._log.read_text("utf-8", "replace")[-4000:] if self._log is not None else ""
            raise ChildProcessError(f"the engine's process ended with code {self._process.wait()}: {said}")
        return answer

    def close(self) -> None:
        """End the process; one that does not end by itself within 30 seconds is killed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it is gone already, with a request unread
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
