"""Transfers between registers and shared memory, and between registers: which instructions each
thread executes. All of it is pure; templates/transfer.j2 prints what is decided here."""

from pipelink.transfer.converting import convert
from pipelink.transfer.exchanging import exchange
from pipelink.transfer.moves import load, store
from pipelink.transfer.places import Refused
from pipelink.transfer.records import (
    Conversion,
    Exchange,
    Fragment,
    InPlace,
    Moves,
    Permute,
    Shuffle,
    Staged,
    Tile,
)

__all__ = [
    "Conversion",
    "Exchange",
    "Fragment",
    "InPlace",
    "Moves",
    "Permute",
    "Refused",
    "Shuffle",
    "Staged",
    "Tile",
    "convert",
    "exchange",
    "load",
    "store",
]
