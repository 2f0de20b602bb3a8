{  // x to y: f32 to f16 by cvt.rz.f16x2.f32
    pipelink::f32_to_f16_toward_zero(y[0], x[0], x[1]);
    pipelink::f32_to_f16_toward_zero(y[1], x[2], x[3]);
    pipelink::f32_to_f16_toward_zero(y[2], x[4], x[5]);
    pipelink::f32_to_f16_toward_zero(y[3], x[6], x[7]);
}
