{  // x to y: f32 to bf16 by cvt.rn.bf16x2.f32
    pipelink::f32_to_bf16(z[0], x[0], x[1]);
    pipelink::f32_to_bf16(z[1], x[2], x[3]);
    pipelink::f32_to_bf16(z[2], x[4], x[5]);
    pipelink::f32_to_bf16(z[3], x[6], x[7]);
    pipelink::f32_to_bf16(z[4], x[8], x[9]);
    pipelink::f32_to_bf16(z[5], x[10], x[11]);
    pipelink::f32_to_bf16(z[6], x[12], x[13]);
    pipelink::f32_to_bf16(z[7], x[14], x[15]);
    pipelink::f32_to_bf16(z[8], x[16], x[17]);
    pipelink::f32_to_bf16(z[9], x[18], x[19]);
    pipelink::f32_to_bf16(z[10], x[20], x[21]);
    pipelink::f32_to_bf16(z[11], x[22], x[23]);
    pipelink::f32_to_bf16(z[12], x[24], x[25]);
    pipelink::f32_to_bf16(z[13], x[26], x[27]);
    pipelink::f32_to_bf16(z[14], x[28], x[29]);
    pipelink::f32_to_bf16(z[15], x[30], x[31]);
}
{  // z: 4 stmatrix.x4
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 4 * 16 + thread / 32 * 2048);
    pipelink::stmatrix_x4(base0, z[0], z[2], z[4], z[6]);
    pipelink::stmatrix_x4(base0 ^ 64, z[8], z[10], z[12], z[14]);
    pipelink::stmatrix_x4(base0 + 1024, z[1], z[3], z[5], z[7]);
    pipelink::stmatrix_x4((base0 ^ 64) + 1024, z[9], z[11], z[13], z[15]);
}
