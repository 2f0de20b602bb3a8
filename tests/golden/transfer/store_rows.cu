{  // x: 4 st.shared.v4.b32
    const std::uint32_t base0 = at + pipelink::swizzle<128>(thread * 16);
    pipelink::st_shared_v4_b32(base0, x[0], x[1], x[2], x[3]);
    pipelink::st_shared_v4_b32(base0 + 2048, x[4], x[5], x[6], x[7]);
    pipelink::st_shared_v4_b32(base0 + 4096, x[8], x[9], x[10], x[11]);
    pipelink::st_shared_v4_b32(base0 + 6144, x[12], x[13], x[14], x[15]);
}
