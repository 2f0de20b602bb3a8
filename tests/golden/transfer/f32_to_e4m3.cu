{  // x to y: f32 to e4m3 by cvt.rn.satfinite.e4m3x2.f32
    pipelink::f32_to_e4m3(y[0], x[0], x[1], x[2], x[3]);
    pipelink::f32_to_e4m3(y[1], x[4], x[5], x[6], x[7]);
}
