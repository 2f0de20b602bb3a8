{  // y: 4 ldmatrix.x4
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 4 * 16 + thread / 32 * 2048);
    pipelink::ldmatrix_x4(base0, y[0], y[2], y[4], y[6]);
    pipelink::ldmatrix_x4(base0 ^ 64, y[8], y[10], y[12], y[14]);
    pipelink::ldmatrix_x4(base0 + 1024, y[1], y[3], y[5], y[7]);
    pipelink::ldmatrix_x4((base0 ^ 64) + 1024, y[9], y[11], y[13], y[15]);
}
