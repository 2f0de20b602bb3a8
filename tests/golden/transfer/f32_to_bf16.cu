{  // x to y: f32 to bf16 by cvt.rn.bf16x2.f32
    pipelink::f32_to_bf16(y[0], x[0], x[1]);
    pipelink::f32_to_bf16(y[1], x[2], x[3]);
    pipelink::f32_to_bf16(y[2], x[4], x[5]);
    pipelink::f32_to_bf16(y[3], x[6], x[7]);
}
