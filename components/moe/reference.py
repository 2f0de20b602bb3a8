"""A mixture-of-experts layer plainly, in float32, a function a component."""

import itertools
from collections.abc import Callable, Iterator

import torch

from components.case import Case, Extents, Facts, Shapes, Tensors

# One token, few, and as many as a layer has at a time; the routes of each spread evenly, or half of the
# tokens to one expert. With few tokens most experts have none.
TOKENS = (1, 7, 256, 4096, 16384)


def gather(x: torch.Tensor, order: torch.Tensor, top_k: int) -> torch.Tensor:
    """The token's row of each route, in the order of the list. x [tokens, k], order [routes]."""
    return x[order.long() // top_k].float()


def groups(offsets: torch.Tensor) -> Iterator[tuple[int, slice]]:
    """Experts with a route, each with its rows in the list."""
    ends = offsets.tolist()
    for expert, (first, end) in enumerate(itertools.pairwise(ends)):
        if first < end:
            yield expert, slice(first, end)


def expert_gemm(rows: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Each expert's rows by its weights. rows [routes, k], w [experts, n, k] to [routes, n]."""
    result = torch.empty(rows.shape[0], w.shape[1], device=rows.device)
    for expert, part in groups(offsets):
        result[part] = rows[part].float() @ w[expert].float().T
    return result


def swiglu(product: torch.Tensor) -> torch.Tensor:
    """The left half of the columns is the gate, the right half is up."""
    gate, up = product.chunk(2, dim=1)
    return torch.nn.functional.silu(gate) * up


def combine(y: torch.Tensor, order: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Routes back to tokens, weighted. y [routes, n] in the order of the list, probs [tokens, top_k]."""
    slots = in_slots(y.float(), order)
    return (slots.view(*probs.shape, -1) * probs[:, :, None]).sum(dim=1)


def up(
    x: torch.Tensor, order: torch.Tensor, offsets: torch.Tensor, w: torch.Tensor, top_k: int
) -> torch.Tensor:
    return swiglu(expert_gemm(gather(x, order, top_k), w, offsets))


def layer(
    x: torch.Tensor,
    order: torch.Tensor,
    offsets: torch.Tensor,
    probs: torch.Tensor,
    w_up: torch.Tensor,
    w_down: torch.Tensor,
) -> torch.Tensor:
    h = up(x, order, offsets, w_up, probs.shape[1])
    return combine(expert_gemm(h, w_down, offsets), order, probs)


# --- The device check -------------------------------------------------------------------------------


def extents(facts: Facts) -> tuple[Extents, ...]:
    top_k = next(v for name, v in facts.items() if name.endswith(".top_k"))
    few = any(name.endswith(".experts") and v == 8 for name, v in facts.items())
    return tuple(
        {
            "tokens": t,
            "routes": t * top_k,
            "experts": experts_of(facts),
            "top_k": top_k,
            "skewed": skewed,
        }
        for t in TOKENS
        for skewed in (0, 1)
        if not (few and t > 4096)
    )


def experts_of(facts: Facts) -> int:
    """How many experts the lists are for; a kernel that takes no offsets has no number of its own."""
    return next((v for name, v in facts.items() if name.endswith(".experts")), 8)


def lists(about: Extents, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A router's choice: `order`, `offsets` and `probs`."""
    tokens, experts, top_k = about["tokens"], about["experts"], about["top_k"]
    logits = torch.randn(tokens, experts, generator=generator, device=generator.device)
    seen = logits.clone()
    if about["skewed"]:
        seen[::2, experts // 2] = float("inf")
    ids = seen.topk(top_k, dim=1).indices
    by_expert, order = torch.sort(ids.reshape(-1), stable=True)
    offsets = torch.searchsorted(by_expert, torch.arange(experts + 1, device=generator.device))
    return {"order": order, "offsets": offsets, "probs": logits.gather(1, ids).softmax(dim=1)}


def random(shapes: Shapes, about: Extents, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Weights are scaled so that a product has about the variance of its rows."""
    routed = lists(about, generator)

    def of(name: str) -> torch.Tensor:
        if name in routed:
            return routed[name]
        scale = shapes[name][-1] ** -0.5 if name == "w" else 1.0
        return torch.randn(shapes[name], generator=generator, device=generator.device) * scale

    return {name: of(name) for name in shapes}


def products(inputs: Tensors) -> int:
    routes = inputs["order"] if "order" in inputs else inputs["x"]
    return 2 * routes.shape[0] * inputs["w"][0].numel()


def case(
    arguments: tuple[str, ...],
    outputs: Callable[[Tensors], dict[str, torch.Tensor]],
    operations: Callable[[Tensors], int],
    baseline: Callable[[Tensors], torch.Tensor],
    baseline_name: str,
) -> Case:
    def timed(inputs: Tensors) -> Callable[[], None]:
        return lambda: (baseline(inputs), None)[1]

    return Case(arguments, extents, "", random, outputs, operations, timed, baseline_name)


def in_slots(y: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Rows in the list's order at their places: [routes, n], token after token."""
    slots = torch.empty_like(y)
    slots[order.long()] = y
    return slots


def grouped(rows: torch.Tensor, inputs: Tensors) -> torch.Tensor:
    return torch._grouped_mm(rows, inputs["w"].transpose(-2, -1), offs=inputs["offsets"][1:])


def cases() -> tuple[Case, ...]:
    def top_k(i: Tensors) -> int:
        return i["order"].shape[0] // i["x"].shape[0]

    return (
        case(
            ("x", "order", "offsets", "w", "h"),
            lambda i: {"h": up(i["x"], i["order"], i["offsets"], i["w"], top_k(i))},
            products,
            lambda i: grouped(i["x"][i["order"] // top_k(i)], i),
            "torch's grouped product of the gathered rows, without the activation",
        ),
        case(
            ("x", "offsets", "w", "h"),
            lambda i: {"h": swiglu(expert_gemm(i["x"], i["w"], i["offsets"]))},
            products,
            lambda i: grouped(i["x"], i),
            "torch's grouped product, without the activation",
        ),
        case(
            ("h", "order", "offsets", "w", "y"),
            lambda i: {"y": in_slots(expert_gemm(i["h"], i["w"], i["offsets"]), i["order"])},
            products,
            lambda i: grouped(i["h"], i),
            "torch's grouped product, rows left in the list's order",
        ),
        case(
            ("h", "order", "offsets", "probs", "w", "total"),
            lambda i: {
                "total": combine(expert_gemm(i["h"], i["w"], i["offsets"]), i["order"], i["probs"])
            },
            products,
            lambda i: grouped(i["h"], i),
            "torch's grouped product, rows left in the list's order, not added up",
        ),
        case(
            ("y", "probs", "out"),
            lambda i: {"out": (i["y"].float() * i["probs"][:, :, None]).sum(dim=1)},
            lambda i: 2 * i["y"].numel(),
            lambda i: (i["y"] * i["probs"][:, :, None].to(i["y"].dtype)).sum(dim=1),
            "the same in torch, bf16",
        ),
        case(
            ("x", "order", "sorted"),
            lambda i: {"sorted": gather(i["x"], i["order"], top_k(i))},
            lambda i: 0,
            lambda i: i["x"][i["order"] // top_k(i)],
            "the same in torch",
        ),
    )
