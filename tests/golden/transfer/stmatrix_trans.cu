{  // x: 4 stmatrix.x4.trans
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 2 * 16 + thread / 16 % 2 * 1024 + thread / 32 * 32);
    pipelink::stmatrix_x4_trans(base0, x[0], x[1], x[2], x[3]);
    pipelink::stmatrix_x4_trans(base0 + 2048, x[4], x[5], x[6], x[7]);
    pipelink::stmatrix_x4_trans(base0 + 4096, x[8], x[9], x[10], x[11]);
    pipelink::stmatrix_x4_trans(base0 + 6144, x[12], x[13], x[14], x[15]);
}
