"""Tests of headrace's promises."""
