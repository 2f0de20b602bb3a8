"""Placement: who gets which bytes, barriers, warps and registers. Pure functions of plain values."""
