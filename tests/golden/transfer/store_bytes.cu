{  // x: 16 st.shared.b16
    const std::uint32_t base0 = at + pipelink::swizzle<64>(thread % 4 * 2 + thread / 4 % 8 * 64 + thread / 32 * 1024);
    pipelink::st_shared_b16(base0, x[0]);
    pipelink::st_shared_b16(base0 + 512, x[0] >> 16);
    pipelink::st_shared_b16(base0 + 8, x[1]);
    pipelink::st_shared_b16(base0 + 520, x[1] >> 16);
    pipelink::st_shared_b16(base0 ^ 16, x[2]);
    pipelink::st_shared_b16((base0 ^ 16) + 512, x[2] >> 16);
    pipelink::st_shared_b16((base0 ^ 16) + 8, x[3]);
    pipelink::st_shared_b16((base0 ^ 16) + 520, x[3] >> 16);
    pipelink::st_shared_b16(base0 ^ 32, x[4]);
    pipelink::st_shared_b16((base0 ^ 32) + 512, x[4] >> 16);
    pipelink::st_shared_b16((base0 ^ 32) + 8, x[5]);
    pipelink::st_shared_b16((base0 ^ 32) + 520, x[5] >> 16);
    pipelink::st_shared_b16(base0 ^ 48, x[6]);
    pipelink::st_shared_b16((base0 ^ 48) + 512, x[6] >> 16);
    pipelink::st_shared_b16((base0 ^ 48) + 8, x[7]);
    pipelink::st_shared_b16((base0 ^ 48) + 520, x[7] >> 16);
}
