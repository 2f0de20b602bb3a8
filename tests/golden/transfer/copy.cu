{  // y: 4 ld.shared.v4.b32
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread * 16);
    pipelink::ld_shared_v4_b32(base0, y[0], y[1], y[2], y[3]);
    pipelink::ld_shared_v4_b32(base0 + 2048, y[4], y[5], y[6], y[7]);
    pipelink::ld_shared_v4_b32(base0 + 4096, y[8], y[9], y[10], y[11]);
    pipelink::ld_shared_v4_b32(base0 + 6144, y[12], y[13], y[14], y[15]);
}
{  // y: 4 st.shared.v4.b32
    const std::uint32_t base0 = (at + 32768) + thread * 16;
    pipelink::st_shared_v4_b32(base0, y[0], y[1], y[2], y[3]);
    pipelink::st_shared_v4_b32(base0 + 2048, y[4], y[5], y[6], y[7]);
    pipelink::st_shared_v4_b32(base0 + 4096, y[8], y[9], y[10], y[11]);
    pipelink::st_shared_v4_b32(base0 + 6144, y[12], y[13], y[14], y[15]);
}
