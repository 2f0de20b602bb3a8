{  // y: 4 ldmatrix.x4.trans
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 2 * 16 + thread / 16 % 2 * 1024 + thread / 32 * 32);
    pipelink::ldmatrix_x4_trans(base0, y[0], y[1], y[2], y[3]);
    pipelink::ldmatrix_x4_trans(base0 + 2048, y[4], y[5], y[6], y[7]);
    pipelink::ldmatrix_x4_trans(base0 + 4096, y[8], y[9], y[10], y[11]);
    pipelink::ldmatrix_x4_trans(base0 + 6144, y[12], y[13], y[14], y[15]);
}
