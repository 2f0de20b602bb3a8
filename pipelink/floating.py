"""The floating-point mode: a fact of the whole kernel, since the link has just one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FloatingPoint:
    """Flush denormals, IEEE division and square root, contraction to fused multiply-add."""

    ftz: bool = False
    div: bool = True
    sqrt: bool = True
    fma: bool = True

    def text(self) -> str:
        """As contracts have it."""
        return f"ftz={self.ftz:d} div={self.div:d} sqrt={self.sqrt:d} fma={self.fma:d}"

    def nvcc(self) -> list[str]:
        names = {"ftz": self.ftz, "prec-div": self.div, "prec-sqrt": self.sqrt, "fmad": self.fma}
        return [f"--{name}={str(value).lower()}" for name, value in names.items()]

    def nvjitlink(self) -> list[str]:
        names = {"ftz": self.ftz, "prec-div": self.div, "prec-sqrt": self.sqrt, "fma": self.fma}
        return [f"-{name}={value:d}" for name, value in names.items()]

    @staticmethod
    def parse(text: str) -> FloatingPoint:
        """The mode of a contract's text; ValueError if it is none."""
        fields = dict(word.split("=", 1) for word in text.split())
        if set(fields) != {"ftz", "div", "sqrt", "fma"} or set(fields.values()) - {"0", "1"}:
            raise ValueError(f"'{text}' is no floating-point mode")
        return FloatingPoint(**{name: value == "1" for name, value in fields.items()})


PRECISE = FloatingPoint()
