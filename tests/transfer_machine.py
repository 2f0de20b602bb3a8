"""A machine that executes generated transfers in Python, on bytes that have names.

A register is a list of four named bytes, shared memory a dict from address to name, so that nothing
that goes astray can look right by chance. Semantics are those of the PTX ISA.
"""

from pipelink.transfer.records import Moves, Term, Word

LANES = 32


def term(t: Term, thread: int) -> int:
    value = thread // t.divide
    return (value % t.modulo if t.modulo else value) * t.bytes


def swizzle(address: int, width: int) -> int:
    """As transfer.cuh computes it."""
    return address ^ (address >> 3 & (width - 16)) if width else address


def word(made: Word, array):
    """As the template prints a word."""
    value = list(array[made.sources[0]])
    for source, selector in made.picks:
        both = value + list(array[source])
        value = [both[int(selector, 16) >> 4 * n & 7] for n in range(4)]
    off = made.shift // 8
    return value[off:] + [0] * off


def address(moves: Moves, access, thread: int, at: int) -> int:
    base = moves.bases[access.base]
    inside = sum(term(t, thread) for t in base.terms) + base.offset
    return ((at + swizzle(inside, base.swizzle)) ^ access.xor) + access.offset


def execute(moves: Moves, registers, memory, at: int = 0):
    """All accesses of all threads, warp by warp; `registers` are [thread][word]."""
    threads = len(registers)
    loaded = [[[None] * 4 for _ in range(moves.loaded)] for _ in range(threads)]
    for access in moves.accesses:
        active = access.threads or threads
        for first in range(0, threads, LANES):
            warp = range(first, min(first + LANES, threads))
            taking = [t for t in warp if t < active]
            places = {t: address(moves, access, t, at) for t in warp}
            into = loaded if moves.loaded else registers
            if moves.matrix:
                assert len(taking) in (0, LANES), "a warp takes part whole"
                if taking:
                    _matrix(moves, access, places, registers, into, memory, first)
            else:
                for t in taking:
                    _vector(moves, access, places[t], registers[t], into[t], memory)
    for thread in range(threads if moves.assembled else 0):
        registers[thread][:] = [word(w, loaded[thread]) for w in moves.assembled]


def _vector(moves, access, place, registers, into, memory):
    assert place % access.bytes == 0, "an access is aligned to its size"
    size = min(access.bytes, 4)
    for n, made in enumerate(access.words):
        if moves.direction == "store":
            for byte, value in enumerate(word(made, registers)[:size]):
                memory[place + 4 * n + byte] = value
        else:
            assert made.whole
            got = [memory.get(place + 4 * n + byte) for byte in range(size)]
            into[made.sources[0]][:] = got + [0] * (4 - size)


def _matrix(moves, access, places, registers, into, memory, first):
    for number, made in enumerate(access.words):
        rows = [places[first + 8 * number + row] for row in range(8)]
        assert all(row % 16 == 0 for row in rows)
        for lane in range(LANES):
            halves = [_half(moves.transposed, lane, half) for half in (0, 1)]
            at = [rows[row] + 2 * column for row, column in halves]
            if moves.direction == "store":
                value = word(made, registers[first + lane])
                for half in (0, 1):
                    for byte in (0, 1):
                        memory[at[half] + byte] = value[2 * half + byte]
            else:
                got = [memory.get(place + byte) for place in at for byte in (0, 1)]
                into[first + lane][made.sources[0]][:] = got


def _half(transposed, lane, half):
    """The row and column of a matrix that a lane has as one half of its register."""
    row, column = lane // 4, lane % 4 * 2 + half
    return (column, row) if transposed else (row, column)


def shuffled(shuffle, registers):
    """What each thread has after a shuffle; `registers` are [thread][word]."""
    result = []
    for first in range(0, len(registers), LANES):
        warp = range(first, first + LANES)
        sent = [[word(w, registers[t]) for w in shuffle.packed] for t in warp]
        for lane in range(LANES):
            _swap(shuffle.before, lane, sent[lane])
        got = [[] for _ in range(LANES)]
        for step in shuffle.rounds:
            for lane in range(LANES):
                terms = shuffle.lanes[step.base] if step.base >= 0 else None
                base = lane if terms is None else sum(term(t, lane) for t in terms)
                got[lane].append(sent[base ^ step.xor][step.word])
        for lane in range(LANES):
            _swap(shuffle.after, lane, got[lane])
            for choice in shuffle.choices:
                for number, lanes in choice.others:
                    if int(lanes.rstrip("u"), 16) >> lane & 1:
                        got[lane][choice.rounds[0]] = got[lane][number]
            result.append([word(w, got[lane]) for w in shuffle.words])
    return result


def _swap(swaps, lane, array):
    for swap in swaps:
        if swap.lanes >> lane & 1:
            for a, b in swap.pairs:
                array[a], array[b] = array[b], array[a]
