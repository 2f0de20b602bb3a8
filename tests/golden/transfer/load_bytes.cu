{  // y: 16 ld.shared.b16
    const std::uint32_t base0 = at + pipelink::swizzle<64>(thread % 4 * 2 + thread / 4 % 8 * 64 + thread / 32 * 1024);
    std::uint32_t loaded[16];
    pipelink::ld_shared_b16(base0, loaded[0]);
    pipelink::ld_shared_b16(base0 + 512, loaded[1]);
    pipelink::ld_shared_b16(base0 + 8, loaded[2]);
    pipelink::ld_shared_b16(base0 + 520, loaded[3]);
    pipelink::ld_shared_b16(base0 ^ 16, loaded[4]);
    pipelink::ld_shared_b16((base0 ^ 16) + 512, loaded[5]);
    pipelink::ld_shared_b16((base0 ^ 16) + 8, loaded[6]);
    pipelink::ld_shared_b16((base0 ^ 16) + 520, loaded[7]);
    pipelink::ld_shared_b16(base0 ^ 32, loaded[8]);
    pipelink::ld_shared_b16((base0 ^ 32) + 512, loaded[9]);
    pipelink::ld_shared_b16((base0 ^ 32) + 8, loaded[10]);
    pipelink::ld_shared_b16((base0 ^ 32) + 520, loaded[11]);
    pipelink::ld_shared_b16(base0 ^ 48, loaded[12]);
    pipelink::ld_shared_b16((base0 ^ 48) + 512, loaded[13]);
    pipelink::ld_shared_b16((base0 ^ 48) + 8, loaded[14]);
    pipelink::ld_shared_b16((base0 ^ 48) + 520, loaded[15]);
    y[0] = pipelink::pick<0x5410>(loaded[0], loaded[1]);
    y[1] = pipelink::pick<0x5410>(loaded[2], loaded[3]);
    y[2] = pipelink::pick<0x5410>(loaded[4], loaded[5]);
    y[3] = pipelink::pick<0x5410>(loaded[6], loaded[7]);
    y[4] = pipelink::pick<0x5410>(loaded[8], loaded[9]);
    y[5] = pipelink::pick<0x5410>(loaded[10], loaded[11]);
    y[6] = pipelink::pick<0x5410>(loaded[12], loaded[13]);
    y[7] = pipelink::pick<0x5410>(loaded[14], loaded[15]);
}
