"""Transfers between registers and shared memory, and between registers: which instructions each
thread executes. All of it is pure; templates/transfer.j2 prints what is decided here.

    records.py      tiles, fragments, and what a transfer is made of
    moves.py        store, load: a fragment to a tile in shared memory, and back
    exchanging.py   exchange: a fragment to another layout
    copy.py         copy: a tile to another tile
    converting.py   convert: one element type to another
"""
