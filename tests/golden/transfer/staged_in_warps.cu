{  // x: 4 stmatrix.x4
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 8 * 128 + thread / 8 % 4 * 16 + thread / 32 * 2048);
    pipelink::stmatrix_x4(base0, x[0], x[2], x[4], x[6]);
    pipelink::stmatrix_x4(base0 ^ 64, x[8], x[10], x[12], x[14]);
    pipelink::stmatrix_x4(base0 + 1024, x[1], x[3], x[5], x[7]);
    pipelink::stmatrix_x4((base0 ^ 64) + 1024, x[9], x[11], x[13], x[15]);
}
pipelink::sync_warp();
{  // y: 4 ld.shared.v4.b32
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread % 32 * 16 + thread / 32 * 2048);
    pipelink::ld_shared_v4_b32(base0, y[0], y[1], y[2], y[3]);
    pipelink::ld_shared_v4_b32((base0 ^ 64) + 512, y[4], y[5], y[6], y[7]);
    pipelink::ld_shared_v4_b32(base0 + 1024, y[8], y[9], y[10], y[11]);
    pipelink::ld_shared_v4_b32((base0 ^ 64) + 1536, y[12], y[13], y[14], y[15]);
}
