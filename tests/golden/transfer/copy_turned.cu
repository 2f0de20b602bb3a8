{  // y: 4 ldmatrix.x4.trans
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 32 * 128 + thread / 32 * 16);
    pipelink::ldmatrix_x4_trans(base0, y[0], y[1], y[2], y[3]);
    pipelink::ldmatrix_x4_trans(base0 + 4096, y[4], y[5], y[6], y[7]);
    pipelink::ldmatrix_x4_trans(base0 ^ 64, y[8], y[9], y[10], y[11]);
    pipelink::ldmatrix_x4_trans((base0 ^ 64) + 4096, y[12], y[13], y[14], y[15]);
}
{  // y: 4 stmatrix.x4
    const std::uint32_t base0 = (at + 32768) + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 4 * 16 + thread / 32 * 1024);
    pipelink::stmatrix_x4(base0, y[0], y[1], y[2], y[3]);
    pipelink::stmatrix_x4(base0 ^ 64, y[4], y[5], y[6], y[7]);
    pipelink::stmatrix_x4(base0 + 4096, y[8], y[9], y[10], y[11]);
    pipelink::stmatrix_x4((base0 ^ 64) + 4096, y[12], y[13], y[14], y[15]);
}
