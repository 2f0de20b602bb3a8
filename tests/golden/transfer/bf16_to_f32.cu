{  // x to y: bf16 to f32 by shl.b32, and.b32
    std::uint32_t unused;
    pipelink::bf16_to_f32(y[0], y[1], x[0]);
    pipelink::bf16_to_f32(y[2], y[3], x[1]);
    pipelink::bf16_to_f32(y[4], y[5], x[2]);
    pipelink::bf16_to_f32(y[6], unused, x[3]);
}
