{  // x to y: f16 to bf16 by cvt.f32.f16, cvt.rn.bf16x2.f32
    pipelink::f16_to_bf16(y[0], x[0]);
    pipelink::f16_to_bf16(y[1], x[1]);
}
