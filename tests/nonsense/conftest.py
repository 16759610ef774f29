"""Fixtures that several of these tests need."""

from __future__ import annotations

from tests.runtime.conftest import make_pipeline

__all__ = ["make_pipeline"]
